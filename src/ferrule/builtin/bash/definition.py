"""What `bash` takes and answers: the parameters that Anthropic documents for `bash_20250124`."""

from collections.abc import Sequence

from pydantic import Field

from ferrule.builtin.bash import DESCRIPTION
from ferrule.builtin.hints import RUNS
from ferrule.protocol.payload import NO_OUTPUT
from ferrule.tools.conversation import ConversationState
from ferrule.tools.definition import Action, Observation, ToolDefinition


class BashAction(Action):
    """A command, or a new shell."""

    command: str | None = Field(default=None, description="The command; required unless `restart` is true")
    restart: bool = Field(default=False, description="Start a new shell; all state is lost")


class BashObservation(Observation):
    """What was written, and the exit code where it is not 0."""

    bounded = True

    output: str
    exit_code: int = 0

    @property
    def to_llm_content(self) -> str:
        if self.exit_code == 0:
            return self.output or NO_OUTPUT
        return f"{self.output}\n[exit code {self.exit_code}]".lstrip("\n")

    @property
    def success(self) -> bool:
        return self.exit_code == 0


class BashTool(ToolDefinition[BashAction, BashObservation]):
    """Runs commands through `ctx.run`."""

    @classmethod
    def create(cls, conv_state: ConversationState, **params: object) -> "Sequence[BashTool]":
        """The one instance, with a shell of its own."""
        from ferrule.builtin.bash.impl import BashExecutor

        executor = BashExecutor(conv_state.commands, conv_state.cwd)
        return [cls(description=DESCRIPTION, executor=executor, annotations=RUNS)]
