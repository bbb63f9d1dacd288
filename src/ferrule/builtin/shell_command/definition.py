"""What `shell_command` takes and answers."""

from collections.abc import Sequence

from pydantic import AliasChoices, Field

from ferrule.builtin.shell_command import DESCRIPTION
from ferrule.tools.annotations import ToolAnnotations
from ferrule.tools.conversation import ConversationState
from ferrule.tools.definition import Action, Observation, ToolDefinition


class ShellCommandAction(Action):
    """A script and how to run it."""

    command: str = Field(description="The shell script to execute in the user's default shell")
    workdir: str | None = Field(default=None, description="The working directory to execute the command in")
    timeout_ms: int | None = Field(
        default=None,
        description="The timeout for the command in milliseconds",
        validation_alias=AliasChoices("timeout_ms", "timeout"),
    )
    login: bool | None = Field(
        default=None, description="Whether to run the shell with login shell semantics. Defaults to true."
    )


class ShellCommandObservation(Observation):
    """The text that the model reads, in the format that it was trained on, and the exit code."""

    bounded = True

    text: str
    exit_code: int

    @property
    def to_llm_content(self) -> str:
        return self.text

    @property
    def success(self) -> bool:
        return self.exit_code == 0


class ShellCommandTool(ToolDefinition[ShellCommandAction, ShellCommandObservation]):
    """Runs scripts through `ctx.run`."""

    @classmethod
    def create(cls, conv_state: ConversationState, **params: object) -> "Sequence[ShellCommandTool]":
        """The one instance."""
        from ferrule.builtin.shell_command.impl import ShellCommandExecutor

        executor = ShellCommandExecutor(conv_state.commands)
        return [cls(description=DESCRIPTION, executor=executor, annotations=ToolAnnotations(), parallel=True)]
