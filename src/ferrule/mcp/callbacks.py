"""Whom a connection calls: the user who is asked, and whoever watches a call."""

from collections.abc import Awaitable, Callable

from ferrule.protocol.events import ElicitationRequest
from ferrule.tools.questions import Answer

Ask = Callable[[ElicitationRequest], Awaitable[Answer]]
Progress = Callable[[float, float | None, str], None]
"""Takes how far a call has come, of how much (None: unknown), and a message."""
