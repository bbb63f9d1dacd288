"""The conversation on the screen: one view of rows over all cells, which draws no more than what is seen."""

import time
from bisect import bisect_right
from itertools import accumulate

from textual import events
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip

from ferrule.doors.terminal.cell import Cell
from ferrule.doors.terminal.images import Picture

FRAME = 1 / 30
"""Seconds between two updates: more often nobody sees."""
BUSY_SHARE = 2
"""An update that took long is followed by a pause of so many times that, so that keys are not held up."""
GUESSED_ROWS = 3
"""Rows of a cell that nobody has measured yet."""
SLICE = 0.008
"""Seconds at a time for measuring cells that are out of sight."""
CHANGED_SLICE = 0.02
"""Seconds at a time for those that have changed."""
KEPT_ROWS = 20_000
KEPT_CELLS = 300
"""Cells whose rows are kept; those of others are drawn again when they are seen."""


class Transcript(ScrollView, can_focus=False):
    """Cells, one below the other. It follows its end unless the user has scrolled up."""

    DEFAULT_CSS = """
    Transcript {
        height: 1fr;
        overflow-x: hidden;
        overflow-y: scroll;
        scrollbar-size-vertical: 1;
        scrollbar-background: ansi_default;
        scrollbar-background-hover: ansi_default;
        scrollbar-background-active: ansi_default;
        scrollbar-color: ansi_bright_black;
        scrollbar-color-hover: ansi_bright_black;
        scrollbar-color-active: ansi_bright_black;
        padding: 0 1;
    }
    """

    def __init__(self) -> None:
        super().__init__()
        self.cells: list[Cell] = []
        self._heights: list[int] = []
        self._widths: list[int] = []
        """The width at which each height was measured."""
        self._ends: list[int] = []
        self._changed: set[int] = set()
        self._drawn: dict[int, None] = {}
        self._unmeasured = 0
        """Cells before this one have not been measured at this width."""
        self.follows = True
        self._settling = False
        self._pause = FRAME
        self._image_rows: dict[int, tuple[Picture, int]] = {}

    def add(self, cell: Cell) -> None:
        """Show a new cell at the end."""
        cell.place = len(self.cells)
        self.cells.append(cell)
        self._heights.append(0)
        self._widths.append(0)
        self.touch(cell)

    def touch(self, cell: Cell) -> None:
        """Show soon that a cell has changed."""
        if 0 <= cell.place < len(self.cells) and self.cells[cell.place] is cell:
            self._changed.add(cell.place)
            self._soon()

    def clear(self) -> None:
        """Take all cells away."""
        self.cells, self._heights, self._widths, self._ends = [], [], [], []
        self._changed.clear()
        self._drawn.clear()
        self._unmeasured, self.follows = 0, True
        self._soon()

    def fill(self, cells: list[Cell]) -> None:
        """Show many cells at once, such as a stored conversation."""
        first = len(self.cells)
        for place, cell in enumerate(cells, first):
            cell.place = place
        self.cells += cells
        self._heights += [GUESSED_ROWS] * len(cells)
        self._widths += [0] * len(cells)
        self._unmeasured = len(self.cells)
        self._soon()

    def tick(self) -> None:
        """Show the time of what runs."""
        for place in self._running_in_sight():
            self.cells[place].forget()
            self._changed.add(place)
        if self._changed:
            self._soon()

    def toggle_all(self) -> bool:
        """Unfold every cell that is folded, or fold all again; return whether they are open now."""
        foldable = [cell for cell in self.cells if cell.is_foldable]
        opened = not all(cell.is_open for cell in foldable)
        for cell in foldable:
            if cell.is_open != opened:
                cell.toggle()
        self._widths = [0] * len(self.cells)
        self._unmeasured = len(self.cells)
        self._soon()
        return opened

    @property
    def image_rows(self) -> dict[int, tuple[Picture, int]]:
        """The rows of the screen on which a row of an image was shown last, and which."""
        return {y: image for y, image in self._image_rows.items() if y < self.size.height}

    @property
    def _columns(self) -> int:
        return self.scrollable_content_region.width

    def _soon(self) -> None:
        if not self._settling and self.is_attached:
            self._settling = True
            self.set_timer(self._pause, self._settle)

    def _settle(self) -> None:
        """Measure what has changed, and what is out of sight for a while; show the result."""
        started = time.monotonic()
        self._settling = False
        if not self.is_attached or self._columns <= 0:
            return
        anchor = self._anchor()
        self._add_up(min(self._measure_changed(started), self._measure_others(started)))
        self._show(anchor)
        self._let_go()
        self._pause = max(FRAME, BUSY_SHARE * (time.monotonic() - started))
        if self._unmeasured or self._changed:
            self._soon()

    def _measure_changed(self, started: float) -> int:
        """Measure what has changed: what is in sight and what is newest first, and while there is time; return the
        first that was."""
        seen = self._in_sight()
        changed = sorted((place for place in self._changed if place < len(self.cells)), reverse=True)
        self._changed = set(changed)
        first = len(self._ends)
        for place in sorted(changed, key=lambda place: place not in seen):
            self._measure(place)
            self._changed.discard(place)
            first = min(first, place)
            if time.monotonic() - started > CHANGED_SLICE:
                break
        return first

    def _measure(self, place: int) -> None:
        self._heights[place] = len(self.cells[place].rows(self._columns))
        self._widths[place] = self._columns
        self._drawn[place] = None

    def _measure_others(self, started: float) -> int:
        """Measure from the end towards the beginning while there is time; return the first that was."""
        first = len(self.cells)
        while self._unmeasured and time.monotonic() - started < SLICE:
            self._unmeasured -= 1
            place = self._unmeasured
            if self._widths[place] != self._columns:
                self._measure(place)
                first = place
                if len(self._drawn) > 2 * KEPT_CELLS:
                    self._let_go()
        return first

    def _add_up(self, first: int) -> None:
        del self._ends[first:]
        start = self._ends[-1] if self._ends else 0
        self._ends += [start + end for end in accumulate(self._heights[len(self._ends) :])]

    def _anchor(self) -> tuple[int, int]:
        """Return the cell at the top of the screen and how many of its rows are above it."""
        top = int(self.scroll_offset.y)
        place = bisect_right(self._ends, top)
        before = self._ends[place - 1] if place else 0
        return place, top - before

    def _show(self, anchor: tuple[int, int]) -> None:
        height = self._ends[-1] if self._ends else 0
        self.virtual_size = Size(self._columns, height)
        place, rows = anchor
        start = self._ends[place - 1] if 0 < place <= len(self._ends) else 0
        top = self.max_scroll_y if self.follows else min(start + rows, self.max_scroll_y)
        if top != self.scroll_offset.y:
            follows = self.follows
            self.scroll_to(y=top, animate=False, immediate=True)
            self.follows = follows
        self.refresh()

    def _let_go(self) -> None:
        """Drop the rows of cells that were drawn long ago and are out of sight."""
        cells = len(self._drawn)
        rows = sum(self._heights[place] for place in self._drawn)
        if cells <= KEPT_CELLS and rows <= KEPT_ROWS:
            return
        seen = set(self._in_sight())
        for place in [*self._drawn]:
            if cells <= KEPT_CELLS and rows <= KEPT_ROWS:
                break
            if place not in seen:
                del self._drawn[place]
                self.cells[place].forget()
                cells, rows = cells - 1, rows - self._heights[place]

    def _in_sight(self) -> range:
        top = int(self.scroll_offset.y)
        first = bisect_right(self._ends, top)
        return range(first, min(bisect_right(self._ends, top + self.size.height) + 1, len(self.cells)))

    def _running_in_sight(self) -> list[int]:
        return [place for place in self._in_sight() if self.cells[place].is_running]

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Follow the end once the user is there."""
        super().watch_scroll_y(old_value, new_value)
        self.follows = new_value >= self.max_scroll_y - 0.5

    def on_resize(self, event: events.Resize) -> None:
        """Lay out again what is seen; the rest is measured later."""
        self._unmeasured = len(self.cells)
        self._changed.update(self._in_sight())
        self._soon()

    def on_click(self, event: events.Click) -> None:
        """Unfold or fold the cell under the mouse."""
        place = bisect_right(self._ends, int(self.scroll_offset.y) + event.y)
        if place < len(self.cells) and self.cells[place].is_foldable:
            self.cells[place].toggle()
            self.touch(self.cells[place])

    def render_line(self, y: int) -> Strip:
        """Return a row of the screen."""
        width, line = self._columns, int(self.scroll_offset.y) + y
        self._image_rows.pop(y, None)
        place = bisect_right(self._ends, line)
        if place >= len(self._ends):
            return Strip.blank(width, self.rich_style)
        cell = self.cells[place]
        rows = cell.rows(width)
        self._drawn[place] = None
        if len(rows) != self._heights[place]:
            self._changed.add(place)
            self._soon()
        index = line - (self._ends[place - 1] if place else 0)
        strip = rows[index] if index < len(rows) else Strip([])
        if (image := cell.image_row(index)) is not None:
            self._image_rows[y] = image
            strip = image[0].on_screen(strip, image[1], y)
        return strip.adjust_cell_length(width).apply_style(self.rich_style)
