"""The only path of a tool call: look up, check, hooks, validate, gate, execute, bound the output."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Protocol, cast

import msgspec

from ferrule.dispatch.gate import Gate
from ferrule.dispatch.hooks import ToolHooks
from ferrule.dispatch.router import RoutedCall, mcp_payload, route, unanswerable
from ferrule.dispatch.security import pop_risk
from ferrule.protocol.content import ContentPart, InputText
from ferrule.protocol.errors import Fatal, RespondToModel, UnknownTool
from ferrule.protocol.items import ItemView, ResponseInputItem
from ferrule.protocol.json_text import JsonValue, encodable
from ferrule.protocol.payload import ABORTED, CustomPayload, ToolKind, ToolOutput
from ferrule.protocol.truncation import OutputBudget, truncate_items, truncate_text
from ferrule.tools.context import ToolCaller, ToolContext, ToolInvocation
from ferrule.tools.events import AgentErrorEvent
from ferrule.tools.handler import ToolHandler
from ferrule.tools.registry import ToolRegistry

log = logging.getLogger("ferrule.tools")


class ContextMaker(Protocol):
    """A factory of the context for one call."""

    def __call__(self, invocation: ToolInvocation, caller: ToolCaller) -> ToolContext: ...


class Dispatcher:
    """A dispatcher for the calls of one sampling step, against one registry."""

    __slots__ = (
        "asks_for_risk",
        "context",
        "gate",
        "hooks",
        "on_interrupt",
        "refuse",
        "registry",
        "session_id",
        "turn_id",
    )

    def __init__(
        self,
        registry: ToolRegistry,
        context: ContextMaker,
        *,
        gate: Gate | None = None,
        hooks: ToolHooks | None = None,
        session_id: str = "",
        turn_id: str = "",
        asks_for_risk: bool = False,
        on_interrupt: Callable[[], object] | None = None,
        refuse: Callable[[], str | None] | None = None,
    ) -> None:
        """`refuse` counts a call that a tool makes and says why it may not."""
        self.registry = registry
        self.context = context
        self.gate = gate or Gate()
        self.hooks = hooks
        self.session_id = session_id
        self.turn_id = turn_id
        self.asks_for_risk = asks_for_risk
        self.on_interrupt = on_interrupt
        self.refuse = refuse

    def refusal(self) -> str | None:
        """See `ToolCaller`."""
        return None if self.refuse is None else self.refuse()

    def interrupt(self) -> None:
        """End the running turn, if there is one."""
        if self.on_interrupt is not None:
            self.on_interrupt()

    def route(self, view: ItemView) -> RoutedCall | None:
        """Return the call in an item, or None if it has none."""
        return route(view, self.registry, self.session_id, self.turn_id)

    async def respond(
        self, view: ItemView, on_words: Callable[[str], object] | None = None
    ) -> ResponseInputItem | None:
        """Return the item that answers a call, or None if `view` is not a call. `on_words` gets what the item has no
        room for. Raises `Fatal` only."""
        routed = route(view, self.registry, self.session_id, self.turn_id)
        if routed is None:
            return None
        output = await self.run(routed)
        if on_words is not None and (words := output.unsaid(routed.invocation.payload)) is not None:
            on_words(words)
        return output.into_response(routed.invocation.call_id, routed.invocation.payload)

    async def run(self, routed: RoutedCall) -> ToolOutput:
        """Run a routed call and return its answer; the model reads every failure except `Fatal`."""
        invocation, handler = routed.invocation, routed.handler
        if self.asks_for_risk:
            invocation = pop_risk(invocation)
        ctx = self.context(invocation, self)
        shared = routed.parallel
        if not self.gate.try_enter(shared):
            await self.gate.enter(shared)
        try:
            if handler is None:
                raise unanswerable(routed)
            output = await self._handle(handler, invocation, ctx)
        except BaseException as error:  # noqa: BLE001 - sorted by _refusal, which raises what is not the tool's
            text = encodable(str(_refusal(error, invocation)))
            output = ToolOutput(text, False) if handler is None else handler.failed(invocation, text)
            if ctx.host.observed:
                ctx.emit(AgentErrorEvent(invocation.call_id, invocation.tool_name, output.text))
        finally:
            self.gate.leave(shared)
        return output if output.bounded else bound(output, ctx.output_budget)

    async def call(self, invocation: ToolInvocation, ctx: ToolContext) -> ToolOutput:
        """Call one tool from another, under the gate that the parent call holds. Raises `RespondToModel`."""
        found = self.registry.find(invocation.tool_name, invocation.namespace)
        if found is None:
            raise UnknownTool(f"unsupported call: {invocation.tool_name}")
        payload = invocation.payload
        if found.handler.kind is ToolKind.MCP:
            payload = mcp_payload(found, payload)
        invocation = msgspec.structs.replace(
            invocation,
            tool_name=found.name,
            namespace=found.namespace,
            payload=payload,
            session_id=self.session_id,
            turn_id=invocation.turn_id or self.turn_id,
        )
        try:
            return await self._handle(found.handler, invocation, ctx)
        except BaseException as error:
            raise _refusal(error, invocation) from error

    def _handle(self, handler: ToolHandler, invocation: ToolInvocation, ctx: ToolContext) -> Awaitable[ToolOutput]:
        if not handler.matches_kind(invocation.payload):
            raise RespondToModel(_wrong_kind(invocation))
        if self.hooks is not None:
            return _hooked(self._begin, handler, invocation, ctx, self.hooks)
        return self._begin(handler, invocation, ctx)

    def _begin(self, handler: ToolHandler, invocation: ToolInvocation, ctx: ToolContext) -> Awaitable[ToolOutput]:
        """Run a call that nothing has blocked. A preview only looks at it."""
        return handler.handle(invocation, ctx) if handler.acts_through_context else _approved(handler, invocation, ctx)


Begin = Callable[[ToolHandler, ToolInvocation, ToolContext], Awaitable[ToolOutput]]


async def _hooked(
    begin: Begin, handler: ToolHandler, invocation: ToolInvocation, ctx: ToolContext, hooks: ToolHooks
) -> ToolOutput:
    tool_input = handler.tool_input(invocation.payload) if invocation.decoded is msgspec.UNSET else invocation.decoded
    before = await hooks.before(invocation, tool_input, ctx)
    if before.block is not None:
        raise RespondToModel(before.block)
    if before.tool_input is not msgspec.UNSET:
        tool_input = before.tool_input
        invocation = _with_input(invocation, tool_input)
    output = await begin(handler, invocation, ctx)
    if output.success is False:
        return output
    after = await hooks.after(invocation, tool_input, output, ctx)
    return output if after.output is None else output.replaced(after.output)


async def _approved(handler: ToolHandler, invocation: ToolInvocation, ctx: ToolContext) -> ToolOutput:
    """Run a handler that does not ask for approval itself: a call that may change things is approved before it runs."""
    if not await handler.is_mutating(invocation):
        return await handler.handle(invocation, ctx)
    return await ctx.run(handler.whole_effect(invocation), lambda access: handler.handle(invocation, ctx))


def _refusal(error: BaseException, invocation: ToolInvocation) -> RespondToModel:
    """Convert an error inside a tool to the model's text; its traceback goes to the log.

    Raises what is not the tool's own: `Fatal`, and the cancellation of the task that runs the call.
    """
    if isinstance(error, RespondToModel):
        return error
    if isinstance(error, Fatal | GeneratorExit):
        raise error
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise error
        return RespondToModel(ABORTED)
    log.error("tool %s raised", invocation.tool_name, exc_info=error)
    text = str(error)
    return RespondToModel(f"{invocation.tool_name} failed: {type(error).__name__}{': ' if text else ''}{text}")


def bound(output: ToolOutput, budget: OutputBudget) -> ToolOutput:
    """Cut the output to the budget; images stay."""
    body = output.body
    if isinstance(body, str):
        if len(body) <= budget.limit >> 2:  # no character takes more than four bytes
            return output
        short = truncate_text(body, budget)
        return output if short is body else msgspec.structs.replace(output, body=short, bounded=True)
    if isinstance(body, tuple):
        cut = truncate_items([part.text if isinstance(part, InputText) else part for part in body], budget)
        parts = cast("tuple[ContentPart, ...]", tuple(InputText(p) if isinstance(p, str) else p for p in cut))
        return msgspec.structs.replace(output, body=parts, bounded=True)
    return output


def _wrong_kind(invocation: ToolInvocation) -> str:
    name = invocation.tool_name
    if isinstance(invocation.payload, CustomPayload):
        return f"{name} takes JSON arguments; call it as a function, not with freeform input"
    return f"{name} does not take calls of this kind; use it as its description says"


def _with_input(invocation: ToolInvocation, tool_input: JsonValue) -> ToolInvocation:
    """Return the invocation with a hook's input."""
    payload = invocation.payload
    if isinstance(payload, CustomPayload) and isinstance(tool_input, str):
        return msgspec.structs.replace(invocation, payload=CustomPayload(tool_input))
    return msgspec.structs.replace(invocation, decoded=tool_input)
