"""What `grep_files` takes and answers."""

from collections.abc import Sequence

from pydantic import Field

from ferrule.builtin.grep_files import DESCRIPTION
from ferrule.builtin.hints import LOOKS
from ferrule.tools.conversation import ConversationState
from ferrule.tools.definition import Action, Observation, ToolDefinition

NOTHING = "No matches found."


class GrepFilesAction(Action):
    """What to look for, and where."""

    pattern: str = Field(description="The regular expression")
    include: str | None = Field(
        default=None, description='A glob that the files must match, such as "*.rs" or "*.{ts,tsx}"'
    )
    path: str | None = Field(default=None, description="A directory or file; the session's directory by default")
    limit: float | None = Field(default=None, description="The most paths to return; 100 by default, at most 2000")


class GrepFilesObservation(Observation):
    """Paths, the last changed first; and sentences on what could not be searched."""

    paths: list[str]
    warnings: tuple[str, ...] = ()

    @property
    def to_llm_content(self) -> str:
        return "\n".join([*(self.paths or [NOTHING]), *self.warnings])


class GrepFilesTool(ToolDefinition[GrepFilesAction, GrepFilesObservation]):
    """Searches with ripgrep or in Python."""

    @classmethod
    def create(cls, conv_state: ConversationState, **params: object) -> "Sequence[GrepFilesTool]":
        """The one instance."""
        from ferrule.builtin.grep_files.impl import GrepFilesExecutor

        return [cls(description=DESCRIPTION, executor=GrepFilesExecutor(conv_state), annotations=LOOKS)]
