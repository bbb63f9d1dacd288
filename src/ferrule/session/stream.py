"""The events of a turn, to iterate over while it runs."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

from ferrule.protocol.errors import UsageError
from ferrule.protocol.events import Event
from ferrule.session.result import TurnResult
from ferrule.tools.answering import Listener
from ferrule.tools.events import ToolEvent
from ferrule.tools.tasks import end_tasks


class EventStream:
    """`async for event in stream` runs the turn and gives its events as they happen; then `result` is there.

    Leaving the loop early ends the turn and its commands. The loop raises what the turn raises, and `UsageError`
    the second time.
    """

    def __init__(self, run: Callable[[Listener], Coroutine[Any, Any, TurnResult]]) -> None:
        self._run = run
        self._begun = False
        self.result: TurnResult | None = None

    async def __aiter__(self) -> AsyncIterator[Event | ToolEvent]:
        if self._begun:
            raise UsageError("a stream runs its turn once: call stream(prompt) again for another turn")
        self._begun = True
        events: asyncio.Queue[Event | ToolEvent | None] = asyncio.Queue()
        turn = asyncio.ensure_future(self._run(events.put_nowait))
        turn.add_done_callback(lambda _: events.put_nowait(None))
        try:
            while (event := await events.get()) is not None:
                yield event
            self.result = await turn
        finally:
            await end_tasks([turn])
