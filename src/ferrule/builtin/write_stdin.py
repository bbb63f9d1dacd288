"""`write_stdin`: give a running session input, and get its output."""

from collections.abc import Sequence

from pydantic import Field

from ferrule.builtin.exec_command import (
    MAX_OUTPUT_TOKENS,
    YIELD_TIME,
    ExecObservation,
    SessionOutput,
    asked_budget,
    exec_observation,
)
from ferrule.builtin.execution import CommandExecutor, Number
from ferrule.process.interactive import StdinClosed, clamp_yield
from ferrule.process.sessions import UnknownSession
from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.events import TerminalInteraction
from ferrule.tools.action import Action
from ferrule.tools.context import ToolContext
from ferrule.tools.conversation import ConversationState
from ferrule.tools.definition import ToolDefinition

DESCRIPTION = """\
Send input to a session that `exec_command` started, and return what it wrote since the last call. Empty `chars` only \
wait for more output, at least 5 seconds unless the process ends. "\\u0003" interrupts the process; "\\u0004" ends the \
input of one with a terminal."""


class WriteStdinAction(Action):
    """Input for a session, and how long to wait for what comes of it."""

    session_id: Number = Field(description="The session ID that exec_command returned")
    chars: str | None = Field(default=None, description="The input to send; empty to wait for more output")
    yield_time_ms: Number | None = Field(default=None, description=YIELD_TIME)
    max_output_tokens: Number | None = Field(default=None, description=MAX_OUTPUT_TOKENS)


DEFAULT_YIELD_MS = 250
"""The default wait that models were trained with; a call without input waits longer (see `clamp_yield`)."""


class WriteStdinExecutor(CommandExecutor[WriteStdinAction, ExecObservation]):
    """Finds sessions in the session table. What may run was decided when the session was started."""

    asks_first = False

    async def __call__(self, action: WriteStdinAction, ctx: ToolContext) -> ExecObservation:
        """Write, wait, and return what came. An interrupted wait leaves the session as it is."""
        number, chars = int(action.session_id), action.chars or ""
        if number != action.session_id:
            raise RespondToModel(f"write_stdin failed: a session ID must be a whole number, not {action.session_id:g}")
        asked = DEFAULT_YIELD_MS if action.yield_time_ms is None else action.yield_time_ms
        table = self._commands.sessions
        warning = None
        try:
            session = table.get(number)
            origin = self._commands.origins.get(session)
            if chars:
                call_id = ctx.call_id if origin is None else origin.call_id
                ctx.emit(TerminalInteraction(call_id=call_id, process_id=number, stdin=chars))
                warning = await session.write(chars.encode("utf-8", "replace"))
            collected = await table.collect(number, clamp_yield(int(asked), poll=not chars))
        except (UnknownSession, StdinClosed) as error:
            raise RespondToModel(f"write_stdin failed: {error}") from error
        shown = SessionOutput(collected, number, origin, (warning,))
        return exec_observation(shown, asked_budget(ctx, action.max_output_tokens))


class WriteStdinTool(ToolDefinition[WriteStdinAction, ExecObservation]):
    """Writes to sessions, one call after the other."""

    @classmethod
    def create(cls, conv_state: ConversationState, **params: object) -> "Sequence[WriteStdinTool]":
        """Create one for the conversation."""
        return [cls(description=DESCRIPTION, executor=WriteStdinExecutor(conv_state.commands), parallel=False)]


TOOL = WriteStdinTool
