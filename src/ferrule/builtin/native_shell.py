"""The native `shell` with environment `local`: items of type `shell_call`, which we run."""

from collections.abc import Sequence

from pydantic import ConfigDict

from ferrule.builtin.execution import (
    DEFAULT_TIMEOUT_MS,
    CommandExecutor,
    Finished,
    Number,
    limit_ms,
    run_command,
    script_command,
    working_directory,
)
from ferrule.builtin.interception import apply_intercepted
from ferrule.builtin.output_text import OutputText, output_text, with_notes
from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.items import ShellCallOutput, ShellCommandOutput, ShellExit, ShellTimeout
from ferrule.protocol.payload import ToolOutput
from ferrule.protocol.specs import ShellTool, ToolSpec
from ferrule.protocol.truncation import OutputBudget, byte_length
from ferrule.tools.action import Action, Observation
from ferrule.tools.context import ToolContext
from ferrule.tools.conversation import ConversationState
from ferrule.tools.definition import ToolDefinition
from ferrule.tools.registry import NATIVE


class NativeShellAction(Action):
    """Scripts, run one after the other. `timeout_ms` is for each; `max_output_length` is in characters, for each."""

    commands: tuple[str, ...]
    timeout_ms: Number | None = None
    max_output_length: int | None = None


class NativeShellObservation(Observation):
    """The output and the outcome of each script."""

    model_config = ConfigDict(frozen=True, arbitrary_types_allowed=True)

    results: tuple[ShellCommandOutput, ...]
    max_output_length: int | None = None

    @property
    def success(self) -> bool:
        return all(isinstance(one.outcome, ShellExit) and one.outcome.exit_code == 0 for one in self.results)

    def to_output(self, call_id: str) -> ToolOutput:
        """Return the answer as its own kind of item."""
        item = ShellCallOutput(call_id=call_id, output=self.results, max_output_length=self.max_output_length)
        return ToolOutput(item, self.success, True)


NOT_RUN = "not run: an earlier command of this call was refused or could not start"


class NativeShellExecutor(CommandExecutor[NativeShellAction, NativeShellObservation]):
    """Runs each script in a shell of its own."""

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
    """Return the budget of one script's two outputs together; a character takes at least one byte."""
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


class NativeShellTool(ToolDefinition[NativeShellAction, NativeShellObservation]):
    """Serves `shell_call` items."""

    starts_processes = True
    command_field = "commands"

    @classmethod
    def create(cls, conv_state: ConversationState, **params: object) -> "Sequence[NativeShellTool]":
        """Create one for the conversation."""
        executor = NativeShellExecutor(conv_state.commands)
        return [cls(executor=executor, name="shell", namespace=NATIVE, parallel=True)]

    @property
    def spec(self) -> ToolSpec:
        """See `ToolDefinition.spec`."""
        return ShellTool()


TOOL = NativeShellTool
