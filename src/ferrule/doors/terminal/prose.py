"""An answer of the model on the screen: as cells of a few screens each, so that none takes long to draw, however long
the answer is."""

import re
from collections import deque
from collections.abc import Callable

from textual.strip import Strip

from ferrule.doors.terminal.cell import Cell, GrowingText
from ferrule.doors.terminal.strips import BLANK, DIM, row
from ferrule.rendering.markdown import finished_lines, styled_rows
from ferrule.rendering.safe import safe
from ferrule.rendering.width import cut

LONGEST_PART = 3_000
"""Characters of one cell: more than a screen, and drawn in less than 50 ms, a table, too."""
HEAD_CHARS = TAIL_CHARS = 100_000
"""Characters that are shown of an answer's beginning and of its end; nobody reads more here."""

_BLANK_LINE = re.compile(r"\n[ \t]*\n(?=\S)")
_FENCE = re.compile(r"^ {0,3}(?:```|~~~).*\n?", re.MULTILINE)
_TABLE_HEAD = re.compile(r"^[^\n]*\|[^\n]*\n[ \t]*[:|-][ :|-]*\|?[ :|-]*\n", re.MULTILINE)


class Answer(Cell):
    """A part of an answer, as Markdown. A block that is finished is drawn once. `lead` stands before its own text:
    what it repeats of the part before."""

    def __init__(self, text: str = "", lead: str = "") -> None:
        super().__init__()
        self.text = lead + text
        self.lead = lead
        self._begun = 0
        """Where the first block begins that is not finished."""
        self._done: list[Strip] = []
        self._done_width = 0

    def feed(self, delta: str) -> None:
        """Take more of it."""
        self.text += delta
        self.forget()

    def become(self, text: str) -> None:
        """Take another text in its place."""
        self.text, self._done_width, self.goes_on = text, 0, False
        self.forget()

    def draw(self, width: int) -> list[Strip]:
        """See `Cell`."""
        if width != self._done_width:
            self._done, self._done_width, self._begun = [], width, 0
        rest = self.text[self._begun :]
        if count := finished_lines(rest):
            end = sum(len(line) + 1 for line in rest.split("\n")[:count])
            self._done = _joined(self._done, _markdown(rest[:end], width))
            self._begun += end
            rest = rest[end:]
        return _joined(self._done, _markdown(rest, width))


def _joined(first: list[Strip], second: list[Strip]) -> list[Strip]:
    return [*first, BLANK, *second] if first and second else first or second


def _markdown(text: str, width: int) -> list[Strip]:
    return [Strip(segments) for segments in styled_rows(safe(text), width)] if text.strip() else []


class Unshown(Cell):
    """What of a very long answer is not shown, if anything."""

    lines = 0

    def draw(self, width: int) -> list[Strip]:
        """See `Cell`."""
        told = f"… {self.lines:,} lines of this answer are not shown; /copy has all of it …"
        return [row((cut(told, width), DIM))] if self.lines else []


class Prose:
    """An answer as it arrives. `add` shows a new cell, `changed` says that one looks different now."""

    def __init__(self, add: Callable[[Cell], None], changed: Callable[[Cell], None]) -> None:
        self._add, self._changed = add, changed
        self._text = GrowingText()
        self._cells: list[tuple[Answer, int]] = []
        """All cells, and where each begins in the text."""
        self._taken = 0
        """Characters that are in cells, or were."""
        self._unshown: Unshown | None = None
        self._tail: deque[Answer] = deque()
        self._tail_chars = 0
        self._last = self._begin("", "")

    @property
    def text(self) -> str:
        """All that has arrived."""
        return str(self._text)

    def feed(self, delta: str) -> None:
        """Take more of it."""
        self._text.add(delta)
        if len(delta) > 2 * (HEAD_CHARS + TAIL_CHARS):
            self._take(delta[:HEAD_CHARS])
            self._skip(delta[HEAD_CHARS:-TAIL_CHARS])
            delta = delta[-TAIL_CHARS:]
        self._take(delta)

    def complete(self, text: str) -> None:
        """Take the whole text, where it differs from what has arrived."""
        arrived = self.text
        if not arrived:
            self.feed(text)
        elif text != arrived:
            self._text.become(text)
            if self._unshown is None and len(text) <= HEAD_CHARS:
                self._replace(text, arrived)

    def _replace(self, text: str, arrived: str) -> None:
        """Begin anew with the first cell that is not the same, or does not end where it did."""
        while len(self._cells) > 1:
            seen = self._cells[-2][1] + LONGEST_PART + 1
            if text[:seen] == arrived[:seen]:
                break
            gone, _ = self._cells.pop()
            gone.become("")
            self._changed(gone)
        self._last, self._taken = self._cells[-1]
        self._last.become(self._last.lead)
        self._take(text[self._taken :])

    def _take(self, text: str) -> None:
        for at in range(0, len(text), LONGEST_PART):
            self._last.feed(text[at : at + LONGEST_PART])
            self._taken += len(text[at : at + LONGEST_PART])
            while len(self._last.text) > LONGEST_PART:
                self._divide()
        self._changed(self._last)

    def _divide(self) -> None:
        """Let the cell end, and its end begin the next one."""
        text = self._last.text
        end, lead, goes_on = division(text, len(self._last.lead))
        self._last.become(text[:end])
        self._last.goes_on = goes_on
        self._close(text[end:], lead)

    def _close(self, rest: str, lead: str) -> None:
        """Begin the next cell with `rest`, which repeats `lead` of this one."""
        self._changed(self._last)
        if self._taken - len(rest) >= HEAD_CHARS:
            if self._unshown is None:
                self._unshown = Unshown()
                self._add(self._unshown)
            else:
                self._tail.append(self._last)
                self._tail_chars += len(self._last.text)
        self._last = self._begin(rest, lead)
        while self._unshown is not None and self._tail_chars > TAIL_CHARS:
            old = self._tail.popleft()
            self._tail_chars -= len(old.text)
            self._hide(old.text[len(old.lead) :])
            old.become("")
            self._changed(old)

    def _begin(self, text: str, lead: str) -> Answer:
        cell = Answer(text, lead)
        self._cells.append((cell, self._taken - len(text)))
        self._add(cell)
        return cell

    def _skip(self, text: str) -> None:
        """Pass over the middle of an answer that came at once."""
        is_code = (len(_FENCE.findall(self._last.text)) + len(_FENCE.findall(text))) % 2
        self._taken += len(text)
        self._close("", "```\n" if is_code else "")
        self._hide(text)

    def _hide(self, text: str) -> None:
        assert self._unshown is not None
        self._unshown.lines += text.count("\n")
        self._unshown.forget()
        self._changed(self._unshown)


def division(text: str, repeated: int = 0) -> tuple[int, str, bool]:
    """Return where to divide a text that is longer than a part, what the second part has to repeat, and whether one
    block goes on in it: behind the last blank line, else behind the last line, else anywhere. The second part of code
    begins with the same fence, and that of a table with its head. The first `repeated` characters were repeated."""
    head = text[:LONGEST_PART]
    fences = list(_FENCE.finditer(head))
    for blank in reversed(list(_BLANK_LINE.finditer(head, repeated))):
        if sum(fence.start() < blank.end() for fence in fences) % 2 == 0:
            return blank.end(), "", False
    end = head.rfind("\n", repeated) + 1 or LONGEST_PART
    heads = list(_TABLE_HEAD.finditer(head))
    lead = ""
    if len(fences) % 2:
        lead = fences[-1][0]
    elif heads and "|" in text[end:].split("\n", maxsplit=1)[0]:
        lead = heads[-1][0]
    return end, lead if len(lead) <= LONGEST_PART // 2 else "", True
