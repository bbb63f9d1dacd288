"""The line at the bottom: what happens now, and in which session."""

import time
from typing import TYPE_CHECKING

from textual.strip import Strip
from textual.widget import Widget

from ferrule.doors.terminal.strips import BOLD, DIM, row
from ferrule.rendering.safe import plain
from ferrule.rendering.width import cut, width_of
from ferrule.rendering.words import duration

if TYPE_CHECKING:
    from ferrule.protocol.settings import Settings


class StatusLine(Widget):
    """One row. `doing` is what happens now; empty: nothing."""

    DEFAULT_CSS = """
    StatusLine { height: 1; padding: 0 1; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._doing = ""
        self._since = 0.0
        self.hint = ""
        """A word to the user that stands there until the next key."""
        self.about = ""

    @property
    def doing(self) -> str:
        """What happens now."""
        return self._doing

    def do(self, what: str) -> None:
        """Say what happens now, and count its time from here."""
        what = plain(what)
        if what != self._doing:
            self._doing, self._since = what, time.monotonic()
            self.refresh()

    def say(self, hint: str) -> None:
        """Show a word to the user."""
        if hint != self.hint:
            self.hint = hint
            self.refresh()

    def render_line(self, y: int) -> Strip:
        """Return the row."""
        width = self.size.width
        lasted = f" · {duration(time.monotonic() - self._since)}" if self._doing else ""
        left = cut(self.hint or f"{cut(self._doing, width - len(lasted))}{lasted}", width)
        room = width - width_of(left) - 2
        right = cut(plain(self.about), room) if room > 8 else ""
        gap = " " * (width - width_of(left) - width_of(right))
        return row((left, BOLD), (gap, DIM), (right, DIM)).adjust_cell_length(width).apply_style(self.rich_style)


def about(settings: "Settings", model: str, tokens: int) -> str:
    """Return what stands at the right: the model, the rights, what was used."""
    mode = str(settings.sandbox_policy.__struct_config__.tag)
    used = f" · {tokens:,} tokens" if tokens else ""
    return f"{model} · {mode} · {settings.approval_policy}{used}"
