"""What `shell_command` takes and answers."""

from collections.abc import Sequence

from pydantic import AliasChoices, Field

from ferrule.builtin.execution import (
    LOGIN,
    TIMEOUT,
    WORKDIR,
    AskedPermissions,
    CommandTool,
    Justification,
    Number,
    OldEscalation,
    PrefixRule,
)
from ferrule.builtin.shell_command import describe
from ferrule.tools.conversation import ConversationState
from ferrule.tools.definition import Action, Observation


class ShellCommandAction(Action):
    """A script and how to run it."""

    command: str = Field(
        description="The script, for the user's default shell",
        validation_alias=AliasChoices("command", "cmd"),
    )
    workdir: str | None = Field(default=None, description=WORKDIR)
    timeout_ms: Number | None = Field(
        default=None,
        description=TIMEOUT,
        validation_alias=AliasChoices("timeout_ms", "timeout"),
    )
    login: bool | None = Field(default=None, description=LOGIN)
    sandbox_permissions: AskedPermissions = None
    justification: Justification = None
    prefix_rule: PrefixRule = None
    with_escalated_permissions: OldEscalation = None


class ShellCommandObservation(Observation):
    """How the script ended and what it wrote. `total_lines` is told where lines were cut out of the output."""

    bounded = True

    exit_code: int
    wall_seconds: float
    output: str
    total_lines: int | None = None

    @property
    def to_llm_content(self) -> str:
        lines = [f"Exit code: {self.exit_code}", f"Wall time: {round(self.wall_seconds, 1):g} seconds"]
        if self.total_lines is not None:
            lines.append(f"Total output lines: {self.total_lines}")
        return "\n".join([*lines, "Output:", self.output])

    @property
    def success(self) -> bool:
        return self.exit_code == 0


class ShellCommandTool(CommandTool[ShellCommandAction, ShellCommandObservation]):
    """Runs scripts through `ctx.run`."""

    @classmethod
    def create(cls, conv_state: ConversationState, **params: object) -> "Sequence[ShellCommandTool]":
        """The one instance."""
        from ferrule.builtin.shell_command.impl import ShellCommandExecutor

        return [cls(conv_state, describe(conv_state), ShellCommandExecutor(conv_state.commands))]
