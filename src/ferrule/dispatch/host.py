"""Behind every `ToolContext` of a session: the orchestrator, the pending table, the front end."""

import secrets
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

import msgspec

from ferrule.dispatch.front_end import Callbacks, FrontEnd, Pace
from ferrule.dispatch.orchestrator import Orchestrator
from ferrule.dispatch.pending import PendingTable
from ferrule.protocol.dynamic_tools import DynamicToolResponse
from ferrule.protocol.events import DynamicToolCallRequest, Event, ExecCommandEnd
from ferrule.tools.answering import Listener
from ferrule.tools.buffers import Buffers
from ferrule.tools.context import Attempt, ToolContext
from ferrule.tools.effects import Effect
from ferrule.tools.events import ToolEvent
from ferrule.tools.questions import Answer, NoAnswer, Question

T = TypeVar("T")

MAX_MISSED = 64
"""Ends of commands that wait for a listener: as many as there can be sessions."""


async def ask_user(question: Question, front_end: FrontEnd | None, pending: PendingTable) -> Answer:
    """Show the question, and wait until it is answered in the table."""
    if front_end is None or not front_end.can_answer:
        return NoAnswer("nobody can answer questions here")
    if not question.request_id:
        question = msgspec.structs.replace(question, request_id=secrets.token_hex(8))
    pending.open(question)
    front_end.on_event(question)
    by = front_end.answer(question) if isinstance(front_end, Callbacks) else None
    return await pending.answer(question.request_id, by=by)


class SessionHost:
    """The `ToolHost` of one session."""

    __slots__ = ("_front_end", "_listeners", "_missed", "_orchestrator", "buffers", "observed", "pace", "pending")

    def __init__(self, orchestrator: Orchestrator, front_end: FrontEnd | None, pending: PendingTable) -> None:
        self._orchestrator = orchestrator
        self._front_end = front_end
        self.pending = pending
        self.observed = front_end is not None
        self.pace: Pace | None = getattr(front_end, "pace", None)
        self.buffers: Buffers | None = getattr(front_end, "buffers", None)
        """See `FrontEnd`."""
        self._listeners: tuple[Listener, ...] = ()
        self._missed: deque[ExecCommandEnd] = deque(maxlen=MAX_MISSED)

    @contextmanager
    def listening(self, listener: Listener) -> Iterator[None]:
        """Let one more listener see the events, for a while."""
        self._listeners, self.observed = (*self._listeners, listener), True
        try:
            while self._missed:
                listener(self._missed.popleft())
            yield
        finally:
            self._listeners = tuple(known for known in self._listeners if known is not listener)
            self.observed = self._front_end is not None or bool(self._listeners)

    @property
    def can_ask(self) -> bool:
        """Whether somebody will answer questions."""
        return self._front_end is not None and self._front_end.can_answer

    def emit(self, event: Event | ToolEvent) -> None:
        """Tell the front end, if there is one, and whoever else listens.

        The end of a command waits for the next listener: between two turns that are iterated over, nobody listens.
        """
        if not self.observed and isinstance(event, ExecCommandEnd):
            self._missed.append(event)
        if self._front_end is not None:
            self._front_end.on_event(event)
        for listener in self._listeners:
            listener(event)

    async def run(self, ctx: ToolContext, effect: Effect, attempt: Attempt[T]) -> T:
        """See `ToolContext.run`."""
        return await self._orchestrator.run(ctx, effect, attempt)

    async def ask(self, ctx: ToolContext, question: Question) -> Answer:
        """See `ToolContext.ask`."""
        return await self.question(question)

    async def question(self, question: Question) -> Answer:
        """Ask the user, for a call or for whoever else has a question (an MCP server)."""
        return await ask_user(question, self._front_end, self.pending)

    async def dynamic_call(self, request: DynamicToolCallRequest, timeout: float) -> DynamicToolResponse | NoAnswer:
        """Ask the client that brought a tool to run it: the request is an event, the answer comes by its call id."""
        if self._front_end is None:
            return NoAnswer("no client listens")
        self.pending.open(request)
        self.emit(request)
        answer = await self.pending.answer(request.request_id, timeout)
        return answer if isinstance(answer, DynamicToolResponse | NoAnswer) else NoAnswer("it was answered wrongly")
