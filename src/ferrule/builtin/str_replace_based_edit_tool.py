"""`str_replace_based_edit_tool`: Claude's text editor: view, create and edit text files."""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from ferrule.builtin.editing import missing
from ferrule.builtin.file_editor import FileEditorAction, FileEditorExecutor, FileEditorObservation
from ferrule.builtin.hints import EDITOR, EDITS
from ferrule.tools.action import Action
from ferrule.tools.context import ToolContext
from ferrule.tools.conversation import ConversationState
from ferrule.tools.definition import ToolDefinition
from ferrule.tools.executor import ToolExecutor
from ferrule.tools.turn_diff import TurnDiffTracker

DESCRIPTION = f"""\
{EDITOR}
* `insert` inserts `insert_text` after the line `insert_line`."""


class StrReplaceBasedEditAction(Action):
    """A command with its arguments."""

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


class StrReplaceBasedEditExecutor(ToolExecutor[StrReplaceBasedEditAction, FileEditorObservation]):
    """Holds an editor of its own."""

    asks_first = True

    def __init__(self, tracker: TurnDiffTracker) -> None:
        self._editor = FileEditorExecutor(tracker)

    async def __call__(self, action: StrReplaceBasedEditAction, ctx: ToolContext) -> FileEditorObservation:
        """Do the command. `new_str` also inserts, as it did in earlier versions of the tool."""
        inserted = action.insert_text if action.insert_text is not None else action.new_str
        if action.command == "insert" and inserted is None:
            raise missing("insert_text", "insert")
        new = inserted if action.command == "insert" else action.new_str
        return await self._editor(FileEditorAction(**action.model_dump() | {"new_str": new}), ctx)


class StrReplaceBasedEditTool(ToolDefinition[StrReplaceBasedEditAction, FileEditorObservation]):
    """The editor under the name and with the parameters that Claude was trained on."""

    @classmethod
    def create(cls, conv_state: ConversationState, **params: object) -> "Sequence[StrReplaceBasedEditTool]":
        """Create one for the conversation."""
        executor = StrReplaceBasedEditExecutor(conv_state.turn_diff)
        name = "str_replace_based_edit_tool"
        return [cls(name=name, description=DESCRIPTION, executor=executor, annotations=EDITS)]


TOOL = StrReplaceBasedEditTool
