"""Sub-agents as the tools see them: a session starts them, and here is what it can be asked."""

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from ferrule.protocol.content import ContentPart
from ferrule.protocol.json_text import JsonValue
from ferrule.protocol.settings import ReasoningEffort

State = Literal["pending_init", "running", "interrupted", "shutdown", "not_found", "completed", "errored"]
NO_CHILDREN = "there are no sub-agents here: do the task yourself"


class ChildStatus(msgspec.Struct, frozen=True):
    """How a sub-agent is. `text` is its last message (completed), or what went wrong (errored)."""

    state: State
    text: str | None = None

    @property
    def is_final(self) -> bool:
        """Whether it does nothing until it is told to."""
        return self.state not in ("pending_init", "running")

    @property
    def as_json(self) -> JsonValue:
        """The status as the model reads it."""
        return {self.state: self.text} if self.state in ("completed", "errored") else self.state


class ChildOrder(msgspec.Struct, frozen=True, kw_only=True):
    """A sub-agent to start: its first message, its role, and what differs from the role. `fork`: it begins with the
    conversation so far."""

    content: tuple[ContentPart, ...]
    role: str | None = None
    instructions: str | None = None
    model: str | None = None
    reasoning_effort: ReasoningEffort | None = None
    fork: bool = False


class ChildInfo(msgspec.Struct, frozen=True):
    """A sub-agent. `agent_id` is the id of its session."""

    agent_id: str
    role: str | None
    status: ChildStatus


class Children(Protocol):
    """The sub-agents of a session. Every method raises `RespondToModel` for what cannot be done."""

    async def spawn(self, order: ChildOrder) -> str:
        """Start a sub-agent and return its id."""
        ...

    async def send(self, agent_id: str, content: tuple[ContentPart, ...], interrupt: bool = False) -> str:
        """Say something to a sub-agent: at once with `interrupt`, else at its next sampling. Return the message's
        id."""
        ...

    async def wait(self, agent_ids: Sequence[str], timeout: float) -> Mapping[str, ChildStatus]:
        """Return the final ones among these once there is one; none after `timeout` seconds."""
        ...

    async def resume(self, agent_id: str) -> ChildStatus:
        """Let a sub-agent go on that was interrupted, failed, or closed."""
        ...

    async def close(self, agent_id: str) -> ChildStatus:
        """End a sub-agent and return how it was."""
        ...

    def infos(self) -> Sequence[ChildInfo]:
        """Return the sub-agents, the oldest first."""
        ...
