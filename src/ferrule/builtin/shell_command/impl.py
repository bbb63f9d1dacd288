"""Runs a script in the user's shell."""

from ferrule.builtin.shell_command.definition import ShellCommandAction, ShellCommandObservation
from ferrule.process.launcher import LaunchError
from ferrule.process.run import Completed, run
from ferrule.process.screen_text import visible_text
from ferrule.process.shell import shell_argv
from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.events import ExecCommandBegin, ExecCommandEnd, ExecCommandOutputDelta
from ferrule.protocol.truncation import OutputBudget, count_lines, truncate_text
from ferrule.tools.commands import Commands
from ferrule.tools.context import Access, ToolContext
from ferrule.tools.effects import CommandEffect
from ferrule.tools.executor import ToolExecutor

DEFAULT_TIMEOUT_MS = 10_000
"""The default that models were trained with."""


class ShellCommandExecutor(ToolExecutor[ShellCommandAction, ShellCommandObservation]):
    """Runs each script in a shell of its own."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands

    async def __call__(self, action: ShellCommandAction, ctx: ToolContext) -> ShellCommandObservation:
        """Run the script and format what came of it."""
        cwd = ctx.files.path(action.workdir or ctx.cwd)
        argv = shell_argv(self._commands.shell, action.command)
        environment = await self._commands.environment(login=action.login is not False)

        async def attempt(access: Access) -> Completed:
            ctx.emit(ExecCommandBegin(call_id=ctx.call_id, command=tuple(argv), cwd=cwd))
            completed = await run(
                access.launcher,
                argv,
                env=environment,
                cwd=cwd,
                timeout_ms=action.timeout_ms or DEFAULT_TIMEOUT_MS,
                on_output=lambda stream, chunk: ctx.emit(
                    ExecCommandOutputDelta(call_id=ctx.call_id, stream=stream, chunk=chunk)
                ),
            )
            ctx.emit(
                ExecCommandEnd(
                    call_id=ctx.call_id,
                    exit_code=completed.exit_code,
                    output=completed.output.text(),
                    duration_ms=round(completed.duration * 1000),
                    timed_out=completed.timed_out,
                )
            )
            return completed

        try:
            completed = await ctx.run(CommandEffect(argv=tuple(argv), cwd=cwd), attempt)
        except LaunchError as error:
            raise RespondToModel(str(error)) from error
        return ShellCommandObservation(
            text=_format(completed, action, ctx.output_budget), exit_code=completed.exit_code
        )


def _format(completed: Completed, action: ShellCommandAction, budget: OutputBudget) -> str:
    text = visible_text(completed.output.text())
    if completed.timed_out:
        limit = action.timeout_ms or DEFAULT_TIMEOUT_MS
        text = f"command timed out after {limit} milliseconds\n{text}"
    if completed.notice:
        text = f"{text}\n{completed.notice}"
    shown = truncate_text(text, budget)
    lines = [f"Exit code: {completed.exit_code}", f"Wall time: {round(completed.duration, 1):g} seconds"]
    if count_lines(shown) != count_lines(text):
        lines.append(f"Total output lines: {count_lines(text)}")
    return "\n".join([*lines, "Output:", shown])
