"""`shell`: run one command line and return its output."""

from collections.abc import Mapping
from typing import Annotated

import msgspec
from pydantic import AliasChoices, BeforeValidator, Field

from ferrule.builtin.command_forms import as_argv
from ferrule.builtin.execution import (
    DEFAULT_TIMEOUT_MS,
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
    argv_command,
    limit_ms,
    run_command,
    working_directory,
)
from ferrule.builtin.interception import apply_intercepted
from ferrule.builtin.output_text import output_text, with_notes
from ferrule.protocol.payload import ToolOutput
from ferrule.protocol.truncation import OutputBudget
from ferrule.tools.action import Action, Observation
from ferrule.tools.commands import Commands
from ferrule.tools.context import ToolContext

DESCRIPTION = """\
Run a command and return its output. `command` is the program and its arguments; no shell reads them, so put a script \
behind a shell: ["bash", "-lc", "..."]. Set `workdir` instead of using `cd`. The command cannot ask for input. \
Background processes should not outlive it.

{sandbox}"""
POWERSHELL_DESCRIPTION = """\
Run a command and return its output. `command` is the program and its arguments; put a script behind PowerShell: \
["powershell.exe", "-Command", "Get-ChildItem -Force"]. Set `workdir` instead of using `Set-Location`. The command \
cannot ask for input.

{sandbox}"""


class ShellAction(Action):
    """A command line and how to run it."""

    command: Annotated[tuple[str, ...], BeforeValidator(as_argv)] = Field(
        description="The program and its arguments", validation_alias=AliasChoices("command", "cmd")
    )
    workdir: str | None = Field(default=None, description=WORKDIR)
    timeout_ms: Number | None = Field(
        default=None,
        description=TIMEOUT,
        validation_alias=AliasChoices("timeout_ms", "timeout"),
    )
    sandbox_permissions: AskedPermissions = None
    justification: Justification = None
    prefix_rule: PrefixRule = None
    with_escalated_permissions: OldEscalation = None


class _Metadata(msgspec.Struct):
    exit_code: int
    duration_seconds: float


class _Structured(msgspec.Struct):
    output: str
    metadata: _Metadata


class ShellObservation(Observation):
    """The outcome and the output of the command; the model reads them as JSON."""

    bounded = True

    exit_code: int
    duration_seconds: float
    output: str

    @property
    def to_llm_content(self) -> str:
        metadata = _Metadata(self.exit_code, round(self.duration_seconds, 1))
        return msgspec.json.encode(_Structured(self.output, metadata)).decode()

    @property
    def success(self) -> bool:
        return self.exit_code == 0


class ShellExecutor(CommandExecutor[ShellAction, ShellObservation]):
    """Has no state of its own."""

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


class ShellTool(CommandTool[ShellAction, ShellObservation]):
    """Runs command lines through `ctx.run`."""

    template = DESCRIPTION
    windows_template = POWERSHELL_DESCRIPTION
    command_field = "command"
    executor_type = ShellExecutor


TOOL = ShellTool
