"""`finish`: the model ends its work with a message."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ferrule.builtin.schemas import function_spec
from ferrule.protocol.specs import ToolSpec
from ferrule.tools.conversation import ConversationState

if TYPE_CHECKING:
    from ferrule.builtin.finish.definition import FinishTool

DESCRIPTION = """\
End the work with a last message to the user: when the task is done, or when you cannot go on. Say what was done and \
how it was checked, what is left, and what you need to know, if anything."""


def spec(state: ConversationState) -> ToolSpec:
    """What the model sees."""
    return function_spec("finish", DESCRIPTION)


def create(state: ConversationState) -> "Sequence[FinishTool]":
    """The tool."""
    from ferrule.builtin.finish.definition import FinishTool

    return FinishTool.create(state)
