"""`view_image`: the model looks at an image."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ferrule.builtin.schemas import function_spec
from ferrule.protocol.specs import ToolSpec
from ferrule.tools.conversation import ConversationState

if TYPE_CHECKING:
    from ferrule.builtin.view_image.definition import ViewImageTool

DESCRIPTION = """\
Look at an image file on this machine (PNG, JPEG, GIF or WebP). Only for a file that the user named or that you made, \
and that is not in the conversation already."""


def spec(state: ConversationState) -> ToolSpec:
    """What the model sees."""
    return function_spec("view_image", DESCRIPTION)


def create(state: ConversationState) -> "Sequence[ViewImageTool]":
    """The tool."""
    from ferrule.builtin.view_image.definition import ViewImageTool

    return ViewImageTool.create(state)
