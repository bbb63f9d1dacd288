"""Says the call in the other editor's words: the two differ in one parameter."""

from ferrule.builtin.editing import missing
from ferrule.builtin.file_editor.definition import FileEditorAction, FileEditorObservation
from ferrule.builtin.file_editor.impl import FileEditorExecutor
from ferrule.builtin.str_replace_based_edit_tool.definition import StrReplaceBasedEditAction
from ferrule.tools.context import ToolContext
from ferrule.tools.executor import ToolExecutor
from ferrule.tools.turn_diff import TurnDiffTracker


class StrReplaceBasedEditExecutor(ToolExecutor[StrReplaceBasedEditAction, FileEditorObservation]):
    """Holds an editor of its own."""

    def __init__(self, tracker: TurnDiffTracker) -> None:
        self._editor = FileEditorExecutor(tracker)

    async def __call__(self, action: StrReplaceBasedEditAction, ctx: ToolContext) -> FileEditorObservation:
        """Do the command. `new_str` also inserts, as it did in earlier versions of the tool."""
        inserted = action.insert_text if action.insert_text is not None else action.new_str
        if action.command == "insert" and inserted is None:
            raise missing("insert_text", "insert")
        new = inserted if action.command == "insert" else action.new_str
        return await self._editor(FileEditorAction(**action.model_dump() | {"new_str": new}), ctx)
