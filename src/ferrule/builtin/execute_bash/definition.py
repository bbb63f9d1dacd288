"""What `execute_bash` takes and answers."""

from collections.abc import Sequence

from pydantic import Field

from ferrule.builtin.execute_bash import DESCRIPTION
from ferrule.builtin.hints import RUNS
from ferrule.tools.conversation import ConversationState
from ferrule.tools.definition import Action, Observation, ToolDefinition

STILL_RUNNING = -1
"""The exit code of a command that has not ended, as models know it."""


class ExecuteBashAction(Action):
    """A command, or input for the one that runs."""

    command: str = Field(
        description='The command. With `is_input`: text for the running one, empty to wait for more, or a key as "C-c"'
    )
    is_input: bool = Field(default=False, description="Whether `command` is input for the command that runs")
    timeout: float | None = Field(
        default=None, description="The most seconds to wait for the end; by default 30 seconds without any output"
    )
    reset: bool = Field(default=False, description="Start a new shell before the command; all state is lost")


class ExecuteBashObservation(Observation):
    """What was written. `exit_code` is `STILL_RUNNING` while it runs; `note` says what can be done then."""

    bounded = True

    output: str
    exit_code: int
    working_dir: str
    note: str = ""

    @property
    def to_llm_content(self) -> str:
        lines = [self.output] if self.output else []
        if self.note:
            lines.append(f"[{self.note}]")
        if self.exit_code != STILL_RUNNING:
            lines.append(f"[Current working directory: {self.working_dir}]")
            lines.append(f"[Command finished with exit code {self.exit_code}]")
        return "\n".join(lines)

    @property
    def success(self) -> bool:
        return self.exit_code in (0, STILL_RUNNING)


class ExecuteBashTool(ToolDefinition[ExecuteBashAction, ExecuteBashObservation]):
    """Runs commands through `ctx.run`."""

    @classmethod
    def create(cls, conv_state: ConversationState, **params: object) -> "Sequence[ExecuteBashTool]":
        """The one instance, with a shell of its own."""
        from ferrule.builtin.execute_bash.impl import ExecuteBashExecutor

        executor = ExecuteBashExecutor(conv_state.commands, conv_state.cwd)
        return [cls(description=DESCRIPTION, executor=executor, annotations=RUNS)]
