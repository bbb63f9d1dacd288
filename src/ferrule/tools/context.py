"""A handler's inputs: the invocation, and the context through which alone it acts."""

import os
from collections.abc import Awaitable, Callable, Sequence
from importlib import import_module
from typing import Protocol, TypeVar

import msgspec

from ferrule.process.launcher import Launcher
from ferrule.protocol.approvals import SecurityRisk
from ferrule.protocol.errors import RespondToModel, UnknownTool
from ferrule.protocol.events import Event
from ferrule.protocol.json_text import JsonValue
from ferrule.protocol.payload import ToolOutput, ToolPayload
from ferrule.protocol.permissions import AskForApproval, SandboxMode, SandboxPolicy, as_approval_policy, as_policy
from ferrule.protocol.truncation import OutputBudget
from ferrule.sync import Closing
from ferrule.tools.answering import Approver, Listener, Questioned
from ferrule.tools.children import NO_CHILDREN, Children
from ferrule.tools.effects import Effect
from ferrule.tools.events import ToolEvent
from ferrule.tools.files import Files
from ferrule.tools.questions import Answer, Question
from ferrule.tools.touched import touched_by

T = TypeVar("T")

OPENER = "ferrule.dispatch.local"
"""The module that opens contexts of their own, by name: it stands on the orchestrator, a floor above."""


class ToolInvocation(msgspec.Struct, frozen=True, gc=False):
    """One call of the model, routed. `decoded` holds the arguments once they had to be decoded (for a hook)."""

    call_id: str
    tool_name: str
    payload: ToolPayload
    namespace: str | None = None
    session_id: str = ""
    turn_id: str = ""
    decoded: JsonValue = msgspec.UNSET
    risk: SecurityRisk = SecurityRisk.UNKNOWN
    """The model's own estimate of the harm the call can do."""

    @property
    def key(self) -> tuple[str | None, str]:
        """The tool's key in the registry."""
        return (self.namespace, self.tool_name)


class Permissions(msgspec.Struct, frozen=True):
    """What the session may do without asking, and whether there is anybody to ask."""

    approval_policy: AskForApproval
    sandbox_policy: SandboxPolicy
    answers_approvals: bool = True
    answers_questions: bool = True
    answers_first: bool = False
    """What a call asks before it begins is answered, even if nobody can be asked while it runs."""


class Access(msgspec.Struct, frozen=True):
    """The means of one attempt, exactly as wide as what was approved. `sandboxed`: something confines them."""

    launcher: Launcher
    files: Files
    sandboxed: bool = False
    notice: str | None = None
    """Text for the model beside the output (the command may have run twice)."""
    remarks: Callable[[], Sequence[str]] = tuple
    """What the sandbox has refused since: for processes that outlive the attempt. Others tell it when they end."""


Attempt = Callable[[Access], Awaitable[T]]


class ToolHost(Protocol):
    """The implementation behind a context. `observed` false: nobody listens, so no events need be created."""

    @property
    def observed(self) -> bool: ...
    async def run(self, ctx: "ToolContext", effect: Effect, attempt: Attempt[T]) -> T: ...
    async def ask(self, ctx: "ToolContext", question: Question) -> Answer: ...
    def emit(self, event: Event | ToolEvent) -> None: ...


class ToolCaller(Protocol):
    """The dispatcher of a call, as the call sees it: it reaches the other tools, and its turn."""

    async def call(self, invocation: ToolInvocation, ctx: "ToolContext") -> ToolOutput: ...
    def refusal(self) -> str | None:
        """Count one more call of the turn; return why it is not run, if no more are allowed."""
        ...

    def interrupt(self) -> None: ...


class NoOtherTools:
    """The caller of a context that belongs to no turn."""

    async def call(self, invocation: ToolInvocation, ctx: "ToolContext") -> ToolOutput:
        """Refuse: there is nothing to call. Raises `UnknownTool`."""
        raise UnknownTool(f"unsupported call: {invocation.tool_name}; there are no other tools here")

    def refusal(self) -> str | None:
        """Return None: no turn, no limit."""
        return None

    def interrupt(self) -> None:
        """Do nothing: there is no turn to end."""


class ToolContext(msgspec.Struct, frozen=True):
    """A call's only way to act. `cwd` is absolute; `output_budget` limits what the model will read; `files` only
    reads: writing goes through `run`. `within`: the tools that wait for this call, made by their cells."""

    call_id: str
    cwd: str
    permissions: Permissions
    output_budget: OutputBudget
    files: Files
    host: ToolHost
    turn_id: str = ""
    risk: SecurityRisk = SecurityRisk.UNKNOWN
    caller: ToolCaller = NoOtherTools()
    own_children: Children | None = None
    within: frozenset[str] = frozenset()

    @staticmethod
    def local(
        cwd: str | os.PathLike[str] = ".",
        *,
        sandbox: str | SandboxPolicy = SandboxMode.WORKSPACE_WRITE,
        approval_policy: str = AskForApproval.NEVER,
        on_event: Listener | None = None,
        on_approval: Approver | None = None,
        on_question: Questioned | None = None,
    ) -> "LocalContext":
        """Return a context of its own, for a tool that is called in plain code: `with ToolContext.local() as ctx`.

        What a tool does is confined as in a session. To call a tool of an MCP server is to approve of it, unless
        `on_approval` is there to be asked. Close it, or leave its `with`: commands that still run end then. Raises
        `UsageError` for a directory, mode or policy that does not exist.
        """
        made: LocalContext = import_module(OPENER).open_local(
            os.path.realpath(cwd),
            Permissions(as_approval_policy(approval_policy), as_policy(sandbox)),
            on_event,
            on_approval,
            on_question,
        )
        return made

    async def run(self, effect: Effect, attempt: Attempt[T]) -> T:
        """Run `attempt` with the access that `effect` is granted: exec policy, approval, sandbox, and at most one
        retry.

        Raises `RespondToModel` if it is refused. `attempt` may run twice only after the user has agreed.
        """
        if self.files.touched is not None:
            self.files.touched.add(touched_by(effect))
        return await self.host.run(self, effect, attempt)

    async def seeing(self, *paths: str) -> "ToolContext":
        """Return this context with what the user's editor holds at these paths, where it holds anything."""
        files = await self.files.seeing(paths)
        return self if files is self.files else msgspec.structs.replace(self, files=files)

    @property
    def children(self) -> Children:
        """The session's sub-agents. Raises `RespondToModel` where there can be none."""
        if self.own_children is None:
            raise RespondToModel(NO_CHILDREN)
        return self.own_children

    async def ask(self, question: Question) -> Answer:
        """Ask the user and wait for the answer. Raises `RespondToModel` if nobody can answer."""
        return await self.host.ask(self, question)

    async def call(self, invocation: ToolInvocation) -> ToolOutput:
        """Call another tool under this call's gate."""
        return await self.caller.call(invocation, self)

    def emit(self, event: Event | ToolEvent) -> None:
        """Send an event to the front end."""
        self.host.emit(event)


class LocalContext(ToolContext, Closing, frozen=True, kw_only=True):
    """A context that somebody owns; see `ToolContext.local`. `end` ends what commands left running."""

    end: Callable[[], Awaitable[None]]

    async def aclose(self) -> None:
        """End what still runs."""
        await self.end()
