"""What a session needs of the door through which it was opened."""

from collections.abc import Callable
from typing import Protocol

from ferrule.protocol.events import Event
from ferrule.tools.events import ToolEvent

Listener = Callable[[Event | ToolEvent], None]


class FrontEnd(Protocol):
    """Shows events. `can_answer`: somebody will answer questions by `Session.decide`."""

    @property
    def can_answer(self) -> bool: ...

    def on_event(self, event: Event | ToolEvent) -> None:
        """Show an event. Called in the session's loop; must not block."""
        ...
