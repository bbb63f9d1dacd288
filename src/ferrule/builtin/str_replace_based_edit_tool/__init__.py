"""`str_replace_based_edit_tool`: Claude's text editor: view, create and edit text files."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ferrule.builtin.hints import EDITOR
from ferrule.builtin.schemas import function_spec
from ferrule.protocol.specs import ToolSpec
from ferrule.tools.conversation import ConversationState

if TYPE_CHECKING:
    from ferrule.builtin.str_replace_based_edit_tool.definition import StrReplaceBasedEditTool

DESCRIPTION = f"""\
{EDITOR}
* `insert` inserts `insert_text` after the line `insert_line`."""


def spec(state: ConversationState) -> ToolSpec:
    """What the model sees."""
    return function_spec("str_replace_based_edit_tool", DESCRIPTION)


def create(state: ConversationState) -> "Sequence[StrReplaceBasedEditTool]":
    """The tool."""
    from ferrule.builtin.str_replace_based_edit_tool.definition import StrReplaceBasedEditTool

    return StrReplaceBasedEditTool.create(state)
