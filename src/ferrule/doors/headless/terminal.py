"""Text on a terminal: colours where supported, no foreign text that could move the cursor, and a live region."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from typing import TextIO, cast

DIM, BOLD, RED, GREEN, CYAN = "2", "1", "31", "32", "36"
COLUMNS, ROWS = 80, 24
"""The size of a terminal that does not tell it."""

_ERASE = "\r\x1b[J"
_WRAP_OFF, _WRAP_ON = "\x1b[?7l", "\x1b[?7h"


class Terminal:
    """Output to one stream. `colored` decides whether `style` does anything, `live` whether `show` may.

    The live region is below all that was written. The cursor rests at its beginning, so that one sequence erases it,
    also after a resize has wrapped its rows, and what a user types there goes with it.
    """

    def __init__(self, stream: TextIO, *, colored: bool, live: bool = False) -> None:
        self.stream = stream
        self.colored = colored
        self.live = live
        self._line_open = False
        self._shown: Sequence[str] = ()

    @classmethod
    def on(cls, stream: TextIO, env: Mapping[str, str] = os.environ) -> "Terminal":
        """Create a terminal: live if the stream is one that can move its cursor, and coloured too unless `NO_COLOR` is
        set."""
        able = stream.isatty() and env.get("TERM", "") not in ("", "dumb")
        is_utf8 = (stream.encoding or "").lower().replace("-", "") == "utf8"
        return cls(stream, colored=able and not env.get("NO_COLOR"), live=able and is_utf8)

    @property
    def columns(self) -> int:
        """The width now."""
        return self._size()[0]

    @property
    def rows(self) -> int:
        """The height now."""
        return self._size()[1]

    def _size(self) -> tuple[int, int]:
        try:
            size = os.get_terminal_size(self.stream.fileno())
        except (OSError, ValueError):  # no terminal, or no descriptor
            return COLUMNS, ROWS
        return size.columns or COLUMNS, size.lines or ROWS

    def style(self, text: str, *codes: str) -> str:
        """Return the text in these colours."""
        return f"\x1b[{';'.join(codes)}m{text}\x1b[0m" if self.colored and text else text

    def write(self, text: str) -> None:
        """Write at once, without a line break."""
        if text:
            self._put(f"{self._erased()}{text}")
            self._line_open = not text.removesuffix("\x1b[0m").endswith("\n")

    def line(self, text: str = "") -> None:
        """Write a separate line."""
        self.end_line()
        self.write(f"{text}\n")

    def end_line(self) -> None:
        """Break the line if one is open."""
        if self._line_open:
            self.write("\n")

    def answer(self, text: str) -> str:
        """Return a model's answer as it is shown here: Markdown on a terminal, else unchanged."""
        if not self.live or not text.strip():
            return text
        from ferrule.rendering.markdown import rendered

        return "\n".join(rendered(text, self.columns - 1, colored=self.colored))

    def show(self, rows: Sequence[str]) -> None:
        """Replace the live region by these rows, each no wider than the terminal."""
        if not self.live or (not rows and not self._shown):
            return
        up = f"\x1b[{len(rows) - 1}A" if len(rows) > 1 else ""
        self.end_line()
        lines = "\r\n".join(rows)
        region = f"{_WRAP_OFF}{lines}{_WRAP_ON}{up}\r" if rows else ""
        self._put(f"{_ERASE}{region}")
        self._shown = rows

    @contextmanager
    def for_stderr(self) -> Iterator[None]:
        """Let what others write to standard error pass through here meanwhile, so that the live region makes room for
        it: a log record, a warning of Python."""
        if not self.live:
            yield
            return
        with redirect_stderr(cast("TextIO", _Others(self))):
            yield

    def _put(self, text: str) -> None:
        """Write at once. A terminal whose window was closed takes no more, and its signal ends the run: what is still
        said then goes nowhere, instead of failing here, in every callback and once more at the interpreter's end."""
        try:
            self.stream.write(text)
            self.stream.flush()
        except OSError:
            if not self.live:
                raise
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.stream.fileno())

    def _erased(self) -> str:
        shown, self._shown = self._shown, ()
        return _ERASE if shown else ""


class _Others:
    """Standard error of those who do not know the terminal."""

    def __init__(self, out: Terminal) -> None:
        self._out = out

    def write(self, text: str) -> int:
        """Write it above the live region."""
        self._out.write(text)
        return len(text)

    def __getattr__(self, name: str) -> object:
        return getattr(self._out.stream, name)
