"""The native patch tool: `apply_patch_call` items, answered by `apply_patch_call_output`."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ferrule.protocol.specs import ApplyPatchTool, ToolSpec
from ferrule.tools.conversation import ConversationState

if TYPE_CHECKING:
    from ferrule.builtin.native_apply_patch.definition import NativeApplyPatchTool


def spec(state: ConversationState) -> ToolSpec:
    """What the model sees: it knows the rest."""
    return ApplyPatchTool()


def create(state: ConversationState) -> "Sequence[NativeApplyPatchTool]":
    """The tool."""
    from ferrule.builtin.native_apply_patch.definition import NativeApplyPatchTool

    return NativeApplyPatchTool.create(state)
