"""What `file_editor` takes and answers."""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from ferrule.builtin.file_editor import DESCRIPTION
from ferrule.builtin.hints import EDITS
from ferrule.tools.conversation import ConversationState
from ferrule.tools.definition import Action, Observation, ToolDefinition


class FileEditorAction(Action):
    """A command, and what it needs."""

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
    """What was seen or done, as text."""

    bounded = True

    text: str

    @property
    def to_llm_content(self) -> str:
        return self.text


class FileEditorTool(ToolDefinition[FileEditorAction, FileEditorObservation]):
    """Reads through `ctx.files`, writes through `ctx.run`."""

    @classmethod
    def create(cls, conv_state: ConversationState, **params: object) -> "Sequence[FileEditorTool]":
        """The one instance."""
        from ferrule.builtin.file_editor.impl import FileEditorExecutor

        executor = FileEditorExecutor(conv_state.turn_diff)
        return [cls(description=DESCRIPTION, executor=executor, annotations=EDITS)]
