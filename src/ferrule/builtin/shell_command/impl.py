"""Runs a script in the user's shell."""

from ferrule.builtin.execution import (
    DEFAULT_TIMEOUT_MS,
    Finished,
    limit_ms,
    run_command,
    script_command,
    working_directory,
)
from ferrule.builtin.interception import apply_intercepted
from ferrule.builtin.output_text import output_text, with_notes
from ferrule.builtin.shell_command.definition import ShellCommandAction, ShellCommandObservation
from ferrule.protocol.payload import ToolOutput
from ferrule.protocol.truncation import OutputBudget, count_lines
from ferrule.tools.commands import Commands
from ferrule.tools.context import ToolContext
from ferrule.tools.executor import ToolExecutor


class ShellCommandExecutor(ToolExecutor[ShellCommandAction, ShellCommandObservation]):
    """Runs each script in a shell of its own."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands

    async def __call__(self, action: ShellCommandAction, ctx: ToolContext) -> ShellCommandObservation | ToolOutput:
        """Run the script and say what came of it."""
        cwd = working_directory(ctx, action.workdir)
        limit = limit_ms(action.timeout_ms) or DEFAULT_TIMEOUT_MS
        command = await script_command(self._commands, action.command, cwd, login=action.login is not False)
        patched = await apply_intercepted(ctx, command.argv, cwd)
        if patched is not None:
            return patched
        finished = await run_command(ctx, command, limit, action)
        return _observation(finished, limit, ctx.output_budget)


def _observation(finished: Finished, limit_ms: int, budget: OutputBudget) -> ShellCommandObservation:
    completed = finished.completed
    output = output_text(completed.output)
    shown = output.cut(budget)
    body = with_notes(shown, output.notes(completed.notice, finished.notice), limit_ms if completed.timed_out else None)
    return ShellCommandObservation(
        exit_code=completed.exit_code,
        wall_seconds=completed.duration,
        output=body,
        total_lines=output.lines if output.lines != count_lines(shown) else None,
    )
