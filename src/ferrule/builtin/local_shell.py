"""The native `local_shell`: items of type `local_shell_call`, for codex-mini-latest."""

from collections.abc import Sequence

from ferrule.builtin.execution import CommandExecutor
from ferrule.builtin.shell import ShellAction, ShellObservation, run_argv
from ferrule.protocol.payload import ToolOutput
from ferrule.protocol.specs import LocalShell, ToolSpec
from ferrule.tools.context import ToolContext
from ferrule.tools.conversation import ConversationState
from ferrule.tools.definition import ToolDefinition
from ferrule.tools.registry import NATIVE


class LocalShellAction(ShellAction):
    """A command line with its directory, extra environment and limit, as in the item's action."""

    env: dict[str, str] | None = None


class LocalShellExecutor(CommandExecutor[LocalShellAction, ShellObservation]):
    """Has no state of its own."""

    async def __call__(self, action: LocalShellAction, ctx: ToolContext) -> ShellObservation | ToolOutput:
        """Run the command line and say what came of it."""
        return await run_argv(self._commands, action, ctx, action.env or {})


class LocalShellTool(ToolDefinition[LocalShellAction, ShellObservation]):
    """Serves `local_shell_call` items."""

    starts_processes = True
    command_field = "command"

    @classmethod
    def create(cls, conv_state: ConversationState, **params: object) -> "Sequence[LocalShellTool]":
        """Create one for the conversation."""
        return [cls(executor=LocalShellExecutor(conv_state.commands), namespace=NATIVE, parallel=True)]

    @property
    def spec(self) -> ToolSpec:
        """See `ToolDefinition.spec`."""
        return LocalShell()


TOOL = LocalShellTool
