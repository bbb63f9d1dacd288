"""Runs the command of a `local_shell_call`."""

from ferrule.builtin.local_shell.definition import LocalShellAction
from ferrule.builtin.shell.definition import ShellObservation
from ferrule.builtin.shell.impl import run_argv
from ferrule.protocol.payload import ToolOutput
from ferrule.tools.commands import Commands
from ferrule.tools.context import ToolContext
from ferrule.tools.executor import ToolExecutor


class LocalShellExecutor(ToolExecutor[LocalShellAction, ShellObservation]):
    """Has no state of its own."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands

    async def __call__(self, action: LocalShellAction, ctx: ToolContext) -> ShellObservation | ToolOutput:
        """Run the command line and say what came of it."""
        return await run_argv(self._commands, action, ctx, action.env or {})
