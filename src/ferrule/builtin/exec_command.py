"""`exec_command`: start a shell command that may go on running as a session."""

import asyncio
import secrets
from typing import Annotated

import msgspec
from msgspec.structs import replace
from pydantic import AliasChoices, BeforeValidator, Field

from ferrule.builtin.command_forms import as_script
from ferrule.builtin.execution import (
    LOGIN,
    WORKDIR,
    AskedPermissions,
    Command,
    CommandEvents,
    CommandExecutor,
    CommandTool,
    Justification,
    Number,
    OldEscalation,
    PrefixRule,
    limit_ms,
    may_write_caches,
    working_directory,
)
from ferrule.builtin.interception import apply_intercepted
from ferrule.builtin.output_text import output_text, with_notes
from ferrule.process.interactive import Collected, Ended, Session, clamp_yield
from ferrule.process.launcher import LaunchError, Pipes, Pty
from ferrule.process.shell import shell_argv
from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.payload import ToolOutput
from ferrule.protocol.truncation import OutputBudget
from ferrule.sandbox.caches import cache_hint
from ferrule.sync import uninterrupted
from ferrule.tools.action import Action, Observation
from ferrule.tools.commands import Commands, Origin
from ferrule.tools.context import Access, ToolContext

DESCRIPTION = """\
Run a shell command and return its output, or, if it still runs after `yield_time_ms`, what it wrote so far and a \
session ID; `write_stdin` then gives it input and gets the rest. Programs that need a terminal or input want `tty` set \
to true. Servers and other background processes belong in a session of their own: one that is started with `&` may end \
with its shell.

{sandbox}"""
POWERSHELL_DESCRIPTION = """\
Run a PowerShell command and return its output, or, if it still runs after `yield_time_ms`, what it wrote so far and \
a session ID; `write_stdin` then gives it input and gets the rest. Programs that need a terminal or input want `tty` \
set to true.

{sandbox}"""
YIELD_TIME = "How long to wait for the end, in milliseconds, before what was written so far is returned"
MAX_OUTPUT_TOKENS = "The most output to return, in tokens; of more the middle is left out"


class ExecCommandAction(Action):
    """A command and how long to wait for it."""

    cmd: Annotated[str, BeforeValidator(as_script)] = Field(
        description="The script to run", validation_alias=AliasChoices("cmd", "command")
    )
    workdir: str | None = Field(default=None, description=WORKDIR)
    shell: str | None = Field(
        default=None, description="The shell to run it with, by path or name; the user's own by default"
    )
    tty: bool | None = Field(
        default=None,
        description="Whether the command gets a terminal, which also takes input; without one (the default) its input "
        "is empty",
    )
    yield_time_ms: Number | None = Field(default=None, description=YIELD_TIME)
    max_output_tokens: Number | None = Field(default=None, description=MAX_OUTPUT_TOKENS)
    login: bool | None = Field(default=None, description=LOGIN)
    timeout: Number | None = Field(
        default=None,
        description="After this many milliseconds the command and all that it started are ended; no limit by default",
        validation_alias=AliasChoices("timeout", "timeout_ms"),
    )
    sandbox_permissions: AskedPermissions = None
    justification: Justification = None
    prefix_rule: PrefixRule = None
    with_escalated_permissions: OldEscalation = None


class ExecObservation(Observation):
    """The output of a session since the last call. `exit_code` is set once it has ended, else `session_id`."""

    bounded = True

    chunk_id: str
    wall_seconds: float
    exit_code: int | None
    session_id: int | None
    original_token_count: int
    output: str

    @property
    def to_llm_content(self) -> str:
        state = (
            f"Process running with session ID {self.session_id}"
            if self.exit_code is None
            else f"Process exited with code {self.exit_code}"
        )
        return (
            f"Chunk ID: {self.chunk_id}\nWall time: {self.wall_seconds:.4f} seconds\n{state}\n"
            f"Original token count: {self.original_token_count}\nOutput:\n{self.output}"
        )

    @property
    def success(self) -> bool:
        return not self.exit_code


DEFAULT_YIELD_MS = 10_000
"""The default wait that models were trained with."""


class ExecCommandExecutor(CommandExecutor[ExecCommandAction, ExecObservation]):
    """Keeps what still runs in the session table, where `write_stdin` finds it."""

    async def __call__(self, action: ExecCommandAction, ctx: ToolContext) -> ExecObservation | ToolOutput:
        """Start the command and return what came of it so far."""
        cwd = working_directory(ctx, action.workdir)
        origin = Origin(ctx.call_id, limit_ms(action.timeout, "timeout"), script=action.cmd)
        budget = asked_budget(ctx, action.max_output_tokens)
        yield_ms = clamp_yield(int(DEFAULT_YIELD_MS if action.yield_time_ms is None else action.yield_time_ms))
        try:
            command = await self._command(action, cwd)
            patched = await apply_intercepted(ctx, command.argv, cwd)
            if patched is not None:
                return patched
            shown = await ctx.run(
                command.effect(action), lambda access: self._attempt(access, ctx, command, origin, yield_ms)
            )
        except LaunchError as error:
            raise RespondToModel(f"exec_command failed: {error}") from error
        return exec_observation(shown, budget)

    async def _command(self, action: ExecCommandAction, cwd: str) -> Command:
        """Build the command. The start-up files of the user's shell were run already; another shell reads its own."""
        commands, login = self._commands, action.login is not False
        stdio = Pty() if action.tty else Pipes(merge=True)
        shell = commands.shell
        if action.shell is not None:
            shell = commands.shell_named(action.shell, await commands.environment(login=False, stdio=stdio))
        was_run = login and shell.kind == commands.shell.kind
        env = await commands.environment(login=was_run, stdio=stdio)
        argv = shell_argv(shell, action.cmd, login=login and not was_run)
        return Command(argv=tuple(argv), cwd=cwd, env=env, stdio=stdio, login=was_run)

    async def _attempt(
        self, access: Access, ctx: ToolContext, command: Command, origin: Origin, yield_ms: int
    ) -> "SessionOutput":
        events = CommandEvents(ctx, command)
        table = self._commands.sessions
        origin = replace(origin, cached_env=command.env if may_write_caches(ctx, access) else None)
        ongoing = self._commands.ongoing

        def ended(how: Ended) -> None:
            ongoing.pop(session, None)
            if events.is_heard:
                events.end(how.exit_code, how.transcript.text(), how.duration, timed_out=how.timed_out)

        session = await Session.start(
            access.launcher,
            command.argv,
            env=command.env,
            cwd=command.cwd,
            stdio=command.stdio,
            timeout_ms=origin.timeout_ms,
            on_output=events.on_output,
            on_exit=ended,
        )
        self._commands.origins[session] = origin
        ongoing[session] = command.argv[-1]
        number = None
        try:
            stored = await table.store(session)
            number = stored.number
            events.begin(number)
            collected = await table.collect(number, yield_ms)
        except asyncio.CancelledError:  # the turn was interrupted: what this call started goes, earlier sessions stay
            await uninterrupted(_end(session, number, self._commands))
            raise
        refused = access.remarks() if collected.ended is None else ()  # an ended one tells it itself
        return SessionOutput(collected, number, origin, (stored.warning, access.notice, *refused))


async def _end(session: Session, number: int | None, commands: Commands) -> None:
    await session.end()
    if number is not None:
        await commands.sessions.collect(number, 0)


class SessionOutput(msgspec.Struct, frozen=True):
    """Report the result of one wait for session `number`; `notes` are further lines for the model."""

    collected: Collected
    number: int
    origin: Origin | None
    notes: tuple[str | None, ...] = ()

    @property
    def exit_code(self) -> int | None:
        """None: it still runs."""
        return None if self.collected.ended is None else self.collected.ended.exit_code

    @property
    def transcript(self) -> str:
        """The whole output of an ended session."""
        return "" if self.collected.ended is None else self.collected.ended.transcript.text()

    @property
    def timed_out(self) -> bool:
        """True if the limit ended it."""
        return self.collected.ended is not None and self.collected.ended.timed_out


def exec_observation(shown: SessionOutput, budget: OutputBudget) -> ExecObservation:
    """Describe a session to the model after a wait."""
    collected, number = shown.collected, shown.number
    output, ended = output_text(collected.output), collected.ended
    limit = shown.origin.timeout_ms if shown.timed_out and shown.origin is not None else None
    waiting = f"{collected.unsent} bytes of the input were not read yet." if collected.unsent else None
    said = output.notes(*shown.notes, _cache_hint(shown), waiting, None if ended is None else ended.notice)
    return ExecObservation(
        chunk_id=secrets.token_hex(3),
        wall_seconds=collected.wall_seconds,
        exit_code=shown.exit_code,
        session_id=number if ended is None else None,
        original_token_count=output.tokens,
        output=with_notes(output.cut_with_warning(budget), said, limit),
    )


def _cache_hint(shown: SessionOutput) -> str | None:
    env = None if shown.origin is None else shown.origin.cached_env
    return cache_hint(shown.transcript, env) if env is not None and shown.exit_code else None


def asked_budget(ctx: ToolContext, tokens: float | None) -> OutputBudget:
    """Return the budget of a call: the session's, or the `tokens` that it asks for if that is less."""
    return ctx.output_budget.at_most(None if tokens is None else int(tokens))


class ExecCommandTool(CommandTool[ExecCommandAction, ExecObservation]):
    """Starts sessions through `ctx.run`."""

    template = DESCRIPTION
    windows_template = POWERSHELL_DESCRIPTION
    command_field = "cmd"
    executor_type = ExecCommandExecutor


TOOL = ExecCommandTool
