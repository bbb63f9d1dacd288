"""The list of suggestions above the composer."""

from collections.abc import Sequence

from textual.geometry import Size
from textual.strip import Strip
from textual.widget import Widget

from ferrule.doors.terminal.completion import MOST, Suggestion
from ferrule.doors.terminal.strips import CHOSEN, DIM, PLAIN, row
from ferrule.rendering.safe import plain
from ferrule.rendering.width import cut


class Suggestions(Widget):
    """Rows to choose from; none while there is nothing to suggest."""

    DEFAULT_CSS = """
    Suggestions { height: auto; padding: 0 1; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._all: Sequence[Suggestion] = ()
        self._chosen = 0

    @property
    def chosen(self) -> Suggestion | None:
        """What is chosen; None while nothing is shown."""
        return self._all[self._chosen] if self._all else None

    def show(self, suggestions: Sequence[Suggestion]) -> None:
        """Show these."""
        if suggestions != self._all:
            self._all, self._chosen = suggestions, 0
            self.refresh(layout=True)

    def move(self, by: int) -> None:
        """Choose another one."""
        self._chosen = (self._chosen + by) % len(self._all)
        self.refresh()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Take a row for each, a third of the screen at most."""
        return min(len(self._all), MOST, max(viewport.height // 3, 1))

    def render_line(self, y: int) -> Strip:
        """Return a row."""
        height, width = max(self.size.height, 1), self.size.width
        place = max(0, min(self._chosen - height // 2, len(self._all) - height)) + y
        if place >= len(self._all):
            return Strip.blank(width, self.rich_style)
        one = self._all[place]
        name = cut(plain(one.text), width)
        about = cut(f"  {plain(one.about)}", width - len(name)) if one.about else ""
        strip = row((name, CHOSEN if place == self._chosen else PLAIN), (about, DIM))
        return strip.adjust_cell_length(width).apply_style(self.rich_style)
