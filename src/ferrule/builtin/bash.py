"""`bash`: Claude's bash, kept between calls."""

from pydantic import Field

from ferrule.builtin.output_text import output_text, with_notes
from ferrule.builtin.shell_keeper import KeptShellExecutor, KeptShellTool
from ferrule.process.run import TIMEOUT_EXIT_CODE
from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.payload import NO_OUTPUT
from ferrule.tools.action import Action, Observation
from ferrule.tools.context import ToolContext

DESCRIPTION = """\
Run a command in a bash that is kept between calls: variables, functions and the working directory live on. It \
cannot ask for input. A command that runs longer than two minutes is ended: start servers in the background with \
their output in a file. `restart` starts a new shell."""


class BashAction(Action):
    """A command, or a new shell."""

    command: str | None = Field(default=None, description="The command; required unless `restart` is true")
    restart: bool = Field(default=False, description="Start a new shell; all state is lost")


class BashObservation(Observation):
    """The output, and the exit code unless it is 0."""

    bounded = True

    output: str
    exit_code: int = 0

    @property
    def to_llm_content(self) -> str:
        if self.exit_code == 0:
            return self.output or NO_OUTPUT
        return f"{self.output}\n[exit code {self.exit_code}]".lstrip("\n")

    @property
    def success(self) -> bool:
        return self.exit_code == 0


LIMIT_SECONDS = 120.0
"""The tool has no parameter for this, and no way to wait for a command that still runs."""


class BashExecutor(KeptShellExecutor[BashAction, BashObservation]):
    """Interrupts a command that takes longer than the limit."""

    patience = LIMIT_SECONDS

    def starts(self, action: BashAction) -> bool:
        """See `KeptShellExecutor.starts`."""
        return bool(action.command)

    async def __call__(self, action: BashAction, ctx: ToolContext) -> BashObservation:
        """Run a command in the kept shell. Raises `RespondToModel`."""
        if action.restart and not action.command:
            await self._keeper.close()
            return BashObservation(output="tool has been restarted.")
        if not action.command or not action.command.strip():
            raise RespondToModel("no command was given: `command` is required unless `restart` is true")
        step = await self._keeper.run(ctx, action.command, None, self.patience, anew=action.restart)
        note = "the shell ended with the command; the next one runs in a new shell" if step.ended else None
        if step.exit_code is None:
            await self._keeper.stop()
            note = f"the command was interrupted after {self.patience:g} seconds; run long ones in the background"
        output = output_text(step.output)
        shown = with_notes(output.cut(ctx.output_budget), output.notes(step.notice, note)).rstrip("\n")
        return BashObservation(output=shown, exit_code=TIMEOUT_EXIT_CODE if step.exit_code is None else step.exit_code)


class BashTool(KeptShellTool[BashAction, BashObservation]):
    """Runs commands through `ctx.run`."""

    text = DESCRIPTION
    executor_type = BashExecutor


TOOL = BashTool
