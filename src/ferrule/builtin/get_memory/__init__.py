"""`get_memory`: a stored memory."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ferrule.builtin.schemas import function_spec
from ferrule.protocol.specs import ToolSpec
from ferrule.tools.conversation import ConversationState

if TYPE_CHECKING:
    from ferrule.builtin.get_memory.definition import GetMemoryTool

DESCRIPTION = """\
Load a stored memory by its id: what was learned in earlier work."""


def spec(state: ConversationState) -> ToolSpec:
    """What the model sees."""
    return function_spec("get_memory", DESCRIPTION)


def create(state: ConversationState) -> "Sequence[GetMemoryTool]":
    """The tool."""
    from ferrule.builtin.get_memory.definition import GetMemoryTool

    return GetMemoryTool.create(state)
