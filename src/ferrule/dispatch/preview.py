"""What a call would ask before it begins, and a call that begins with the answer."""

from collections.abc import Awaitable
from contextlib import suppress
from typing import TypeVar

import msgspec

from ferrule.dispatch.dispatcher import ContextMaker, Dispatcher
from ferrule.dispatch.orchestrator import Orchestrator
from ferrule.protocol.errors import Fatal
from ferrule.protocol.events import Event, ExecApproval
from ferrule.protocol.items import ItemView
from ferrule.protocol.payload import ToolOutput
from ferrule.tools.context import Access, Attempt, ToolCaller, ToolContext, ToolHost, ToolInvocation
from ferrule.tools.effects import Effect
from ferrule.tools.events import ToolEvent
from ferrule.tools.files import Files
from ferrule.tools.handler import ToolHandler
from ferrule.tools.questions import Answer, Decision, NoAnswer, Question
from ferrule.tools.registry import ToolRegistry

T = TypeVar("T")

ANOTHER = "what was approved is not what the call would do now: {}"


class _Seen(Fatal):
    """A call that is only looked at has come to its first act. `Fatal`, since no tool may go on after it."""


class _LookingHost:
    """The host of a call that is only looked at."""

    observed = False

    def __init__(self, orchestrator: Orchestrator) -> None:
        self._orchestrator = orchestrator
        self.question: ExecApproval | None = None

    async def run(self, ctx: ToolContext, effect: Effect, attempt: Attempt[T]) -> T:
        """Note what would be asked. Raises `_Seen`."""
        self.question = await self._orchestrator.question_of(ctx, effect)
        raise _Seen

    async def ask(self, ctx: ToolContext, question: Question) -> Answer:
        """Raise `_Seen`: it is no approval of what the call does."""
        raise _Seen

    def emit(self, event: Event | ToolEvent) -> None:
        """Do nothing: nothing happens."""


class Preview(Dispatcher):
    """A dispatcher on whose path a call goes only as far as its first act: nothing runs, no hook, no event."""

    __slots__ = ("_host",)

    def __init__(
        self, registry: ToolRegistry, context: ContextMaker, orchestrator: Orchestrator, *, asks_for_risk: bool
    ) -> None:
        host = self._host = _LookingHost(orchestrator)

        def looking(invocation: ToolInvocation, caller: ToolCaller) -> ToolContext:
            ctx = context(invocation, caller)
            files = Files(ctx.files.layer, ctx.cwd, buffers=ctx.files.buffers)
            return msgspec.structs.replace(ctx, host=host, files=files)

        super().__init__(registry, looking, asks_for_risk=asks_for_risk)

    async def question_of(self, view: ItemView) -> ExecApproval | None:
        """Return what the call in an item asks before its first act; None if that is nothing or cannot be told."""
        routed = self.route(view)
        assert routed is not None
        with suppress(_Seen):
            await self.run(routed)
        return self._host.question

    def _begin(self, handler: ToolHandler, invocation: ToolInvocation, ctx: ToolContext) -> Awaitable[ToolOutput]:
        return _look(handler, invocation, ctx)


async def _look(handler: ToolHandler, invocation: ToolInvocation, ctx: ToolContext) -> ToolOutput:
    if handler.asks_first(invocation):
        await handler.handle(invocation, ctx)
    elif not handler.acts_through_context and await handler.is_mutating(invocation):
        await ctx.host.run(ctx, handler.whole_effect(invocation), _nothing)
    raise _Seen


async def _nothing(access: Access) -> None:
    """Do nothing: it is not reached."""


class DecidedHost:
    """The host of a call whose first question was answered before it began: `decision`, for what was `shown`.

    It is the answer to exactly that, and to nothing after the first attempt has begun.
    """

    __slots__ = ("_decision", "_host", "_shown")

    def __init__(self, host: ToolHost, decision: Decision, shown: ExecApproval | None) -> None:
        """`shown` None: it is the answer to whatever the call asks first."""
        self._host = host
        self._decision: Decision | None = decision
        self._shown = shown

    @property
    def observed(self) -> bool:
        """As the session's."""
        return self._host.observed

    async def run(self, ctx: ToolContext, effect: Effect, attempt: Attempt[T]) -> T:
        """See `ToolContext.run`."""

        def begun(access: Access) -> Awaitable[T]:
            self._decision = None
            return attempt(access)

        return await self._host.run(ctx, effect, begun)

    async def ask(self, ctx: ToolContext, question: Question) -> Answer:
        """See `ToolContext.ask`."""
        decision = self._decision
        if decision is None or not isinstance(question, ExecApproval):
            return await self._host.ask(ctx, question)
        self._decision = None
        if self._shown is None or self._shown.fingerprint == question.fingerprint:
            return decision
        answer = await self._host.ask(ctx, question)
        return NoAnswer(ANOTHER.format(question.text)) if isinstance(answer, NoAnswer) else answer

    def emit(self, event: Event | ToolEvent) -> None:
        """See `ToolContext.emit`."""
        self._host.emit(event)
