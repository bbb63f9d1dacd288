"""Runs a command line."""

from collections.abc import Mapping

from ferrule.builtin.execution import (
    DEFAULT_TIMEOUT_MS,
    Finished,
    argv_command,
    limit_ms,
    run_command,
    working_directory,
)
from ferrule.builtin.interception import apply_intercepted
from ferrule.builtin.output_text import output_text, with_notes
from ferrule.builtin.shell.definition import ShellAction, ShellObservation
from ferrule.protocol.payload import ToolOutput
from ferrule.protocol.truncation import OutputBudget
from ferrule.tools.commands import Commands
from ferrule.tools.context import ToolContext
from ferrule.tools.executor import ToolExecutor


class ShellExecutor(ToolExecutor[ShellAction, ShellObservation]):
    """Has no state of its own."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands

    async def __call__(self, action: ShellAction, ctx: ToolContext) -> ShellObservation | ToolOutput:
        """Run the command line and say what came of it."""
        return await run_argv(self._commands, action, ctx)


async def run_argv(
    commands: Commands, action: ShellAction, ctx: ToolContext, changes: Mapping[str, str] = {}
) -> ShellObservation | ToolOutput:
    """Run a command line with `changes` to its environment."""
    cwd = working_directory(ctx, action.workdir)
    limit = limit_ms(action.timeout_ms) or DEFAULT_TIMEOUT_MS
    command = await argv_command(commands, action.command, cwd, changes)
    patched = await apply_intercepted(ctx, command.argv, cwd)
    if patched is not None:
        return patched
    finished = await run_command(ctx, command, limit, action, changes)
    return _observation(finished, limit, ctx.output_budget)


def _observation(finished: Finished, limit_ms: int, budget: OutputBudget) -> ShellObservation:
    completed = finished.completed
    output = output_text(completed.output)
    notes = output.notes(completed.notice, finished.notice)
    return ShellObservation(
        exit_code=completed.exit_code,
        duration_seconds=completed.duration,
        output=with_notes(output.cut_with_warning(budget), notes, limit_ms if completed.timed_out else None),
    )
