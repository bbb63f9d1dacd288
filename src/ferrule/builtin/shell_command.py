"""`shell_command`: run a shell script and return its output."""

from typing import Annotated

from pydantic import AliasChoices, BeforeValidator, Field

from ferrule.builtin.command_forms import as_script
from ferrule.builtin.execution import (
    DEFAULT_TIMEOUT_MS,
    LOGIN,
    TIMEOUT,
    WORKDIR,
    AskedPermissions,
    CommandExecutor,
    CommandTool,
    Finished,
    Justification,
    Number,
    OldEscalation,
    PrefixRule,
    limit_ms,
    run_command,
    script_command,
    working_directory,
)
from ferrule.builtin.interception import apply_intercepted
from ferrule.builtin.output_text import output_text, with_notes
from ferrule.protocol.payload import ToolOutput
from ferrule.protocol.truncation import OutputBudget, count_lines
from ferrule.tools.action import Action, Observation
from ferrule.tools.context import ToolContext

DESCRIPTION = """\
Run a shell script and return its exit code and output (stdout and stderr in order of arrival). Set `workdir` instead \
of using `cd`. The script cannot ask for input. Background processes should not outlive it.

{sandbox}"""
POWERSHELL_DESCRIPTION = """\
Run a PowerShell script and return its exit code and output, for example `Get-ChildItem -Force` or \
`Select-String -Path src\\*.py -Pattern TODO`. Set `workdir` instead of using `Set-Location`. The script cannot ask \
for input.

{sandbox}"""


class ShellCommandAction(Action):
    """A script and how to run it."""

    command: Annotated[str, BeforeValidator(as_script)] = Field(
        description="The script, for the user's default shell",
        validation_alias=AliasChoices("command", "cmd"),
    )
    workdir: str | None = Field(default=None, description=WORKDIR)
    timeout_ms: Number | None = Field(
        default=None,
        description=TIMEOUT,
        validation_alias=AliasChoices("timeout_ms", "timeout"),
    )
    login: bool | None = Field(default=None, description=LOGIN)
    sandbox_permissions: AskedPermissions = None
    justification: Justification = None
    prefix_rule: PrefixRule = None
    with_escalated_permissions: OldEscalation = None


class ShellCommandObservation(Observation):
    """The outcome and the output of the script. `total_lines` is set if lines were cut from the output."""

    bounded = True

    exit_code: int
    wall_seconds: float
    output: str
    total_lines: int | None = None

    @property
    def to_llm_content(self) -> str:
        lines = [f"Exit code: {self.exit_code}", f"Wall time: {round(self.wall_seconds, 1):g} seconds"]
        if self.total_lines is not None:
            lines.append(f"Total output lines: {self.total_lines}")
        return "\n".join([*lines, "Output:", self.output])

    @property
    def success(self) -> bool:
        return self.exit_code == 0


class ShellCommandExecutor(CommandExecutor[ShellCommandAction, ShellCommandObservation]):
    """Runs each script in a shell of its own."""

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


class ShellCommandTool(CommandTool[ShellCommandAction, ShellCommandObservation]):
    """Runs scripts through `ctx.run`."""

    template = DESCRIPTION
    windows_template = POWERSHELL_DESCRIPTION
    command_field = "command"
    executor_type = ShellCommandExecutor


TOOL = ShellCommandTool
