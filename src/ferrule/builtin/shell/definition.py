"""What `shell` takes and answers."""

from collections.abc import Sequence

import msgspec
from pydantic import AliasChoices, Field

from ferrule.builtin.execution import (
    TIMEOUT,
    WORKDIR,
    AskedPermissions,
    CommandTool,
    Justification,
    Number,
    OldEscalation,
    PrefixRule,
)
from ferrule.builtin.shell import describe
from ferrule.tools.conversation import ConversationState
from ferrule.tools.definition import Action, Observation


class ShellAction(Action):
    """A command line and how to run it."""

    command: tuple[str, ...] = Field(
        description="The program and its arguments", validation_alias=AliasChoices("command", "cmd")
    )
    workdir: str | None = Field(default=None, description=WORKDIR)
    timeout_ms: Number | None = Field(
        default=None,
        description=TIMEOUT,
        validation_alias=AliasChoices("timeout_ms", "timeout"),
    )
    sandbox_permissions: AskedPermissions = None
    justification: Justification = None
    prefix_rule: PrefixRule = None
    with_escalated_permissions: OldEscalation = None


class _Metadata(msgspec.Struct):
    exit_code: int
    duration_seconds: float


class _Structured(msgspec.Struct):
    output: str
    metadata: _Metadata


class ShellObservation(Observation):
    """How the command ended and what it wrote; the model reads it as JSON."""

    bounded = True

    exit_code: int
    duration_seconds: float
    output: str

    @property
    def to_llm_content(self) -> str:
        metadata = _Metadata(self.exit_code, round(self.duration_seconds, 1))
        return msgspec.json.encode(_Structured(self.output, metadata)).decode()

    @property
    def success(self) -> bool:
        return self.exit_code == 0


class ShellTool(CommandTool[ShellAction, ShellObservation]):
    """Runs command lines through `ctx.run`."""

    @classmethod
    def create(cls, conv_state: ConversationState, **params: object) -> "Sequence[ShellTool]":
        """The one instance."""
        from ferrule.builtin.shell.impl import ShellExecutor

        return [cls(conv_state, describe(conv_state), ShellExecutor(conv_state.commands))]
