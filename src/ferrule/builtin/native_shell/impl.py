"""Runs the scripts of a `shell_call`."""

from ferrule.builtin.execution import (
    DEFAULT_TIMEOUT_MS,
    Finished,
    limit_ms,
    run_command,
    script_command,
    working_directory,
)
from ferrule.builtin.interception import apply_intercepted
from ferrule.builtin.native_shell.definition import NativeShellAction, NativeShellObservation
from ferrule.builtin.output_text import OutputText, output_text, with_notes
from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.items import ShellCommandOutput, ShellExit, ShellTimeout
from ferrule.protocol.truncation import OutputBudget, byte_length
from ferrule.tools.commands import Commands
from ferrule.tools.context import ToolContext
from ferrule.tools.executor import ToolExecutor

NOT_RUN = "not run: an earlier command of this call was refused or could not start"


class NativeShellExecutor(ToolExecutor[NativeShellAction, NativeShellObservation]):
    """Runs each script in a shell of its own."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands

    async def __call__(self, action: NativeShellAction, ctx: ToolContext) -> NativeShellObservation:
        """Run one script after the other; after one that was refused the rest are not run."""
        limit = limit_ms(action.timeout_ms) or DEFAULT_TIMEOUT_MS
        budget = _budget(ctx.output_budget, action)
        results: list[ShellCommandOutput] = []
        refused = False
        for script in action.commands:
            try:
                results.append(_failed(NOT_RUN) if refused else await self._run(script, limit, budget, ctx))
            except RespondToModel as error:
                refused = True
                results.append(_failed(str(error)))
        return NativeShellObservation(results=tuple(results), max_output_length=action.max_output_length)

    async def _run(self, script: str, limit: int, budget: OutputBudget, ctx: ToolContext) -> ShellCommandOutput:
        cwd = working_directory(ctx, None)
        command = await script_command(self._commands, script, cwd)
        patched = await apply_intercepted(ctx, command.argv, cwd)
        if patched is not None:
            return ShellCommandOutput(patched.text, "", ShellExit(exit_code=0 if patched.success else 1))
        return _result(await run_command(ctx, command, limit), limit, budget)


def _failed(reason: str) -> ShellCommandOutput:
    return ShellCommandOutput("", reason, ShellExit(exit_code=1))


def _budget(whole: OutputBudget, action: NativeShellAction) -> OutputBudget:
    """The budget of one script's two outputs together; a byte is at least no more than a character."""
    share = whole.bytes // max(len(action.commands), 1)
    asked = action.max_output_length
    return OutputBudget(share if asked is None else min(share, max(asked, 0)), "bytes")


def _result(finished: Finished, limit_ms: int, budget: OutputBudget) -> ShellCommandOutput:
    completed = finished.completed
    out, err = output_text(completed.stdout), output_text(completed.stderr)
    out_budget, err_budget = _shares(out, err, budget.limit)
    notes = err.notes(*out.notes(), completed.notice, finished.notice)
    outcome = ShellTimeout() if completed.timed_out else ShellExit(exit_code=completed.exit_code)
    return ShellCommandOutput(
        out.cut(out_budget),
        with_notes(err.cut(err_budget), notes, limit_ms if completed.timed_out else None),
        outcome,
    )


def _shares(out: OutputText, err: OutputText, limit: int) -> tuple[OutputBudget, OutputBudget]:
    """Half of the budget for each output, and what one does not need for the other."""
    half = limit // 2
    wanted_out, wanted_err = byte_length(out.text), byte_length(err.text)
    for_out = min(wanted_out, max(half, limit - wanted_err))
    return OutputBudget(for_out, "bytes"), OutputBudget(limit - for_out, "bytes")
