"""`file_editor`: view, create and edit text files by strings and lines."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ferrule.builtin.hints import EDITOR
from ferrule.builtin.schemas import function_spec
from ferrule.protocol.specs import ToolSpec
from ferrule.tools.conversation import ConversationState

if TYPE_CHECKING:
    from ferrule.builtin.file_editor.definition import FileEditorTool

DESCRIPTION = f"""\
{EDITOR}
* `insert` inserts `new_str` after the line `insert_line`.
* `undo_edit` takes the last edit of the file back."""


def spec(state: ConversationState) -> ToolSpec:
    """What the model sees."""
    return function_spec("file_editor", DESCRIPTION)


def create(state: ConversationState) -> "Sequence[FileEditorTool]":
    """The tool."""
    from ferrule.builtin.file_editor.definition import FileEditorTool

    return FileEditorTool.create(state)
