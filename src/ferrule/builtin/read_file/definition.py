"""What `read_file` takes and answers."""

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, Field

from ferrule.builtin.hints import LOOKS
from ferrule.builtin.read_file import DESCRIPTION
from ferrule.tools.conversation import ConversationState
from ferrule.tools.definition import Action, Observation, ToolDefinition

EMPTY = "(The file is empty.)"


class Indentation(BaseModel):
    """How far the indentation mode reaches."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    anchor_line: float | None = Field(default=None, description="The line to start from; `offset` by default")
    max_levels: float | None = Field(
        default=None, description="How many levels of enclosing blocks to include; 0 (the default) is all of them"
    )
    include_siblings: bool | None = Field(
        default=None, description="Whether to include the blocks beside it at the same indentation; false by default"
    )
    include_header: bool | None = Field(
        default=None, description="Whether to include the comments directly above the block; true by default"
    )
    max_lines: float | None = Field(default=None, description="The most lines to return; `limit` by default")


class ReadFileAction(Action):
    """A file, and which lines of it."""

    file_path: str = Field(description="Absolute path to the file")
    offset: float | None = Field(default=None, description="The first line to return, at least 1; 1 by default")
    limit: float | None = Field(default=None, description="The most lines to return; 2000 by default")
    mode: str | None = Field(default=None, description='"slice" (the default) or "indentation"')
    indentation: Indentation | None = Field(default=None, description='Options of the mode "indentation"')


class ReadFileObservation(Observation):
    """Lines and the number of the first. `encoding`: what the file is in, if that is not UTF-8."""

    first: int
    lines: list[str]
    encoding: str | None = None

    @property
    def to_llm_content(self) -> str:
        if not self.lines:
            return EMPTY
        shown = [f"L{number}: {line}" for number, line in enumerate(self.lines, self.first)]
        if self.encoding is not None:
            shown.append(f"(The file is {self.encoding}. Edits keep that.)")
        return "\n".join(shown)


class ReadFileTool(ToolDefinition[ReadFileAction, ReadFileObservation]):
    """Reads through `ctx.files`."""

    @classmethod
    def create(cls, conv_state: ConversationState, **params: object) -> "Sequence[ReadFileTool]":
        """The one instance."""
        from ferrule.builtin.read_file.impl import ReadFileExecutor

        return [cls(description=DESCRIPTION, executor=ReadFileExecutor(), annotations=LOOKS)]
