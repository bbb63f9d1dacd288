"""A terminal that speaks iTerm2's image protocol: a stand-in, as none runs here. It knows no more than Textual uses."""

import codecs
import os
import re
import threading
from contextlib import suppress

from rich.cells import cell_len

IMAGE = "▓"
"""A cell of an image."""
_TOKEN = re.compile(
    r"\x1b\]1337;File=inline=1;width=(\d+);height=(\d+);preserveAspectRatio=1:[A-Za-z0-9+/=]+\a"
    r"|\x1b[\]_P].*?(?:\a|\x1b\\)|\x1b\[([0-?]*)[ -/]*([@-~])|\x1b([^\]_P\[])|([^\x1b])",
    re.DOTALL,
)


class Grid:
    """The cells of a terminal whose other end is `master`, read by a thread until it is closed."""

    def __init__(self, master: int, columns: int = 80, lines: int = 24) -> None:
        self.columns, self.lines = columns, lines
        self.draws = 0
        """Images that were drawn."""
        self.bytes = 0
        self._x = self._y = 0
        self._kept = (0, 0)
        self._rest = ""
        self._clear()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._thread = threading.Thread(target=self._read, args=(master,), daemon=True)
        self._thread.start()

    def _read(self, master: int) -> None:
        with suppress(OSError):
            while data := os.read(master, 65536):
                self.bytes += len(data)
                self._feed(self._decoder.decode(data))

    def _feed(self, text: str) -> None:
        self._rest += text
        if self._rest.startswith("\x1b]") and "\a" not in text:
            return  # the middle of an image
        text, end = self._rest, 0
        while found := _TOKEN.match(text, end):
            end = found.end()
            width, height, numbers, final, escape, char = found.groups()
            if width:
                self._draw(int(width), int(height))
            elif final:
                self._control(numbers, final)
            elif escape == "7":
                self._kept = self._x, self._y
            elif escape == "8":
                self._x, self._y = self._kept
            elif char:
                self._put(char)
        self._rest = text[end:]

    def _clear(self) -> None:
        self._cells = [[" "] * self.columns for _ in range(self.lines)]

    def _control(self, numbers: str, final: str) -> None:
        if final == "H":
            y, x = [*numbers.split(";"), "1"][:2] if numbers else ("1", "1")
            self._x, self._y = int(x) - 1, int(y) - 1
        elif final == "C":
            self._x = min(self._x + int(numbers or 1), self.columns - 1)
        elif final == "h" and numbers == "?1049":
            self._clear()

    def _put(self, char: str) -> None:
        if char == "\n":
            self._y = min(self._y + 1, self.lines - 1)
        elif char == "\r":
            self._x = 0
        elif char >= " ":
            if self._x < self.columns and self._y < self.lines:
                self._cells[self._y][self._x] = char
            self._x += cell_len(char)

    def _draw(self, width: int, height: int) -> None:
        self.draws += 1
        for y in range(self._y, self._y + height):
            self._cells[y][self._x : self._x + width] = IMAGE * width

    @property
    def rows(self) -> list[str]:
        """What is on it."""
        return ["".join(row).rstrip() for row in self._cells]

    @property
    def image_rows(self) -> dict[int, int]:
        """The rows with cells of an image, and how many."""
        return {y: row.count(IMAGE) for y, row in enumerate(self._cells) if IMAGE in row}

    def resize(self, columns: int, lines: int) -> None:
        """Take another size, and lose what is on it."""
        self.columns, self.lines = columns, lines
        self._clear()
