"""What `write_stdin` takes; it answers like `exec_command`."""

from collections.abc import Sequence

from pydantic import Field

from ferrule.builtin.exec_command.definition import MAX_OUTPUT_TOKENS, YIELD_TIME, ExecObservation
from ferrule.builtin.execution import Number
from ferrule.builtin.write_stdin import DESCRIPTION
from ferrule.tools.conversation import ConversationState
from ferrule.tools.definition import Action, ToolDefinition


class WriteStdinAction(Action):
    """Input for a session, and how long to wait for what comes of it."""

    session_id: Number = Field(description="The session ID that exec_command returned")
    chars: str | None = Field(default=None, description="The input to send; empty to wait for more output")
    yield_time_ms: Number | None = Field(default=None, description=YIELD_TIME)
    max_output_tokens: Number | None = Field(default=None, description=MAX_OUTPUT_TOKENS)


class WriteStdinTool(ToolDefinition[WriteStdinAction, ExecObservation]):
    """Writes to sessions, one call after the other."""

    @classmethod
    def create(cls, conv_state: ConversationState, **params: object) -> "Sequence[WriteStdinTool]":
        """The one instance."""
        from ferrule.builtin.write_stdin.impl import WriteStdinExecutor

        return [cls(description=DESCRIPTION, executor=WriteStdinExecutor(conv_state.commands), parallel=False)]
