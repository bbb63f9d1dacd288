"""Images in the conversation by iTerm2's protocol, which WezTerm speaks, too.

It draws an image at the cursor, over the cells there, and has no name for it afterwards. So the conversation has blanks
where an image belongs. Once the screen rests, each image whose blanks are all in sight is drawn over them; as long as
it stays there, frames pass over its cells. When it moves, its cells are written as all others, which takes it away.
Source: iTerm2's documentation, "Inline Images Protocol".
"""

from collections.abc import Callable, Mapping
from typing import Protocol

from rich.segment import Segment
from textual.strip import Strip

from ferrule.doors.terminal.images import Picture, Pictures

REST = 0.15
"""Seconds without a change of their places after which images are drawn: not while they scroll."""
REST_SHARE = 10
"""A terminal that took long for an image is left in peace so many times as long: frames and keys come between."""
PASSED = "\ud800"
"""Stands for a cell that a frame passes over. No text has it: `safe` shows halves of characters as escapes."""
START = "\x1b7\x1b["
"""How what draws an image begins: the cursor is remembered, and moved."""


class InlinePicture(Picture):
    """An image, and the row of the screen where the terminal shows its first row; None: nowhere."""

    __slots__ = ("row",)

    def __init__(self, number: int, columns: int, lines: int) -> None:
        super().__init__(number, columns, lines)
        self.row: int | None = None

    def rows(self) -> list[Strip]:
        """See `Picture`."""
        return [Strip([Segment(" " * self.columns)])] * self.lines

    def on_screen(self, strip: Strip, row: int, y: int) -> Strip:
        """See `Picture`."""
        return Strip([Segment(PASSED * self.columns)]) if self.row == y - row else strip


class Canvas(Protocol):
    """The screen, as its images know it."""

    @property
    def image_rows(self) -> Mapping[int, tuple[Picture, int]]:
        """The rows of the screen on which the last frame had a row of an image, and which."""
        ...

    @property
    def image_column(self) -> int:
        """The column where images begin."""
        ...

    @property
    def is_behind(self) -> bool:
        """Whether the terminal has not taken all yet."""
        ...

    @property
    def image_seconds(self) -> float:
        """How long the terminal took for the last image."""
        ...

    def refresh_images(self) -> None:
        """Show the rows of images again, as they are now."""

    def after_rest(self, seconds: float, do: Callable[[], None]) -> None:
        """Do something then, in place of what was to be done before."""


class InlinePictures(Pictures):
    """The images of a conversation. They are drawn on `canvas` by what `tell` writes."""

    formats = ("image/png", "image/jpeg")

    def __init__(self, tell: Callable[[str], None], canvas: Canvas) -> None:
        super().__init__(tell)
        self._canvas = canvas
        self._wanted: dict[InlinePicture, int] = {}
        """The images to draw, and the rows where the last frame had their blanks."""
        self._shown: dict[InlinePicture, int] = {}

    def make(self, number: int, columns: int, lines: int) -> Picture:
        """See `Pictures`."""
        return InlinePicture(number, columns, lines)

    def send(self, picture: Picture) -> None:
        """Do nothing: it is drawn when its blanks are on the screen."""

    def take_away(self, picture: Picture) -> None:
        """Forget an image; the frame without it takes it from the screen."""
        if isinstance(picture, InlinePicture):
            picture.row = None
            self._shown.pop(picture, None)
            self._wanted.pop(picture, None)

    def after_frame(self) -> None:
        """See `Pictures`."""
        places = _whole(self._canvas.image_rows)
        gone = [picture for picture, row in self._shown.items() if places.get(picture) != row]
        for picture in gone:
            del self._shown[picture]
            picture.row = None
        if gone:
            self._canvas.refresh_images()  # a part of it may be in sight yet
        wanted = {picture: row for picture, row in places.items() if picture.row != row and picture.is_there}
        if wanted != self._wanted:
            self._wanted = wanted
            self._wait()

    def drawn_over(self) -> None:
        """See `Pictures`."""
        for picture in self._shown:
            picture.row = None
        self._shown.clear()
        self._wanted.clear()
        self._canvas.refresh_images()

    def _wait(self) -> None:
        self._canvas.after_rest(max(REST, REST_SHARE * self._canvas.image_seconds), self._draw)

    def _draw(self) -> None:
        if self._canvas.is_behind:
            self._wait()
            return
        wanted, self._wanted = self._wanted, {}
        for picture, row in wanted.items():
            self._shown[picture] = picture.row = row
            self.tell(_sequence(picture, row, self._canvas.image_column, self.data(picture)))
        if wanted:
            self._canvas.refresh_images()  # the next frame passes over them


def _whole(rows: Mapping[int, tuple[Picture, int]]) -> dict[InlinePicture, int]:
    """Return the images of which every row is on the screen, and where their first one is."""
    found = {}
    for y, (picture, row) in rows.items():
        is_whole = row == 0 and all(rows.get(y + more) == (picture, more) for more in range(picture.lines))
        if is_whole and isinstance(picture, InlinePicture):
            found[picture] = y
    return found


def _sequence(picture: Picture, row: int, column: int, data: str) -> str:
    """Return what draws an image at a cell, and leaves the cursor where it was."""
    size = f"width={picture.columns};height={picture.lines};preserveAspectRatio=1"
    return f"{START}{row + 1};{column + 1}H\x1b]1337;File=inline=1;{size}:{data}\a\x1b8"
