"""Text that is still arriving: what is finished is printed once, the rest is shown until it is."""

from collections.abc import Callable
from typing import Protocol

from ferrule.doors.headless.terminal import DIM, Terminal
from ferrule.rendering.width import chopped

LONGEST_DRAWN = 8_000
"""Characters of an unfinished block that are drawn as Markdown, ten times a second; more than two screens."""


class Prose(Protocol):
    """A text that grows by `feed`. Rows are printed in order, and end without line breaks."""

    def feed(self, text: str) -> None: ...
    def take(self, *, whole: bool = False) -> list[str]:
        """Return the rows that are finished since the last call; all that is left if the text is `whole`."""
        ...

    def rest(self) -> list[str]:
        """Return the rows of what is not finished yet."""
        ...


class Answer:
    """Markdown, block by block."""

    def __init__(self, out: Terminal) -> None:
        self._out = out
        self._text = ""

    def feed(self, text: str) -> None:
        """See `Prose`."""
        self._text += text

    def take(self, *, whole: bool = False) -> list[str]:
        """See `Prose`. Each block has an empty line before it."""
        from ferrule.rendering.markdown import finished_lines

        lines = self._text.split("\n")
        count = len(lines) if whole else finished_lines(self._text)
        done, self._text = "\n".join(lines[:count]), "\n".join(lines[count:])
        return self._rows(done)

    def rest(self) -> list[str]:
        """See `Prose`. Of a very long block only the end, as it is written: drawing it all takes too long."""
        if len(self._text) <= LONGEST_DRAWN:
            return self._rows(self._text)
        lines = self._text[-LONGEST_DRAWN:].split("\n")[1:]
        return [row for line in lines for row in chopped(line.expandtabs(4), self._out.columns - 1)]

    def _rows(self, text: str) -> list[str]:
        from ferrule.rendering.markdown import rendered

        if not text.strip():
            return []
        return ["", *rendered(text, self._out.columns - 1, colored=self._out.colored)]


class Thought:
    """Plain text, line by line."""

    def __init__(self, out: Terminal) -> None:
        self._out = out
        self._begun = False
        self._text = ""

    def feed(self, text: str) -> None:
        """See `Prose`."""
        self._text += text.expandtabs(4)

    def take(self, *, whole: bool = False) -> list[str]:
        """See `Prose`. An empty line stands before the first."""
        done, _, self._text = self._text.rpartition("\n")
        if whole:
            done, self._text = f"{done}\n{self._text}".strip("\n"), ""
        if not done:
            return []
        first, self._begun = [] if self._begun else [""], True
        return [*first, *(self._out.style(line, DIM) for line in done.split("\n"))]

    def rest(self) -> list[str]:
        """See `Prose`."""
        if not self._text:
            return []
        rows = [self._out.style(row, DIM) for row in chopped(self._text, self._out.columns - 1)]
        return rows if self._begun else ["", *rows]


PROSE: dict[str, Callable[[Terminal], Prose]] = {"text": Answer, "reasoning": Thought}
"""How each kind of arriving text is shown."""
