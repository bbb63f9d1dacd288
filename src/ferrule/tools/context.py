"""What a handler is given: the invocation, and the context through which alone it acts."""

from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

import msgspec

from ferrule.process.launcher import Launcher
from ferrule.protocol.approvals import SecurityRisk
from ferrule.protocol.events import Event
from ferrule.protocol.json_text import JsonValue
from ferrule.protocol.payload import ToolOutput, ToolPayload
from ferrule.protocol.permissions import AskForApproval, SandboxPolicy
from ferrule.protocol.truncation import OutputBudget
from ferrule.tools.effects import Effect
from ferrule.tools.events import ToolEvent
from ferrule.tools.files import Files
from ferrule.tools.questions import Answer, Question

T = TypeVar("T")


class ToolInvocation(msgspec.Struct, frozen=True):
    """One call of the model, routed. `decoded` holds the arguments once somebody had to decode them (a hook)."""

    call_id: str
    tool_name: str
    payload: ToolPayload
    namespace: str | None = None
    session_id: str = ""
    turn_id: str = ""
    decoded: JsonValue = msgspec.UNSET
    risk: SecurityRisk = SecurityRisk.UNKNOWN
    """The model's own estimate of the harm that the call can do."""

    @property
    def key(self) -> tuple[str | None, str]:
        """The tool's key in the registry."""
        return (self.namespace, self.tool_name)


class Permissions(msgspec.Struct, frozen=True):
    """What the session may do without asking."""

    approval_policy: AskForApproval
    sandbox_policy: SandboxPolicy


class Access(msgspec.Struct, frozen=True):
    """The means of one attempt, exactly as wide as what was approved. `sandboxed` says that something confines them."""

    launcher: Launcher
    files: Files
    sandboxed: bool = False
    notice: str | None = None
    """What the model must read beside the output (the command may have run twice)."""


Attempt = Callable[[Access], Awaitable[T]]


class ToolHost(Protocol):
    """What stands behind a context. `observed` false: nobody listens, events need not be made."""

    @property
    def observed(self) -> bool: ...
    async def run(self, ctx: "ToolContext", effect: Effect, attempt: Attempt[T]) -> T: ...
    async def ask(self, ctx: "ToolContext", question: Question) -> Answer: ...
    async def call(self, ctx: "ToolContext", invocation: ToolInvocation) -> ToolOutput: ...
    def emit(self, event: Event | ToolEvent) -> None: ...
    def interrupt(self) -> None: ...


class ToolContext(msgspec.Struct, frozen=True):
    """One call's only way to act. `cwd` is absolute; `output_budget` bounds what the model will read; `files` only
    reads: writing goes through `run`."""

    call_id: str
    cwd: str
    permissions: Permissions
    output_budget: OutputBudget
    files: Files
    host: ToolHost
    turn_id: str = ""
    risk: SecurityRisk = SecurityRisk.UNKNOWN

    async def run(self, effect: Effect, attempt: Attempt[T]) -> T:
        """Do `attempt` with the access that `effect` is granted: exec policy, approval, sandbox, and at most one retry.

        Raises `RespondToModel` where it is refused. `attempt` may run twice only after the user said so.
        """
        return await self.host.run(self, effect, attempt)

    async def ask(self, question: Question) -> Answer:
        """Ask the user and wait for the answer. Raises `RespondToModel` where nobody can answer."""
        return await self.host.ask(self, question)

    async def call(self, invocation: ToolInvocation) -> ToolOutput:
        """Call another tool under this call's gate."""
        return await self.host.call(self, invocation)

    def emit(self, event: Event | ToolEvent) -> None:
        """Tell the front end."""
        self.host.emit(event)
