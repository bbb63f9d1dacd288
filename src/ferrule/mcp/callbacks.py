"""Callbacks of a connection: questions to the user, and the progress of a call."""

from collections.abc import Awaitable, Callable

from ferrule.protocol.events import ElicitationRequest
from ferrule.tools.questions import Answer

Ask = Callable[[ElicitationRequest], Awaitable[Answer]]
Progress = Callable[[float, float | None, str], None]
"""Takes the progress, the total (None: unknown) and a message."""
