"""Shared by all tools that run commands: common arguments, how a command runs, what is reported of it."""

import os
import time
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Protocol, Self, TypeVar

import msgspec
from pydantic import Field
from pydantic.json_schema import SkipJsonSchema

import ferrule.execpolicy.decision  # noqa: F401  # with these tools, so that the first command does not wait for it
from ferrule.builtin.escalation import described, fitting
from ferrule.process.capture import HeadTail
from ferrule.process.launcher import LaunchError, Pipes, Pty, Stdio
from ferrule.process.outputs import OnOutput, StreamName
from ferrule.process.run import Completed, run
from ferrule.process.shell import POSIX_SHELLS, Shell, shell_argv
from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.events import Event, ExecCommandBegin, ExecCommandEnd, ExecCommandOutputDelta
from ferrule.protocol.json_schema import JsonSchema
from ferrule.protocol.permissions import SandboxPermissions, WorkspaceWrite
from ferrule.sandbox.caches import cache_hint
from ferrule.tools.action import Action, Observation
from ferrule.tools.commands import Commands
from ferrule.tools.context import Access, ToolContext
from ferrule.tools.conversation import ConversationState
from ferrule.tools.definition import ToolDefinition
from ferrule.tools.effects import CommandEffect, CommandResult
from ferrule.tools.executor import ToolExecutor

DEFAULT_TIMEOUT_MS = 10_000
"""The default limit that models were trained with."""
NOT_STARTED, INTERRUPTED = 127, 130
"""Exit codes, as shells use them, in the end event of a command that has none of its own."""

WORKDIR = "The directory to run it in; the session's by default"
TIMEOUT = "After this many milliseconds it is ended; 10000 by default"
LOGIN = "Whether it sees the environment of a login shell; true by default"

Number = Annotated[float, Field(allow_inf_nan=False)]
"""A JSON number, integer or not."""

AskedPermissions = Annotated[
    str | None,
    Field(
        description='Sandbox permissions for the command: "use_default" (the default), or "require_escalated" to ask '
        "for running it without the sandbox"
    ),
]
Justification = Annotated[
    str | None,
    Field(description='Only with "require_escalated": one sentence for the user on why the command needs it'),
]
PrefixRule = Annotated[
    tuple[str, ...] | None,
    Field(
        description='Only with "require_escalated": the first words of the command, as a rule under which the user can '
        'allow similar ones for good, for example ["npm", "install"]'
    ),
]
OldEscalation = SkipJsonSchema[bool | None]
"""`with_escalated_permissions`, the older spelling: accepted, not shown."""


class EscalationRequest(Protocol):
    """The arguments by which a call asks for more rights."""

    @property
    def sandbox_permissions(self) -> str | None: ...
    @property
    def justification(self) -> str | None: ...
    @property
    def prefix_rule(self) -> tuple[str, ...] | None: ...
    @property
    def with_escalated_permissions(self) -> bool | None: ...


A = TypeVar("A", bound=Action)
O = TypeVar("O", bound=Observation)  # noqa: E741 - as in Observation


class CommandExecutor(ToolExecutor[A, O]):
    """Runs commands of the session; has no state of its own."""

    asks_first = True

    def __init__(self, commands: Commands) -> None:
        self._commands = commands


class CommandTool(ToolDefinition[A, O]):
    """A tool that runs commands and may ask for more rights. Its arguments depend on whether anybody can be asked.

    `template` is its description: `{sandbox}` stands for what confines the session's commands.
    """

    template: ClassVar[str]
    windows_template: ClassVar[str]
    executor_type: ClassVar[type[CommandExecutor[Any, Any]]]
    starts_processes = True

    def __init__(self, state: ConversationState, executor: ToolExecutor[A, O]) -> None:
        self._permissions = state.permissions
        description = described(self.template, self.windows_template, state)
        super().__init__(description=description, executor=executor, parallel=True)

    @classmethod
    def create(cls, conv_state: ConversationState, **params: object) -> Sequence[Self]:
        """Create one for the conversation."""
        return [cls(conv_state, cls.executor_type(conv_state.commands))]

    def parameters(self) -> JsonSchema:
        """See `ToolDefinition.parameters`."""
        return fitting(super().parameters(), self._permissions)


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A command, ready to start: `argv` and the whole environment are exactly what is executed."""

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]
    stdio: Stdio = Pipes()
    login: bool = False
    """`argv` is a shell with a script, in the environment that its start-up files made before."""

    @property
    def line(self) -> tuple[str, ...]:
        """The command line for people and programs: that of a login shell says so."""
        return (self.argv[0], "-lc", *self.argv[2:]) if self.login else self.argv

    def effect(
        self, request: EscalationRequest | None = None, changes: Mapping[str, str] | None = None
    ) -> CommandEffect:
        """Return the effect of the command; `changes` are the variables that the call itself sets."""
        return CommandEffect(
            argv=self.argv,
            cwd=self.cwd,
            env=tuple((changes or {}).items()),
            path=self.env.get("PATH"),
            tty=isinstance(self.stdio, Pty),
            sandbox_permissions=_permissions(request) if request else SandboxPermissions.USE_DEFAULT,
            justification=request.justification if request else None,
            prefix_rule=request.prefix_rule if request else None,
        )


def _permissions(request: EscalationRequest) -> SandboxPermissions:
    if request.sandbox_permissions is None:
        return SandboxPermissions("require_escalated" if request.with_escalated_permissions else "use_default")
    try:
        return SandboxPermissions(request.sandbox_permissions)
    except ValueError as error:
        known = " or ".join(SandboxPermissions)
        raise RespondToModel(f"sandbox_permissions must be {known}, not {request.sandbox_permissions!r}") from error


def working_directory(ctx: ToolContext, workdir: str | None) -> str:
    """Return the absolute directory of a command. Raises `RespondToModel` that names it, if there is none."""
    path = ctx.files.path(workdir or ctx.cwd)
    if ctx.files.shown is not None or os.path.isdir(path):  # a container has folders that we do not see
        return path
    problem = "is not a directory" if os.path.exists(path) else "does not exist"
    advice = f"leave it out to use {ctx.cwd}" if workdir else "it was removed meanwhile; set workdir to one that exists"
    raise RespondToModel(f"the working directory {path!r} {problem}: {advice}")


def limit_ms(asked: float | None, name: str = "timeout_ms") -> int | None:
    """Return the limit of a call in whole milliseconds. Raises `RespondToModel` if it leaves no time."""
    if asked is not None and asked < 1:
        raise RespondToModel(f"{name} must be at least 1 millisecond, not {asked:g}")
    return None if asked is None else int(asked)


async def script_command(commands: Commands, script: str, cwd: str, *, login: bool = True) -> Command:
    """Build a command from a script for the user's shell. The start-up files of a login shell have run once already."""
    env = await commands.environment(login=login)
    return Command(argv=tuple(shell_argv(commands.shell, script)), cwd=cwd, env=env, login=login)


async def argv_command(commands: Commands, argv: Sequence[str], cwd: str, changes: Mapping[str, str] = {}) -> Command:
    """Build a command from an argv. `bash -lc SCRIPT` becomes `bash -c SCRIPT` in a login shell's environment."""
    script = _login_script(argv)
    env = await commands.environment(login=script is not None) | dict(changes)
    words = [shell_word(commands, argv[0], env), *argv[1:]] if argv else []
    plain = words if script is None else shell_argv(Shell(words[0]), script)
    return Command(argv=tuple(plain), cwd=cwd, env=env, login=script is not None)


def shell_word(commands: Commands, name: str, env: Mapping[str, str]) -> str:
    """Return the program to start for the first word. A shell by its bare name becomes one that no command could have
    put there; people and rules see its script alone."""
    if name not in POSIX_SHELLS:
        return name
    found = commands.located(name, env.get("PATH"))
    return found.path or name if found.passed_over else name


def _login_script(argv: Sequence[str]) -> str | None:
    """Return the script, if the command line is a login shell with a script and nothing else."""
    if len(argv) < 3 or os.path.basename(argv[0]) not in POSIX_SHELLS:
        return None
    options = "".join(option.removeprefix("-") for option in argv[1:-1] if option.startswith("-"))
    plain = all(option.startswith("-") and option[1:].isalpha() for option in argv[1:-1])
    return argv[-1] if plain and set(options) <= set("lic") and {"l", "c"} <= set(options) else None


class CommandEvents:
    """Tells the front end of one command: begin, output, end, in this order, whoever is quicker."""

    def __init__(self, ctx: ToolContext, command: Command) -> None:
        self._ctx = ctx
        self._command = command
        self._early: list[Event] | None = []
        self.is_heard = ctx.host.observed

    @property
    def on_output(self) -> OnOutput | None:
        """The receiver of output as it arrives; None if nobody listens."""
        return self._output if self._ctx.host.observed else None

    def begin(self, process_id: int | None = None) -> None:
        """The command runs; what was told before follows now."""
        early, self._early = self._early or [], None
        command = self._command
        begin = ExecCommandBegin(
            call_id=self._ctx.call_id, command=command.line, cwd=command.cwd, process_id=process_id
        )
        for event in (begin, *early):
            self._ctx.emit(event)

    def end(self, exit_code: int, output: str = "", seconds: float = 0.0, *, timed_out: bool = False) -> None:
        """The command is over: told to whoever was told that it began, and to nobody else."""
        if not self.is_heard:
            return
        self._tell(
            ExecCommandEnd(
                call_id=self._ctx.call_id,
                exit_code=exit_code,
                output=output,
                duration_ms=round(seconds * 1000),
                timed_out=timed_out,
            )
        )

    def _output(self, stream: StreamName, chunk: bytes) -> None:
        self._tell(ExecCommandOutputDelta(call_id=self._ctx.call_id, stream=stream, chunk=chunk))

    def _tell(self, event: Event) -> None:
        if self._early is None:
            self._ctx.emit(event)
        else:
            self._early.append(event)


class Finished(msgspec.Struct, frozen=True):
    """A command that has ended; `notice` is the orchestrator's remark on it."""

    completed: Completed
    notice: str | None = None

    @property
    def exit_code(self) -> int:
        """As `Completed.exit_code`."""
        return self.completed.exit_code

    @property
    def transcript(self) -> str:
        """The whole output."""
        return self.completed.output.text()

    @property
    def timed_out(self) -> bool:
        """True if the limit ended it."""
        return self.completed.timed_out


def may_write_caches(ctx: ToolContext, access: Access) -> bool:
    """Tell whether a cache that is closed to a command can be replaced by an open one."""
    return access.sandboxed and isinstance(ctx.permissions.sandbox_policy, WorkspaceWrite)


def notice_of(ctx: ToolContext, access: Access, result: CommandResult, env: Mapping[str, str]) -> str | None:
    """Return the notes that go with an output: the orchestrator's, and which cache was closed to the command."""
    hint = cache_hint(result.transcript, env) if result.exit_code and may_write_caches(ctx, access) else None
    return "\n".join(filter(None, (access.notice, hint))) or None


async def run_command(
    ctx: ToolContext,
    command: Command,
    timeout_ms: int,
    request: EscalationRequest | None = None,
    changes: Mapping[str, str] = {},
) -> Finished:
    """Run a command to its end through `ctx.run`. Raises `RespondToModel` where it is refused or cannot start."""

    async def attempt(access: Access) -> Finished:
        started = time.monotonic()
        events, captured = CommandEvents(ctx, command), HeadTail()
        events.begin()
        try:
            completed = await run(
                access.launcher,
                command.argv,
                env=command.env,
                cwd=command.cwd,
                stdio=command.stdio,
                timeout_ms=timeout_ms,
                on_output=events.on_output,
                captured=captured,
            )
        except BaseException as error:  # what began must end, also when the turn is interrupted
            said = f"{captured.captured().text()}{error}"
            events.end(NOT_STARTED if isinstance(error, LaunchError) else INTERRUPTED, said, time.monotonic() - started)
            raise
        finished = Finished(completed, access.notice)
        finished = msgspec.structs.replace(finished, notice=notice_of(ctx, access, finished, command.env))
        if events.is_heard:
            events.end(completed.exit_code, finished.transcript, completed.duration, timed_out=completed.timed_out)
        return finished

    try:
        return await ctx.run(command.effect(request, changes), attempt)
    except LaunchError as error:
        raise RespondToModel(str(error)) from error
