"""A dialog's frame: it takes the composer's place, draws rows, and ends with one answer."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
from textual import events
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from ferrule.doors.terminal.strips import BOLD, CHOSEN, PLAIN, row
from ferrule.rendering.safe import plain
from ferrule.rendering.width import width_of

if TYPE_CHECKING:
    from ferrule.tools.questions import Answer

PAUSE = 0.7
"""Seconds without a key after which somebody who was writing has seen the dialog."""
SMALL_ROWS = 16
"""Rows that a dialog takes before it leaves any to the conversation."""


class Rows(msgspec.Struct, frozen=True):
    """What a dialog shows."""

    strips: list[Strip]


class TextEntry:
    """A line of text that is typed into a dialog. It may begin with one of others."""

    def __init__(self, done: Callable[[str], None], text: str = "", *, secret: bool = False) -> None:
        self.text = plain(text)
        self._done = done
        self._secret = secret

    def on_key(self, key: str, character: str | None) -> None:
        """Take a key."""
        if key == "enter":
            self._done(self.text.strip())
        elif key == "backspace":
            self.text = self.text[:-1]
        elif key == "ctrl+u":
            self.text = ""
        elif character is not None and character.isprintable():
            self.text += character

    def paste(self, text: str) -> None:
        """Take a pasted text, in one line."""
        self.text += plain(text)

    def rows(self, title: str, width: int) -> list[Strip]:
        """Return a row that says what to type, and one with what was typed: its end, where it is long."""
        end = self.text[-width:]
        shown = "•" * len(end) if self._secret else end
        while width_of(shown) > width - 4:
            shown = shown[1:]
        return [row((title[:width], BOLD)), row(("› ", BOLD), (shown, PLAIN), (" ", CHOSEN))]


class Panel(Widget, can_focus=True):
    """A dialog. `give` answers the question with the id `request_id`."""

    DEFAULT_CSS = """
    Panel {
        height: auto;
        padding: 0 1;
    }
    """

    class Answered(Message):
        """The user has answered."""

        def __init__(self, request_id: str, answer: "Answer") -> None:
            super().__init__()
            self.request_id, self.answer = request_id, answer

    def __init__(self, request_id: str) -> None:
        super().__init__()
        self.request_id = request_id
        self.entry: TextEntry | None = None
        self.waiting = 1
        """How many questions wait, with this one."""
        self._given = False
        self._deaf_until = 0.0
        self._rows: list[Strip] = []
        self._most = 1
        """Rows that it may take."""

    @property
    def is_typed(self) -> bool:
        """Whether keys are words here."""
        return self.entry is not None

    def compose_rows(self, width: int, height: int) -> Rows:
        """Return what is shown, in at most `height` rows."""
        raise NotImplementedError

    def on_choice_key(self, key: str, character: str | None) -> bool:
        """Take a key while nothing is typed; return False for one that means nothing here."""
        raise NotImplementedError

    def wait_for_pause(self) -> None:
        """Take no key before the user, who was writing, has stopped for a moment: it was not meant as an answer."""
        self._deaf_until = time.monotonic() + PAUSE

    def give(self, answer: "Answer") -> None:
        """Answer, once."""
        if not self._given:
            self._given = True
            self.post_message(self.Answered(self.request_id, answer))

    def ask_words(self, done: Callable[[str], None], text: str = "", *, secret: bool = False) -> None:
        """Let a line be typed."""
        self.entry = TextEntry(done, text, secret=secret)
        self.refresh(layout=True)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Take as many rows as the question needs; in a small window all but the status line, in a larger one no more
        than leaves a part of the conversation in sight."""
        most = max(viewport.height - 1, 1)
        self._most = min(most, max(most * 2 // 3, SMALL_ROWS))
        self._rows = self.compose_rows(width, self._most).strips
        return len(self._rows)

    def on_key(self, event: events.Key) -> None:
        """Pass a key on to what is typed, or chosen."""
        if event.key == "escape" and self.entry is None:
            return  # the application interrupts
        if time.monotonic() < self._deaf_until:
            self.wait_for_pause()
            event.stop()
            return
        if event.key == "escape":
            self.entry = None
        elif self.entry is not None:
            if event.key.startswith("ctrl+") and event.key != "ctrl+u":
                return
            self.entry.on_key(event.key, event.character)
        elif not self.on_choice_key(event.key, event.character):
            return
        event.stop()
        event.prevent_default()
        self.refresh(layout=True)

    def on_paste(self, event: events.Paste) -> None:
        """Take a pasted text where one is typed; else it answers nothing."""
        event.stop()
        if self.entry is not None:
            self.entry.paste(event.text)
            self.refresh(layout=True)

    def _composed(self, width: int) -> list[Strip]:
        """Return the rows as they were measured; of less height, only if it has come to less."""
        rows = self.compose_rows(width, self._most).strips
        return rows if len(rows) <= self.size.height else self.compose_rows(width, self.size.height).strips

    def render_line(self, y: int) -> Strip:
        """Return a row."""
        width = self.size.width
        if y == 0:
            self._rows = self._composed(width)
        strip = self._rows[y] if y < len(self._rows) else Strip([])
        return strip.adjust_cell_length(width).apply_style(self.rich_style)
