"""Writes to a session and collects what it wrote."""

from ferrule.builtin.exec_command.definition import ExecObservation
from ferrule.builtin.exec_command.impl import SessionOutput, asked_budget, exec_observation
from ferrule.builtin.write_stdin.definition import WriteStdinAction
from ferrule.process.interactive import StdinClosed, clamp_yield
from ferrule.process.sessions import UnknownSession
from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.events import TerminalInteraction
from ferrule.tools.commands import Commands
from ferrule.tools.context import ToolContext
from ferrule.tools.executor import ToolExecutor

DEFAULT_YIELD_MS = 250
"""The wait that models were trained with; a call without input waits longer (see `clamp_yield`)."""


class WriteStdinExecutor(ToolExecutor[WriteStdinAction, ExecObservation]):
    """Finds sessions in the session table. What may run was decided when the session was started."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands

    async def __call__(self, action: WriteStdinAction, ctx: ToolContext) -> ExecObservation:
        """Write, wait, and return what came. An interrupted wait leaves the session as it is."""
        number, chars = int(action.session_id), action.chars or ""
        if number != action.session_id:
            raise RespondToModel(f"write_stdin failed: a session ID is a whole number, not {action.session_id:g}")
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
