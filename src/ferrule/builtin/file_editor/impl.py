"""Hands each command to the editor."""

from ferrule.builtin.editing import Editor, missing
from ferrule.builtin.file_editor.definition import FileEditorAction, FileEditorObservation
from ferrule.tools.context import ToolContext
from ferrule.tools.executor import ToolExecutor
from ferrule.tools.tasks import run_blocking
from ferrule.tools.turn_diff import TurnDiffTracker


class FileEditorExecutor(ToolExecutor[FileEditorAction, FileEditorObservation]):
    """Keeps what its edits replaced."""

    def __init__(self, tracker: TurnDiffTracker) -> None:
        self._editor = Editor(tracker)

    async def __call__(self, action: FileEditorAction, ctx: ToolContext) -> FileEditorObservation:
        """Do the command. Raises `RespondToModel`; then nothing has changed."""
        return FileEditorObservation(text=await self._done(action, ctx))

    async def _done(self, action: FileEditorAction, ctx: ToolContext) -> str:
        editor, path = self._editor, action.path
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
