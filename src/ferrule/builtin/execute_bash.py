"""`execute_bash`: a bash that is kept between calls."""

from pydantic import Field

from ferrule.builtin.kept_shell import Step
from ferrule.builtin.output_text import output_text, with_notes
from ferrule.builtin.shell_keeper import KeptShellExecutor, KeptShellTool
from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.events import TerminalInteraction
from ferrule.tools.action import Action, Observation
from ferrule.tools.context import ToolContext

DESCRIPTION = """\
Run a command in a bash that is kept between calls: variables, functions and the working directory live on.
* One command at a time; chain several with `&&` or `;`, or send a script of several lines.
* A command that writes nothing for 30 seconds, or runs longer than its `timeout`, goes on running, and you get what \
it wrote so far. Then call again with `is_input` true: an empty `command` waits for more, a text is sent to its \
input, "C-c" interrupts it.
* Start servers in the background with their output in a file: `python3 app.py > server.log 2>&1 &`.
* Do not use `set -e` or `exit`: they end the shell, and its state is lost. `reset` starts a new one."""
STILL_RUNNING = -1
"""The exit code of a command that has not ended; models know it."""


class ExecuteBashAction(Action):
    """A command, or input for the running one."""

    command: str = Field(
        description='The command. With `is_input`: text for the running one, empty to wait for more, or a key as "C-c"'
    )
    is_input: bool = Field(default=False, description="Whether `command` is input for the command that runs")
    timeout: float | None = Field(
        default=None, description="The most seconds to wait for the end; by default 30 seconds without any output"
    )
    reset: bool = Field(default=False, description="Start a new shell before the command; all state is lost")


class ExecuteBashObservation(Observation):
    """The output so far. `exit_code` is `STILL_RUNNING` while the command runs; `note` says how to go on."""

    bounded = True

    output: str
    exit_code: int
    working_dir: str
    note: str = ""

    @property
    def to_llm_content(self) -> str:
        lines = [self.output] if self.output else []
        if self.note:
            lines.append(f"[{self.note}]")
        if self.exit_code != STILL_RUNNING:
            lines.append(f"[Current working directory: {self.working_dir}]")
            lines.append(f"[Command finished with exit code {self.exit_code}]")
        return "\n".join(lines)

    @property
    def success(self) -> bool:
        return self.exit_code in (0, STILL_RUNNING)


QUIET_SECONDS = 30.0
"""A command that writes nothing for this long may be waiting for input; models know this limit."""
WHAT_NOW = (
    "Call again with `is_input` true: an empty `command` waits for more output, a text is sent to the command, "
    '"C-c" interrupts it'
)
NOTHING_RUNS = "No command is running that could take input or has more output."


class ExecuteBashExecutor(KeptShellExecutor[ExecuteBashAction, ExecuteBashObservation]):
    """Leaves a command running that writes nothing for a while."""

    patience = QUIET_SECONDS

    def starts(self, action: ExecuteBashAction) -> bool:
        """See `KeptShellExecutor.starts`."""
        idle = self._keeper.running is None or action.reset
        return idle and bool(action.command.strip()) and not action.is_input

    async def __call__(self, action: ExecuteBashAction, ctx: ToolContext) -> ExecuteBashObservation:
        """Run a command in the kept shell, or pass input to it. Raises `RespondToModel`."""
        keeper, command, limit = self._keeper, action.command.strip(), action.timeout
        if limit is not None and limit <= 0:
            raise RespondToModel(f"timeout must be more than 0 seconds, not {limit:g}")
        quiet = self.patience if limit is None else None
        if action.reset:
            if action.is_input:
                raise RespondToModel("reset ends what runs; it cannot be used with is_input")
            if not command:
                await keeper.close()
                text = "A new shell will run the next command."
                return ExecuteBashObservation(output=text, exit_code=0, working_dir=keeper.cwd)
        if keeper.running is None or action.reset:
            if action.is_input or not command:
                raise RespondToModel(NOTHING_RUNS)
            step = await keeper.run(ctx, action.command, quiet, limit, anew=action.reset)
            return self._told(step, ctx, limit)
        if command and not action.is_input:
            note = f"Your command was NOT executed: the one before still runs. {WHAT_NOW}"
            return self._told(await keeper.wait(0, None), ctx, limit, note)
        if command:
            await self._input(command, action.command, ctx)
        return self._told(await keeper.wait(quiet, limit), ctx, limit)

    async def _input(self, key: str, text: str, ctx: ToolContext) -> None:
        shell = self._keeper.running
        assert shell is not None
        if key in ("C-d", "C-z"):
            raise RespondToModel(f'{key} needs a terminal, and the command has none; "C-c" interrupts it')
        ctx.emit(TerminalInteraction(call_id=self._keeper.call_id, process_id=0, stdin=text))
        if key == "C-c":
            await shell.interrupt()
        else:
            shell.write(f"{text}\n")

    def _told(self, step: Step, ctx: ToolContext, limit: float | None, note: str = "") -> ExecuteBashObservation:
        output = output_text(step.output)
        shown = with_notes(output.cut(ctx.output_budget), output.notes(step.notice)).rstrip("\n")
        if step.exit_code is None and not note:
            why = (
                f"The command timed out after {limit:g} seconds"
                if step.timed_out
                else f"The command has no new output after {self.patience:g} seconds"
            )
            note = f"{why} and still runs. {WHAT_NOW}"
        if step.ended:
            note = "The shell ended with the command; the next one runs in a new shell"
        return ExecuteBashObservation(
            output=shown,
            exit_code=STILL_RUNNING if step.exit_code is None else step.exit_code,
            working_dir=self._keeper.cwd,
            note=note,
        )


class ExecuteBashTool(KeptShellTool[ExecuteBashAction, ExecuteBashObservation]):
    """Runs commands through `ctx.run`."""

    text = DESCRIPTION
    executor_type = ExecuteBashExecutor


TOOL = ExecuteBashTool
