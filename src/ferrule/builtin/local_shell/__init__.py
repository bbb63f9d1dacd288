"""The native `local_shell`: items of type `local_shell_call`, for codex-mini-latest."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ferrule.protocol.specs import LocalShell, ToolSpec
from ferrule.tools.conversation import ConversationState

if TYPE_CHECKING:
    from ferrule.builtin.local_shell.definition import LocalShellTool


def spec(state: ConversationState) -> ToolSpec:
    """What the model sees: the API describes this tool to it."""
    return LocalShell()


def create(state: ConversationState) -> "Sequence[LocalShellTool]":
    """The tool."""
    from ferrule.builtin.local_shell.definition import LocalShellTool

    return LocalShellTool.create(state)
