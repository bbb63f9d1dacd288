"""The tools of one model, ready to run: for a session, or alone for somebody else's loop."""

import asyncio
import os
import re
import secrets
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

import msgspec

from ferrule.config import ferrule_home
from ferrule.dispatch.dispatcher import Dispatcher
from ferrule.dispatch.front_end import FrontEnd, answers_of, callbacks, policy_for, reporter
from ferrule.dispatch.gate import Gate
from ferrule.dispatch.hooks import ToolHooks
from ferrule.dispatch.host import SessionHost
from ferrule.dispatch.pending import PendingTable
from ferrule.dispatch.preview import DecidedHost, Preview
from ferrule.model.adapt import as_functions, searched_for
from ferrule.protocol.dynamic_tools import CALL_TIMEOUT, DynamicToolResponse, DynamicToolSpec
from ferrule.protocol.errors import UsageError
from ferrule.protocol.events import ExecApproval
from ferrule.protocol.items import ResponseItem
from ferrule.protocol.json_text import JsonValue
from ferrule.protocol.payload import FunctionPayload, ToolOutput
from ferrule.protocol.permissions import (
    AskForApproval,
    SandboxMode,
    SandboxPolicy,
    as_policy,
)
from ferrule.protocol.settings import Settings
from ferrule.protocol.specs import ConfiguredToolSpec, Wire, spec_name
from ferrule.session.brought import NativeSource, group_by_owner
from ferrule.session.hooks import SessionHooks
from ferrule.session.runtime import Runtime, build_runtime
from ferrule.session.sources import (
    BuiltinSource,
    DefinitionSource,
    SearchSource,
    ToolLike,
    function_form,
    tool_sources,
)
from ferrule.session.wire_calls import answer_items, item_of_call
from ferrule.sync import Closing, LoopBound, background_loop, on_loop, wait_for_coroutine
from ferrule.tools.answering import Approval, Approver, Listener, Questioned, decision_of
from ferrule.tools.children import Children
from ferrule.tools.context import ToolCaller, ToolContext, ToolHost, ToolInvocation
from ferrule.tools.files import Files
from ferrule.tools.local import LocalHost
from ferrule.tools.questions import DynamicCallback
from ferrule.tools.registry import LiveSource, ToolRegistry, ToolRegistryBuilder, ToolSource
from ferrule.tools.touched import Touched

if TYPE_CHECKING:
    from ferrule.tools.dynamic import DynamicSource


T = TypeVar("T")

CLOSED = "aborted: the toolset was closed"
ENDING_SECONDS = 5.0
"""How long the end of a toolset waits for its calls: a function of the user's may not end at all."""


class CallSpans(Protocol):
    """Makes the host and the dispatchers of a session that reports its calls; see `session.spans`."""

    def host(self, *parts: Any) -> SessionHost: ...
    def dispatcher(self, *parts: Any, **more: Any) -> Dispatcher: ...


class Toolset(LoopBound, Closing):
    """Tools with everything behind them: registry, dispatch, processes, files. Leaving it ends its children.

    `hooks` see calls and approvals. `property_names` matches the property names that the model's server takes; None:
    any. `warnings` are for the user, before the runtime's own.
    """

    def __init__(
        self,
        runtime: Runtime,
        sources: Sequence[ToolSource],
        *,
        front_end: FrontEnd | None = None,
        session_id: str = "",
        hooks: SessionHooks | None = None,
        property_names: re.Pattern[str] | None = None,
        warnings: Sequence[str] = (),
        borrowed: Sequence[ToolLike] = (),
        spans: CallSpans | None = None,
    ) -> None:
        """`borrowed` are tools of another session, which closes them."""
        self.conversation = runtime.conversation
        self.asks_for_risk = runtime.conversation.profile.security_risk
        self.workspace = runtime.workspace
        self.warnings = (*warnings, *runtime.warnings)
        self.pending = PendingTable()
        asks = hooks is not None and hooks.has("PermissionRequest")
        self._orchestrator = runtime.orchestrator(hooks.permission if hooks is not None and asks else None)
        self.host = (SessionHost if spans is None else spans.host)(self._orchestrator, front_end, self.pending)
        self._make_dispatcher = Dispatcher if spans is None else spans.dispatcher
        self._sources = list(sources)
        self._live: list[LiveSource] = []
        self._dynamic: DynamicSource | None = None
        self.property_names = property_names
        self._search = SearchSource(runtime.conversation)
        self.touched = Touched()
        self._files = Files(
            runtime.workspace.readable_files, runtime.conversation.cwd, self.touched, buffers=self.host.buffers
        )
        sees_calls = hooks is not None and (hooks.has("PreToolUse") or hooks.has("PostToolUse"))
        self._hooks: ToolHooks | None = hooks if sees_calls else None
        self.session_id = session_id
        self.children: Children | None = None
        """The sub-agents that tools may start, once the session has them."""
        self._borrowed = frozenset(map(id, borrowed))
        self._built: tuple[tuple[int, ...], list[ConfiguredToolSpec], ToolRegistry] | None = None
        self.warms_up = True
        self.gate = Gate()
        """Orders calls that come one by one from a framework."""
        self._in_plain_code = False
        self._closed = False
        self._running: set[asyncio.Task[ToolOutput]] = set()

    def _begin(self) -> None:
        """Raise `UsageError` if the toolset is closed, and `RuntimeError` if it belongs to another loop."""
        if self._closed:
            raise UsageError("this toolset is closed: call its tools inside of its `with`")
        self.bind_to_running_loop()

    def __enter__(self) -> Self:
        self._in_plain_code = True
        return self

    async def on_own_loop(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do `work` on the loop that the toolset belongs to: for frameworks, which run calls on loops of their own. One
        that plain code has opened (`with`) belongs to the loop behind plain code.

        Raises `RuntimeError` where it belongs to a third loop."""
        home = background_loop()
        elsewhere = asyncio.get_running_loop() is not home
        is_ours = getattr(self, "_owner", home if self._in_plain_code else None) is home
        return await (on_loop(home, work) if is_ours and elsewhere else work())

    @classmethod
    def for_model(
        cls,
        model: str,
        *,
        cwd: str | os.PathLike[str] = ".",
        sandbox: str | SandboxPolicy = SandboxMode.WORKSPACE_WRITE,
        approval_policy: str | None = None,
        tools: Sequence[ToolLike] | None = None,
        on_event: Listener | None = None,
        on_approval: Approver | None = None,
        on_question: Questioned | None = None,
    ) -> "Toolset":
        """Return the tools that `model` was trained on, or `tools`, working in `cwd`.

        `on_approval` decides what `approval_policy` asks (`on-request` with it, `never` without, unless given),
        `on_question` answers the rest, `on_event` sees everything.

        Raises `UsageError` for a tool, mode or directory that does not exist.
        """
        from ferrule.model.profiles import load_profiles, profile_files

        profiles = load_profiles(profile_files(ferrule_home()))
        profile = profiles.model(model)
        settings = Settings(
            cwd=os.path.realpath(cwd),
            home=ferrule_home(),
            approval_policy=policy_for(approval_policy, on_approval),
            sandbox_policy=as_policy(sandbox),
        )
        front_end = callbacks(on_event, on_approval, on_question)
        runtime = build_runtime(settings, profile, answers=answers_of(front_end), report=reporter(front_end))
        include = profiles.tool_set(profile.tools).include
        brought = group_by_owner(tools)
        sources = tool_sources(runtime.conversation, include, brought.own)
        toolset = cls(runtime, [*sources, NativeSource((*brought.remote, *brought.hosted))], front_end=front_end)
        if brought.dynamic:
            toolset.add_dynamic_tools(brought.dynamic)
        return toolset

    def add_source(self, source: ToolSource) -> None:
        """More tools, from the next request on."""
        self._sources.append(source)

    def add_dynamic_tools(
        self,
        specs: Iterable[DynamicToolSpec],
        callback: DynamicCallback | None = None,
        *,
        timeout: float = CALL_TIMEOUT,
    ) -> None:
        """Tools that the client runs, from the next request on: `callback`, or whoever answers the event by
        `answer_dynamic_tool` within `timeout` seconds. Raises `UsageError` for a name that is taken."""
        from ferrule.tools.dynamic import DynamicSource, ask_callback

        names = {name for _, name in self.current()[1]}
        if self._dynamic is None:
            self._dynamic = DynamicSource(self.property_names)
            self._sources.append(self._dynamic)
        ask = self.host.dynamic_call if callback is None else ask_callback(callback)
        self._dynamic.add(specs, ask, names.__contains__, timeout)

    def remove_dynamic_tools(self, names: Iterable[str]) -> None:
        """Take tools of the client away, from the next request on."""
        if self._dynamic is not None:
            self._dynamic.remove(names)

    def answer_dynamic_tool(self, call_id: str, response: DynamicToolResponse) -> None:
        """The client's answer to a call. Raises `UsageError` when it does not wait (any more)."""
        self.pending.decide(call_id, response)

    def add_live_source(self, source: LiveSource) -> None:
        """More tools, which come and go by themselves. The source is closed with the toolset."""
        self._live.append(source)
        self._sources.append(source)

    async def settled(self) -> None:
        """Give tools that are on their way a moment to arrive."""
        for source in self._live:
            await source.settled()

    def current(self) -> tuple[list[ConfiguredToolSpec], ToolRegistry]:
        """Return what the model sees and what runs now; the same objects until a source changes."""
        sources = (*self._sources, self._search)
        revisions = tuple(source.revision for source in sources)
        if self._built is None or self._built[0] != revisions:
            builder = ToolRegistryBuilder(asks_for_risk=self.asks_for_risk)
            for source in sources:
                source.register(builder)
            self._built = (revisions, *builder.build())
        return self._built[1], self._built[2]

    def recall(self, history: Iterable[ResponseItem]) -> None:
        """Go on with the tools that searches in a stored history have found."""
        self._search.recall(history)

    @property
    def examples(self) -> list[tuple[str, Sequence[str]]]:
        """Examples of use by tool name, for the model's instructions."""
        return [entry for source in self._sources if isinstance(source, DefinitionSource) for entry in source.examples]

    def specs(self, wire: Wire = "responses") -> list[dict[str, JsonValue]]:
        """Return the `tools` of a request to the Responses API, or with "chat" to Chat Completions, with "messages" to
        the Messages API."""
        specs = [entry.spec for entry in self.current()[0]]
        if wire == "responses":
            told = searched_for(specs)
            return [spec.to_responses() for spec in specs if spec not in told]
        forms = {spec_name(form): form for spec in specs for form in [function_form(spec, self.conversation)]}
        functions = (function for form in forms.values() for function in as_functions(form))
        sent = (function.to_chat() if wire == "chat" else function.to_messages() for function in functions)
        return [form for form in sent if form is not None]

    def dispatcher(
        self,
        turn_id: str = "",
        on_interrupt: Callable[[], object] | None = None,
        host: ToolHost | None = None,
        gate: Gate | None = None,
        refuse: Callable[[], str | None] | None = None,
    ) -> Dispatcher:
        """Make the dispatcher for the calls of one sampling step. `on_interrupt` ends the turn that they belong to;
        `host` stands behind them instead of the toolset's own, `gate` orders them with those of others, and `refuse`
        counts the calls that tools make."""
        return self._make_dispatcher(
            self.current()[1],
            self._context if host is None else partial(self._context, host=host),
            gate=gate,
            hooks=self._hooks,
            session_id=self.session_id,
            turn_id=turn_id,
            asks_for_risk=self.asks_for_risk,
            on_interrupt=on_interrupt,
            refuse=refuse,
        )

    def _context(self, invocation: ToolInvocation, caller: ToolCaller, host: ToolHost | None = None) -> ToolContext:
        state = self.conversation
        return ToolContext(
            invocation.call_id,
            state.cwd,
            state.permissions,
            state.output_budget,
            self._files,
            host or self.host,
            invocation.turn_id,
            invocation.risk,
            caller,
            self.children,
        )

    async def run(self, items: Iterable[object]) -> list[dict[str, JsonValue]]:
        """Run the calls among `items` and return their answers in call order.

        Takes the items of a Responses `output`, or the `tool_calls` of a Chat Completions message: dicts or the SDK's
        objects. Answers have the form of the wire that the call came over; words for which one has no room follow all
        of them as messages. What waits for nobody is passed over, as are calls whose answer is among the items, and
        what runs at the provider.
        """
        self._begin()
        return await answer_items(items, self.dispatcher())

    async def question_of(
        self, name: str, arguments: Mapping[str, JsonValue] | str = "{}", call_id: str | None = None
    ) -> ExecApproval | None:
        """Return what the user would be asked before this call begins; nothing of it runs, and nobody is asked.

        None if nothing is asked, or only in the midst of the call: there `on_approval` answers. Of the tools that act
        through their context it knows the questions only where `ToolHandler.asks_first`.
        """
        self._begin()
        await self.settled()
        if self.conversation.permissions.approval_policy is AskForApproval.NEVER:
            return None
        registry = self.current()[1]
        preview = Preview(registry, self._context, self._orchestrator, asks_for_risk=self.asks_for_risk)
        return await preview.question_of(item_of_call(name, arguments, call_id, registry))

    def answer_first(self) -> None:
        """Tell models that what their calls ask is answered: whoever runs them asks `question_of` before, and runs them
        with the `decision`."""
        conversation = self.conversation
        conversation.permissions = msgspec.structs.replace(conversation.permissions, answers_first=True)
        self._built = None

    async def call(
        self,
        name: str,
        arguments: Mapping[str, JsonValue] | str = "{}",
        call_id: str | None = None,
        *,
        decision: Approval | None = None,
        shown: ExecApproval | None = None,
        gate: Gate | None = None,
    ) -> ToolOutput:
        """Run one tool as a model's call of it would run: hooks, approvals, sandbox, and the output cut to the budget.

        `name` is that of a tool, or `NAMESPACE.NAME`. `arguments` are a mapping or its JSON; other text is the input of
        a freeform tool. Whatever goes wrong, an unknown name too, is told in the output, as the model would read it:
        `output.text`, with `output.success` false. Calls that are made at once run beside each other; those with one
        `gate` only where their tools allow it.

        `decision` answers what the call asks before it begins, if that is what was `shown` (from `question_of`; None:
        whatever it is). Everything else goes to `on_approval`, and is refused without one.

        Raises `Fatal`, `TypeError` for arguments that JSON cannot say, and `UsageError` once the toolset is closed.
        """
        self._begin()
        await self.settled()
        host = None if decision is None else DecidedHost(self.host, decision_of(decision), shown)
        dispatcher = self.dispatcher(host=host, gate=gate)
        routed = dispatcher.route(item_of_call(name, arguments, call_id, dispatcher.registry))
        assert routed is not None
        return await self._until_closed(dispatcher.run(routed))

    async def _until_closed(self, call: Coroutine[Any, Any, ToolOutput]) -> ToolOutput:
        """Run a call in a task of its own, which ends with the toolset."""
        task = asyncio.create_task(call)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        try:
            return await task
        except asyncio.CancelledError:
            waiting = asyncio.current_task()
            if not self._closed or (waiting is not None and waiting.cancelling()):
                raise
            return ToolOutput(CLOSED, False)

    async def _end_calls(self) -> None:
        """End the calls that run, but for the one that closes the toolset."""
        here, ending = asyncio.get_running_loop(), []
        for task in self._running - {asyncio.current_task()}:
            if task.get_loop() is here:
                task.cancel()
                ending.append(task)
            elif not task.get_loop().is_closed():
                task.get_loop().call_soon_threadsafe(task.cancel)
        if ending:
            await asyncio.wait(ending, timeout=ENDING_SECONDS)

    def call_sync(
        self,
        name: str,
        arguments: Mapping[str, JsonValue] | str = "{}",
        call_id: str | None = None,
        *,
        timeout: float | None = None,
    ) -> ToolOutput:
        """`call`, for plain code, also where a loop runs (a notebook). Raises `TimeoutError` after `timeout` seconds:
        the call is cancelled then."""
        return wait_for_coroutine(self.call(name, arguments, call_id), timeout)

    def local_context(self) -> ToolContext:
        """Make a context for a definition of this toolset that a program calls by itself."""
        emit, ask = (self.host.emit if self.host.observed else None), self.host.question
        host = LocalHost(self._orchestrator, emit, ask if self.host.can_ask else None)
        invocation = ToolInvocation(f"call_{secrets.token_hex(8)}", "", FunctionPayload("{}"))
        return msgspec.structs.replace(self._context(invocation, _ToolsOfNow(self)), host=host)

    def run_sync(self, items: Iterable[object]) -> list[dict[str, JsonValue]]:
        """`run`, for plain code."""
        return wait_for_coroutine(self.run(items))

    @property
    def runs_commands(self) -> bool:
        """True if one of the tools starts processes."""
        return any(isinstance(source, BuiltinSource) and source.runs_commands for source in self._sources)

    async def warm_up(self) -> None:
        """Let what commands need be made now: the sandbox and the login shell's environment. Without a tool that runs
        commands, and where most models call none, they are made when one is needed after all."""
        if not (self.warms_up and self.runs_commands):
            return
        await self.workspace.warm_up()
        self.conversation.commands.warm_up()

    async def aclose(self) -> None:
        """End the children and close the tools; each, even if another one fails to end."""
        self._closed = True
        self.pending.withdraw_all("the session ended")
        await self._end_calls()
        async with AsyncExitStack() as ends:
            ends.push_async_callback(self.workspace.close)
            ends.push_async_callback(self.conversation.aclose)
            for handler in self._built[2].loaded() if self._built is not None else ():
                if id(handler) not in self._borrowed:
                    ends.push_async_callback(handler.close)
            for source in self._live:
                ends.push_async_callback(source.aclose)


class _ToolsOfNow:
    """The caller of a context that outlives a turn: it calls the tools that exist at that moment."""

    def __init__(self, toolset: Toolset) -> None:
        self._toolset = toolset

    async def call(self, invocation: ToolInvocation, ctx: ToolContext) -> ToolOutput:
        """See `ToolContext.call`."""
        return await self._toolset.dispatcher().call(invocation, ctx)

    def refusal(self) -> str | None:
        """Return None: no turn, no limit."""
        return None

    def interrupt(self) -> None:
        """Do nothing: there is no turn to end."""
