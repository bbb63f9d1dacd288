"""`str_replace_based_edit_tool`: Claude's text editor: view, create and edit text files."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ferrule.builtin.schemas import function_spec
from ferrule.protocol.specs import ToolSpec
from ferrule.tools.conversation import ConversationState

if TYPE_CHECKING:
    from ferrule.builtin.str_replace_based_edit_tool.definition import StrReplaceBasedEditTool

DESCRIPTION = """\
View, create and edit text files. `path` is absolute.
* `view` shows a file as `cat -n` does, or its lines `view_range`; a directory it shows two levels deep, without \
hidden items. Long output ends with `<response clipped>`.
* `create` writes `file_text` to a new file; it overwrites nothing.
* `str_replace` replaces `old_str` by `new_str`. `old_str` must match the file exactly, white space included, and \
occur once: give enough lines around the change.
* `insert` inserts `insert_text` after the line `insert_line`."""


def spec(state: ConversationState) -> ToolSpec:
    """What the model sees."""
    return function_spec("str_replace_based_edit_tool", DESCRIPTION)


def create(state: ConversationState) -> "Sequence[StrReplaceBasedEditTool]":
    """The tool."""
    from ferrule.builtin.str_replace_based_edit_tool.definition import StrReplaceBasedEditTool

    return StrReplaceBasedEditTool.create(state)
