"""Where the user writes."""

from textual import events
from textual.message import Message
from textual.widgets import TextArea

NEW_LINE_KEYS = frozenset({"shift+enter", "ctrl+j", "alt+enter"})
"""Keys that break the line; terminals differ in which of them they can send."""


class Composer(TextArea):
    """Several lines of text; Enter sends them."""

    DEFAULT_CSS = """
    Composer {
        height: auto;
        max-height: 8;
        width: 1fr;
        border: none;
        padding: 0;
        background: transparent;
    }
    Composer:focus { border: none; }
    Composer .text-area--cursor-line { background: transparent; }
    """

    class Submitted(Message):
        """The user has sent a text."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(self, placeholder: str) -> None:
        super().__init__(compact=True, highlight_cursor_line=False, placeholder=placeholder)

    async def _on_key(self, event: events.Key) -> None:
        if event.key == "enter":
            event.stop()
            event.prevent_default()
            self.submit()
        elif event.key in NEW_LINE_KEYS:
            event.stop()
            event.prevent_default()
            self.insert("\n")
        else:
            await super()._on_key(event)

    def submit(self) -> None:
        """Send what is written, if it is more than blanks."""
        text = self.text.strip()
        if text:
            self.clear()
            self.post_message(self.Submitted(text))
