"""Runs commands in the kept shell, each to its end."""

from ferrule.builtin.bash.definition import BashAction, BashObservation
from ferrule.builtin.output_text import output_text, with_notes
from ferrule.builtin.shell_keeper import ShellKeeper
from ferrule.process.run import TIMEOUT_EXIT_CODE
from ferrule.protocol.errors import RespondToModel
from ferrule.tools.commands import Commands
from ferrule.tools.context import ToolContext
from ferrule.tools.executor import ToolExecutor

LIMIT_SECONDS = 120.0
"""The tool has no parameter for it, and no call for what still runs."""


class BashExecutor(ToolExecutor[BashAction, BashObservation]):
    """Keeps the shell. A command that takes longer than `limit_seconds` is interrupted."""

    def __init__(self, commands: Commands, cwd: str, limit_seconds: float = LIMIT_SECONDS) -> None:
        self._keeper = ShellKeeper(commands, cwd)
        self._limit_seconds = limit_seconds

    async def __call__(self, action: BashAction, ctx: ToolContext) -> BashObservation:
        """What came of it. Raises `RespondToModel`."""
        if action.restart:
            await self._keeper.close()
            if not action.command:
                return BashObservation(output="tool has been restarted.")
        if not action.command or not action.command.strip():
            raise RespondToModel("no command was given: `command` is required unless `restart` is true")
        step = await self._keeper.run(ctx, action.command, None, self._limit_seconds)
        note = "the shell ended with the command; the next one runs in a new shell" if step.ended else None
        if step.exit_code is None:
            await self._keeper.stop()
            note = f"the command was interrupted after {self._limit_seconds:g} seconds; run long ones in the background"
        output = output_text(step.output)
        shown = with_notes(output.cut(ctx.output_budget), output.notes(step.notice, note)).rstrip("\n")
        return BashObservation(output=shown, exit_code=TIMEOUT_EXIT_CODE if step.exit_code is None else step.exit_code)

    async def close(self) -> None:
        """End the shell."""
        await self._keeper.close()
