"""A context without a session: for a tool that a program calls by itself."""

import asyncio
import os
import secrets
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import msgspec

from ferrule.config import ferrule_home
from ferrule.execpolicy import DEFAULT_RULES, PolicyStore, load_rules, rule_files
from ferrule.process.plain import PlainLauncher
from ferrule.protocol.errors import UnknownTool, UsageError
from ferrule.protocol.events import Event
from ferrule.protocol.payload import ToolOutput
from ferrule.protocol.profiles import ModelProfile
from ferrule.sync import background_loop, wait_for_coroutine
from ferrule.tools.answering import Approver, Listener, Questioned, answer_of
from ferrule.tools.context import Attempt, Permissions, ToolContext, ToolInvocation
from ferrule.tools.effects import Effect, McpEffect
from ferrule.tools.events import ToolEvent
from ferrule.tools.files import Files
from ferrule.tools.orchestrator import Orchestrator
from ferrule.tools.questions import Answer, NoAnswer, Question
from ferrule.tools.workspace import Workspace

T = TypeVar("T")

Ask = Callable[[Question], Awaitable[Answer]]
Call = Callable[[ToolInvocation, ToolContext], Awaitable[ToolOutput]]


class LocalHost:
    """Stands behind a context that belongs to no turn. `ask` None: nobody can be asked, and who calls a tool of an MCP
    server approves of that. `call` reaches other tools, where there are any."""

    def __init__(
        self,
        orchestrator: Orchestrator,
        emit: Listener | None,
        ask: Ask | None,
        call: Call | None = None,
        close: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        self._orchestrator = orchestrator
        self._emit = emit
        self._ask = ask
        self._call = call
        self._close = close
        self._owner: asyncio.AbstractEventLoop | None = None
        self.observed = emit is not None

    def emit(self, event: Event | ToolEvent) -> None:
        """Tell the program, if it listens."""
        if self._emit is not None:
            self._emit(event)

    def interrupt(self) -> None:
        """There is no turn to end."""

    async def run(self, ctx: ToolContext, effect: Effect, attempt: Attempt[T]) -> T:
        """See `ToolContext.run`."""
        if isinstance(effect, McpEffect) and self._ask is None:
            effect = msgspec.structs.replace(effect, approval="allow")
        return await self._orchestrator.run(ctx, effect, attempt)

    async def ask(self, ctx: ToolContext, question: Question) -> Answer:
        """See `ToolContext.ask`."""
        return NoAnswer("nobody can answer questions here") if self._ask is None else await self._ask(question)

    async def call(self, ctx: ToolContext, invocation: ToolInvocation) -> ToolOutput:
        """See `ToolContext.call`."""
        if self._call is None:
            raise UnknownTool(f"unsupported call: {invocation.tool_name}; there are no other tools here")
        return await self._call(invocation, ctx)

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
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work(), self._owner))

    async def aclose(self) -> None:
        """End what commands left running."""
        if self._close is not None:
            await self.on_own_loop(self._closed)

    async def _closed(self) -> None:
        if self._close is not None:
            await self._close()


class LocalContext(ToolContext, frozen=True):
    """A context that somebody owns; see `ToolContext.local`."""

    async def aclose(self) -> None:
        """End what still runs."""
        if isinstance(self.host, LocalHost):
            await self.host.aclose()

    def close(self) -> None:
        """`aclose`, for plain code."""
        wait_for_coroutine(self.aclose())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_local(
    cwd: str,
    permissions: Permissions,
    on_event: Listener | None,
    on_approval: Approver | None,
    on_question: Questioned | None,
) -> LocalContext:
    """A context in `cwd`, an absolute path; starts nothing. Raises `UsageError` for a directory that is none."""
    if not os.path.isdir(cwd):
        raise UsageError(f"the working directory {cwd} does not exist")
    home = ferrule_home()
    plain = PlainLauncher()
    workspace = Workspace(permissions.sandbox_policy, cwd, home)
    policies = PolicyStore(load_rules(rule_files([Path(home)])), Path(home) / DEFAULT_RULES)

    async def ask(question: Question) -> Answer:
        question = msgspec.structs.replace(question, request_id=question.request_id or secrets.token_hex(8))
        return await answer_of(question, on_approval, on_question)

    asked = ask if on_approval is not None or on_question is not None else None
    host = LocalHost(Orchestrator(plain, workspace, policies), on_event, asked, close=workspace.close)
    files = Files(workspace.readable_files, cwd)
    budget = ModelProfile(name="").output_budget
    return LocalContext(f"call_{secrets.token_hex(8)}", cwd, permissions, budget, files, host)
