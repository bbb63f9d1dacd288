"""`apply_patch`: change files by a V4A patch."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ferrule.builtin.schemas import function_spec
from ferrule.patch.grammar import FORMAT_DESCRIPTION, GRAMMAR
from ferrule.protocol.specs import FreeformTool, FreeformToolFormat, ToolSpec
from ferrule.tools.conversation import ConversationState

if TYPE_CHECKING:
    from ferrule.builtin.apply_patch.definition import ApplyPatchTool

FREEFORM_DESCRIPTION = (
    "Use the `apply_patch` tool to edit files. This is a FREEFORM tool, so do not wrap the patch in JSON."
)
FUNCTION_DESCRIPTION = f"Use the `apply_patch` tool to edit files.\n\n{FORMAT_DESCRIPTION}"
FORMAT = FreeformToolFormat(type="grammar", syntax="lark", definition=GRAMMAR)


def spec(state: ConversationState) -> ToolSpec:
    """What the model sees: the freeform tool or the JSON function, as its family was trained."""
    if state.profile.apply_patch == "freeform":
        return FreeformTool(name="apply_patch", description=FREEFORM_DESCRIPTION, format=FORMAT)
    return function_spec("apply_patch", FUNCTION_DESCRIPTION)


def create(state: ConversationState) -> "Sequence[ApplyPatchTool]":
    """The tool."""
    from ferrule.builtin.apply_patch.definition import ApplyPatchTool

    return ApplyPatchTool.create(state)
