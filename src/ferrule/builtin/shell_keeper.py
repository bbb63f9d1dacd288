"""The shells that a session keeps between calls, and the base of the tools that use them."""

import os
import shlex
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, Self

import msgspec

from ferrule.builtin.execution import INTERRUPTED, Command, CommandEvents, notice_of, shell_word
from ferrule.builtin.hints import RUNS
from ferrule.builtin.kept_shell import KeptShell, Step
from ferrule.process.capture import Captured
from ferrule.process.launcher import Launcher, LaunchError
from ferrule.protocol.errors import RespondToModel
from ferrule.sync import uninterrupted
from ferrule.tools.commands import Commands
from ferrule.tools.context import Access, ToolContext, ToolInvocation
from ferrule.tools.conversation import ConversationState
from ferrule.tools.definition import ToolDefinition
from ferrule.tools.executor import A, O, ToolExecutor

EMPTY = Captured(b"")


class ShellKeeper:
    """Runs each command through `ctx.run`: the exec policy judges the command, not the shell that receives it.

    A shell keeps the rights that it was started with. A command with other rights than the one before it runs in
    another shell, in the same directory.
    """

    def __init__(self, commands: Commands, cwd: str) -> None:
        self._commands = commands
        self._shells: dict[Launcher, KeptShell] = {}
        self._root = cwd
        self.running: KeptShell | None = None
        self.call_id = ""
        self.cwd = cwd

    async def run(
        self,
        ctx: ToolContext,
        script: str,
        quiet_seconds: float | None,
        limit_seconds: float | None,
        *,
        anew: bool = False,
    ) -> Step:
        """Run a script in the shell, in a new one with `anew`. Raises `RespondToModel` if it is refused or no shell can
        be started."""
        env = await self._commands.environment(login=True)
        known = not anew and (self._commands.contained or os.path.isdir(self.cwd))
        cwd = self.cwd if known else self._root
        command = Command(argv=(shell_word(self._commands, "bash", env), "-c", script), cwd=cwd, env=env, login=True)

        async def attempt(access: Access) -> Step:
            if anew:
                await self.close()
            shell = await self._shell(access, env, cwd)
            events, started, ongoing = CommandEvents(ctx, command), time.monotonic(), self._commands.ongoing

            def ended(exit_code: int, output: Captured) -> None:
                ongoing.pop(shell, None)
                if events.is_heard:
                    events.end(exit_code, output.text(), time.monotonic() - started)

            events.begin()
            self.running, self.call_id = shell, ctx.call_id
            ongoing[shell] = script
            step = Step(output=EMPTY, exit_code=INTERRUPTED)
            try:
                step = await shell.run(script, quiet_seconds, limit_seconds, events.on_output, ended)
            finally:
                self._note(step)
            notices = (notice_of(ctx, access, step, env), *access.remarks())
            return msgspec.structs.replace(step, notice=" ".join(filter(None, notices)) or None)

        try:
            return await ctx.run(command.effect(), attempt)
        except LaunchError as error:
            raise RespondToModel(f"the shell could not be started: {error}") from error

    async def wait(self, quiet_seconds: float | None, limit_seconds: float | None) -> Step:
        """Wait again for the running command. A cancelled wait leaves it running. Raises `RespondToModel` if it ended
        with its sandbox."""
        assert self.running is not None
        try:
            step = await self.running.wait(quiet_seconds, limit_seconds)
        except LaunchError as error:
            self._note(Step(output=EMPTY, exit_code=INTERRUPTED))
            raise RespondToModel(str(error)) from error
        self._note(step)
        return step

    async def stop(self) -> None:
        """End the running command."""
        if self.running is not None:
            with suppress(LaunchError):  # it ended with its sandbox
                await uninterrupted(self.running.stop())
            self._note(Step(output=EMPTY, exit_code=INTERRUPTED))

    async def close(self) -> None:
        """End the shells; the next command starts a new one in the session's directory."""
        shells, self._shells = self._shells, {}
        self.running, self.cwd = None, self._root
        for shell in shells.values():
            await uninterrupted(shell.end())

    def _note(self, step: Step) -> None:
        shell = self.running
        if shell is None or step.exit_code is None:
            return
        self.cwd, self.running = shell.cwd, None

    async def _shell(self, access: Access, env: Mapping[str, str], cwd: str) -> KeptShell:
        known = self._shells.get(access.launcher)
        if known is not None and known.alive:
            if known.cwd != cwd:
                await known.run(f"cd -- {shlex.quote(cwd)}", None, None)
            return known
        if known is not None:  # it ended between two calls, perhaps with the sandbox
            await uninterrupted(known.end())
        bash = _bash(self._commands, env)
        shell = self._shells[access.launcher] = await KeptShell.start(access.launcher, bash, env, cwd)
        return shell


class KeptShellExecutor(ToolExecutor[A, O]):
    """Runs commands in the shells of one conversation. `patience`: the seconds that it waits for a command."""

    patience: float

    def __init__(self, commands: Commands, cwd: str) -> None:
        self._keeper = ShellKeeper(commands, cwd)

    def starts(self, action: A) -> bool:
        """Return whether the call would start a command."""
        raise NotImplementedError

    async def close(self) -> None:
        """End the shells."""
        await self._keeper.close()


class KeptShellTool(ToolDefinition[A, O]):
    """A tool whose commands run in a kept shell. `text` is its description."""

    text: ClassVar[str]
    executor_type: ClassVar[type[KeptShellExecutor[Any, Any]]]
    starts_processes = True
    command_field = "command"

    def asks_first(self, invocation: ToolInvocation) -> bool:
        """See `ToolHandler.asks_first`: a call that starts a command does."""
        assert isinstance(self.executor, KeptShellExecutor)
        return self.executor.starts(self.read_action(invocation))

    @classmethod
    def create(cls, conv_state: ConversationState, **params: object) -> Sequence[Self]:
        """Create one for the conversation, with shells of its own."""
        executor = cls.executor_type(conv_state.commands, conv_state.cwd)
        return [cls(description=cls.text, executor=executor, annotations=RUNS)]


def _bash(commands: Commands, env: Mapping[str, str]) -> str:
    if commands.shell.kind == "bash":
        return commands.shell.path
    found = commands.located("bash", env.get("PATH"))
    if found.path is None:
        raise RespondToModel(f"bash cannot be started: {found.problem}")
    return found.path
