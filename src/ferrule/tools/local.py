"""What stands behind a context that belongs to no turn: for a tool that a program calls by itself."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeVar

import msgspec

from ferrule.protocol.events import Event
from ferrule.sync import background_loop, on_loop
from ferrule.tools.answering import Listener
from ferrule.tools.context import Attempt, ToolContext
from ferrule.tools.effects import Effect, McpEffect
from ferrule.tools.events import ToolEvent
from ferrule.tools.questions import Answer, NoAnswer, Question

T = TypeVar("T")

Ask = Callable[[Question], Awaitable[Answer]]


class Runner(Protocol):
    """Grants an effect its access and runs the attempt (the orchestrator)."""

    async def run(self, ctx: ToolContext, effect: Effect, attempt: Attempt[T]) -> T: ...


class LocalHost:
    """Stands behind a context that belongs to no turn. `ask` None: nobody can be asked, and who calls a tool of an MCP
    server approves of that."""

    def __init__(
        self,
        runner: Runner,
        emit: Listener | None,
        ask: Ask | None,
        close: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._runner = runner
        self._emit = emit
        self._ask = ask
        self._close = close
        self._owner: asyncio.AbstractEventLoop | None = None
        self.observed = emit is not None

    def emit(self, event: Event | ToolEvent) -> None:
        """Tell the program, if it listens."""
        if self._emit is not None:
            self._emit(event)

    async def run(self, ctx: ToolContext, effect: Effect, attempt: Attempt[T]) -> T:
        """See `ToolContext.run`."""
        if isinstance(effect, McpEffect) and self._ask is None:
            effect = msgspec.structs.replace(effect, approval="allow")
        return await self._runner.run(ctx, effect, attempt)

    async def ask(self, ctx: ToolContext, question: Question) -> Answer:
        """See `ToolContext.ask`."""
        return NoAnswer("nobody can answer questions here") if self._ask is None else await self._ask(question)

    async def on_own_loop(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do `work` on the loop that was first to. Raises `RuntimeError` where that is another one's and not the one
        behind plain code: to wait for a loop that waits itself would last for ever."""
        running = asyncio.get_running_loop()
        if self._owner is None or self._owner.is_closed():
            self._owner = running
        if self._owner is running:
            return await work()
        if self._owner is not background_loop():
            raise RuntimeError("this context belongs to another event loop; make a new one there")
        return await on_loop(self._owner, work)

    async def aclose(self) -> None:
        """End what commands left running."""
        if self._close is not None:
            await self.on_own_loop(self._closed)

    async def _closed(self) -> None:
        if self._close is not None:
            await self._close()
