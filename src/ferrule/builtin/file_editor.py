"""`file_editor`: view, create and edit text files by strings and lines."""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from ferrule.builtin.editing import Editor, missing
from ferrule.builtin.hints import EDITOR, EDITS
from ferrule.tools.action import Action, Observation
from ferrule.tools.context import ToolContext
from ferrule.tools.conversation import ConversationState
from ferrule.tools.definition import ToolDefinition
from ferrule.tools.executor import ToolExecutor
from ferrule.tools.tasks import run_blocking
from ferrule.tools.turn_diff import TurnDiffTracker

DESCRIPTION = f"""\
{EDITOR}
* `insert` inserts `new_str` after the line `insert_line`.
* `undo_edit` takes the last edit of the file back."""


class FileEditorAction(Action):
    """A command with its arguments."""

    command: Literal["view", "create", "str_replace", "insert", "undo_edit"] = Field(description="What to do")
    path: str = Field(description="Absolute path to the file or directory")
    file_text: str | None = Field(default=None, description="For `create`: the content of the file")
    old_str: str | None = Field(default=None, description="For `str_replace`: the text in the file to replace")
    new_str: str | None = Field(
        default=None, description="For `str_replace`: what replaces it; for `insert`: what is inserted"
    )
    insert_line: int | None = Field(
        default=None, description="For `insert`: the line after which it goes; 0 is before the first"
    )
    view_range: list[int] | None = Field(
        default=None, description="For `view` of a file: its first and last line, from 1; a last one of -1 is the end"
    )


class FileEditorObservation(Observation):
    """The result as text."""

    bounded = True

    text: str

    @property
    def to_llm_content(self) -> str:
        return self.text


class FileEditorExecutor(ToolExecutor[FileEditorAction, FileEditorObservation]):
    """Keeps what its edits replaced."""

    asks_first = True

    def __init__(self, tracker: TurnDiffTracker) -> None:
        self._editor = Editor(tracker)

    async def __call__(self, action: FileEditorAction, ctx: ToolContext) -> FileEditorObservation:
        """Do the command. Raises `RespondToModel`; then nothing has changed."""
        return FileEditorObservation(text=await self._done(action, ctx))

    async def _done(self, action: FileEditorAction, ctx: ToolContext) -> str:
        editor, path = self._editor, action.path
        ctx = await ctx.seeing(path)
        match action.command:
            case "view":
                return await run_blocking(editor.view, path, action.view_range, ctx)
            case "create":
                if action.file_text is None:
                    raise missing("file_text", "create")
                return await editor.create(path, action.file_text, ctx)
            case "str_replace":
                if action.old_str is None:
                    raise missing("old_str", "str_replace")
                return await editor.replace(path, action.old_str, action.new_str or "", ctx)
            case "insert":
                if action.insert_line is None:
                    raise missing("insert_line", "insert")
                if action.new_str is None:
                    raise missing("new_str", "insert")
                return await editor.insert(path, action.insert_line, action.new_str, ctx)
            case "undo_edit":
                return await editor.undo(path, ctx)


class FileEditorTool(ToolDefinition[FileEditorAction, FileEditorObservation]):
    """Reads through `ctx.files`, writes through `ctx.run`."""

    @classmethod
    def create(cls, conv_state: ConversationState, **params: object) -> "Sequence[FileEditorTool]":
        """Create one for the conversation."""
        executor = FileEditorExecutor(conv_state.turn_diff)
        return [cls(description=DESCRIPTION, executor=executor, annotations=EDITS)]


TOOL = FileEditorTool
