"""The base of all that a conversation shows: rows, kept as long as somebody looks."""

from typing import TYPE_CHECKING

from textual.strip import Strip

from ferrule.doors.terminal.strips import BLANK

if TYPE_CHECKING:
    from ferrule.doors.terminal.images import Picture

LEAST_WIDTH = 8
"""Columns below which nothing is laid out."""


class Cell:
    """One thing. Its rows are kept for the last width until it changes, or is far from the screen."""

    is_foldable = False
    is_running = False
    goes_on = False
    """Whether the next cell goes on with the same, so that no blank row stands between."""

    def __init__(self) -> None:
        self.is_open = False
        self.place = -1
        """Its number in the transcript."""
        self._rows: list[Strip] | None = None
        self._width = 0

    def rows(self, width: int) -> list[Strip]:
        """Return the rows at this width, the last of them blank; none where nothing is to be seen."""
        width = max(width, LEAST_WIDTH)
        if self._rows is None or self._width != width:
            drawn = self.draw(width)
            self._rows, self._width = [*drawn, BLANK] if drawn and not self.goes_on else drawn, width
        return self._rows

    def draw(self, width: int) -> list[Strip]:
        """Return the rows without the blank one."""
        raise NotImplementedError

    def image_row(self, index: int) -> "tuple[Picture, int] | None":
        """Return the image of which a row of it shows a row, and which; None for another row."""
        return None

    def forget(self) -> None:
        """Drop the rows: something changed, or nobody looks."""
        self._rows = None

    def toggle(self) -> None:
        """Unfold it, or fold it again."""
        self.is_open = not self.is_open
        self.forget()


class GrowingText:
    """A text that arrives in pieces, which are joined when somebody reads it: a long one costs no more for many."""

    def __init__(self) -> None:
        self._pieces: list[str] = []

    def add(self, piece: str) -> None:
        """Take more of it."""
        self._pieces.append(piece)

    def become(self, text: str) -> None:
        """Take another text in its place."""
        self._pieces = [text]

    def __str__(self) -> str:
        if len(self._pieces) > 1:
            self._pieces = ["".join(self._pieces)]
        return self._pieces[0] if self._pieces else ""
