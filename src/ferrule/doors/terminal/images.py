"""Images in the conversation, by the graphics protocol of kitty, on terminals that can hang them on ordinary cells.

An image is sent once; where it is seen stand placeholder characters, which scroll, are cut and are overwritten as any
text, so nothing of it stays behind. Source: kitty's documentation, "Unicode placeholders" of its graphics protocol.
"""

import binascii
import os
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from ferrule.images import read_header

COLUMNS, ROWS = 32, 16
"""Cells of the largest image: a square, as a cell is about twice as high as it is wide."""
PIXELS_PER_COLUMN = 8
"""A small image is not shown larger than it is."""
LONGEST_IMAGE = 2 * 1024 * 1024
"""Characters of an image in base64 that is sent: over a slow line a larger one would hold up the screen."""
KEPT = 6 * 1024 * 1024
"""Characters of all images that are shown; before that many, an image becomes a line again."""
MOST_PIXELS = 32 * 1024 * 1024
"""Pixels that a terminal is asked to decode."""
PIECE = 4096
"""Characters of an image in one sequence: the protocol's limit."""
APC = "\x1b_G"

_PLACEHOLDER = "\U0010eeee"
_MARKS = (
    "\u0305\u030d\u030e\u0310\u0312\u033d\u033e\u033f\u0346\u034a\u034b\u034c\u0350\u0351\u0352\u0357"
    "\u035b\u0363\u0364\u0365\u0366\u0367\u0368\u0369\u036a\u036b\u036c\u036d\u036e\u036f\u0483\u0484"
)
"""The mark for each number of a row or column."""


def can_place(env: Mapping[str, str], color_system: str | None) -> bool:
    """Return whether the terminal is known to hang images on cells, and shows colours as they are: in them stands
    which image it is."""
    known = env.get("TERM") in ("xterm-kitty", "xterm-ghostty") or env.get("TERM_PROGRAM") == "ghostty"
    return known and not _is_inside(env) and color_system == "truecolor" and not env.get("NO_COLOR")


def can_draw(env: Mapping[str, str]) -> bool:
    """Return whether the terminal is known to draw images as iTerm2 does."""
    known = env.get("TERM_PROGRAM") in ("iTerm.app", "WezTerm") or env.get("LC_TERMINAL") == "iTerm2"
    return known and not _is_inside(env)


def _is_inside(env: Mapping[str, str]) -> bool:
    """Return whether a program that shows no images stands before the terminal."""
    return any(env.get(name) for name in ("TMUX", "STY", "ZELLIJ"))


class Picture:
    """An image that the terminal has: where it is shown, and whether it still has it."""

    __slots__ = ("columns", "is_there", "lines", "number")

    def __init__(self, number: int, columns: int, lines: int) -> None:
        self.number, self.columns, self.lines = number, columns, lines
        self.is_there = True

    def rows(self) -> list[Strip]:
        """Return the rows of placeholders."""
        red, green, blue = self.number.to_bytes(3, "big")
        style = Style(color=f"rgb({red},{green},{blue})")
        return [
            Strip([Segment("".join(_PLACEHOLDER + _MARKS[y] + _MARKS[x] for x in range(self.columns)), style)])
            for y in range(self.lines)
        ]

    def on_screen(self, strip: Strip, row: int, y: int) -> Strip:
        """Return what stands for a row of it, which is `strip`, on row `y` of the screen."""
        return strip


class Pictures:
    """The images that the terminal has. `tell` writes to it; `is_able`: it shows images."""

    formats: ClassVar[tuple[str, ...]] = ("image/png",)
    """What the protocol takes as a file."""

    def __init__(self, tell: Callable[[str], None], is_able: bool = True) -> None:
        self.tell = tell
        self._is_able = is_able
        self._kept: dict[Picture, str] = {}
        self._number = (os.getpid() & 0xFFFF) << 8
        """Numbers of other programs on the same terminal are others."""

    def place(self, url: str) -> Picture | None:
        """Take an image, and return what is shown of it; None for one that is too large or of another format, and
        where the terminal cannot show any."""
        size = _cells(url, self.formats) if self._is_able else None
        if size is None:
            return None
        self._number = self._number % 0xFFFFFF + 1
        picture = self.make(self._number, *size)
        self._kept[picture] = url
        while sum(map(len, self._kept.values())) > KEPT:
            self._drop(next(iter(self._kept)))
        self.send(picture)
        return picture

    def data(self, picture: Picture) -> str:
        """Return an image in base64."""
        return self._kept[picture].partition(",")[2]

    def make(self, number: int, columns: int, lines: int) -> Picture:
        """Return what is shown of an image."""
        return Picture(number, columns, lines)

    def send(self, picture: Picture) -> None:
        """Give the terminal an image."""
        self.tell(_sequence(picture, self.data(picture)))

    def take_away(self, picture: Picture) -> None:
        """Take an image from the terminal."""
        self.tell(f"{APC}a=d,d=I,i={picture.number},q=2\x1b\\")

    def after_frame(self) -> None:
        """Look at what a frame has brought to the screen."""

    def drawn_over(self) -> None:
        """Know that all that was on the screen is gone."""

    def send_again(self) -> None:
        """Send all images again: the terminal may have lost them."""
        for picture in self._kept:
            self.send(picture)

    def withdraw(self) -> None:
        """Take all images from the terminal for now."""
        for picture in self._kept:
            self.take_away(picture)

    def clear(self) -> None:
        """Take all images from the terminal for good."""
        while self._kept:
            self._drop(next(iter(self._kept)))

    def _drop(self, picture: Picture) -> None:
        del self._kept[picture]
        picture.is_there = False
        self.take_away(picture)


def _cells(url: str, formats: Sequence[str]) -> tuple[int, int] | None:
    """Return the columns and rows of an image, if it is one that is sent."""
    mime = next((mime for mime in formats if url.startswith(f"data:{mime};base64,")), None)
    if mime is None or len(url) > LONGEST_IMAGE:
        return None
    try:
        header = read_header(b64decode(url.partition(",")[2], validate=True))
    except binascii.Error:
        return None
    if header is None or header.mime != mime or not 0 < header.width * header.height <= MOST_PIXELS:
        return None
    scale = min(COLUMNS / header.width, 2 * ROWS / header.height, 1 / PIXELS_PER_COLUMN)
    columns, lines = round(header.width * scale), round(header.height * scale / 2)
    return min(max(columns, 1), COLUMNS), min(max(lines, 1), ROWS)


def _sequence(picture: Picture, data: str) -> str:
    """Return the image in pieces, without an answer of the terminal, which would look like keys."""
    pieces = [data[at : at + PIECE] for at in range(0, len(data), PIECE)]
    head = f"a=T,U=1,f=100,i={picture.number},c={picture.columns},r={picture.lines},q=2,"
    last = len(pieces) - 1
    return "".join(f"{APC}{'q=2,' if at else head}m={int(at < last)};{piece}\x1b\\" for at, piece in enumerate(pieces))
