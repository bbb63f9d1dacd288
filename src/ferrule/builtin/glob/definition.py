"""What `glob` takes and answers."""

from collections.abc import Sequence

from pydantic import Field

from ferrule.builtin.glob import DESCRIPTION
from ferrule.builtin.hints import LOOKS
from ferrule.tools.conversation import ConversationState
from ferrule.tools.definition import Action, Observation, ToolDefinition

LIMIT = 100
"""Paths that are returned, as models know it."""


class GlobAction(Action):
    """A glob, and where it starts."""

    pattern: str = Field(description='The glob, such as "**/*.js" or "src/**/*.ts"')
    path: str | None = Field(default=None, description="The directory to search; the session's by default")


class GlobObservation(Observation):
    """Absolute paths, the last changed first."""

    files: list[str]
    pattern: str
    search_path: str
    truncated: bool
    warnings: tuple[str, ...] = ()

    @property
    def to_llm_content(self) -> str:
        if not self.files:
            head = f"No files found matching pattern '{self.pattern}' in directory '{self.search_path}'"
            return "\n".join([head, *self.warnings])
        head = f"Found {len(self.files)} file(s) matching pattern '{self.pattern}' in '{self.search_path}':"
        cut = ["", f"[Results truncated to first {LIMIT} files. Use a narrower pattern.]"] if self.truncated else []
        return "\n".join([head, *self.files, *cut, *self.warnings])


class GlobTool(ToolDefinition[GlobAction, GlobObservation]):
    """Lists with ripgrep or in Python."""

    @classmethod
    def create(cls, conv_state: ConversationState, **params: object) -> "Sequence[GlobTool]":
        """The one instance."""
        from ferrule.builtin.glob.impl import GlobExecutor

        return [cls(description=DESCRIPTION, executor=GlobExecutor(conv_state), annotations=LOOKS)]
