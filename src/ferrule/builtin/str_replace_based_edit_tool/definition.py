"""What `str_replace_based_edit_tool` takes: the parameters that Anthropic documents for `text_editor_20250728`."""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from ferrule.builtin.file_editor.definition import FileEditorObservation
from ferrule.builtin.hints import EDITS
from ferrule.builtin.str_replace_based_edit_tool import DESCRIPTION
from ferrule.tools.conversation import ConversationState
from ferrule.tools.definition import Action, ToolDefinition


class StrReplaceBasedEditAction(Action):
    """A command, and what it needs."""

    command: Literal["view", "create", "str_replace", "insert"] = Field(description="What to do")
    path: str = Field(description="Absolute path to the file or directory")
    file_text: str | None = Field(default=None, description="For `create`: the content of the file")
    old_str: str | None = Field(default=None, description="For `str_replace`: the text in the file to replace")
    new_str: str | None = Field(default=None, description="For `str_replace`: what replaces it")
    insert_line: int | None = Field(
        default=None, description="For `insert`: the line after which it goes; 0 is before the first"
    )
    insert_text: str | None = Field(default=None, description="For `insert`: what is inserted")
    view_range: list[int] | None = Field(
        default=None, description="For `view` of a file: its first and last line, from 1; a last one of -1 is the end"
    )


class StrReplaceBasedEditTool(ToolDefinition[StrReplaceBasedEditAction, FileEditorObservation]):
    """The editor under the name and with the parameters that Claude was trained on."""

    @classmethod
    def create(cls, conv_state: ConversationState, **params: object) -> "Sequence[StrReplaceBasedEditTool]":
        """The one instance."""
        from ferrule.builtin.str_replace_based_edit_tool.impl import StrReplaceBasedEditExecutor

        executor = StrReplaceBasedEditExecutor(conv_state.turn_diff)
        name = "str_replace_based_edit_tool"
        return [cls(name=name, description=DESCRIPTION, executor=executor, annotations=EDITS)]
