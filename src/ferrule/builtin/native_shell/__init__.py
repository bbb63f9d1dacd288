"""The native `shell` with environment `local`: items of type `shell_call`, which we run."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ferrule.protocol.specs import ShellTool, ToolSpec
from ferrule.tools.conversation import ConversationState

if TYPE_CHECKING:
    from ferrule.builtin.native_shell.definition import NativeShellTool


def spec(state: ConversationState) -> ToolSpec:
    """What the model sees: the API describes this tool to it."""
    return ShellTool()


def create(state: ConversationState) -> "Sequence[NativeShellTool]":
    """The tool."""
    from ferrule.builtin.native_shell.definition import NativeShellTool

    return NativeShellTool.create(state)
