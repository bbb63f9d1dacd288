"""What a `local_shell_call` takes. It is answered like `shell`."""

from collections.abc import Sequence

from ferrule.builtin.shell.definition import ShellAction, ShellObservation
from ferrule.protocol.specs import LocalShell, ToolSpec
from ferrule.tools.conversation import ConversationState
from ferrule.tools.definition import ToolDefinition
from ferrule.tools.registry import NATIVE


class LocalShellAction(ShellAction):
    """A command line, its directory, extra environment and limit, as the item's action says them."""

    env: dict[str, str] | None = None


class LocalShellTool(ToolDefinition[LocalShellAction, ShellObservation]):
    """Serves `local_shell_call` items."""

    @classmethod
    def create(cls, conv_state: ConversationState, **params: object) -> "Sequence[LocalShellTool]":
        """The one instance."""
        from ferrule.builtin.local_shell.impl import LocalShellExecutor

        return [cls(executor=LocalShellExecutor(conv_state.commands), namespace=NATIVE, parallel=True)]

    @property
    def spec(self) -> ToolSpec:
        """See `ToolDefinition.spec`."""
        return LocalShell()
