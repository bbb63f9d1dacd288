"""What `grep` takes and answers."""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from ferrule.builtin.grep import DESCRIPTION
from ferrule.builtin.hints import LOOKS
from ferrule.tools.conversation import ConversationState
from ferrule.tools.definition import Action, Observation, ToolDefinition

LIMIT = 100
"""Files that are returned, as models know it."""

Mode = Literal["files_with_matches", "content", "count"]


class GrepAction(Action):
    """What to look for, where, and what to return of it."""

    pattern: str = Field(description="The regular expression")
    path: str | None = Field(default=None, description="A directory or file; the session's directory by default")
    include: str | None = Field(
        default=None, description='A glob that the files must match, such as "*.js" or "*.{ts,tsx}"'
    )
    output_mode: Mode = Field(
        default="files_with_matches", description='"files_with_matches" (the default), "content" or "count"'
    )
    context: int | None = Field(
        default=None, description="With content: how many lines to show before and after each match; none by default"
    )


class GrepObservation(Observation):
    """Results as they are shown, one a line: paths, lines or counts. `files` is how many files match."""

    matches: list[str]
    files: int
    pattern: str
    search_path: str
    include_pattern: str | None
    truncated: bool
    warnings: tuple[str, ...] = ()

    @property
    def to_llm_content(self) -> str:
        filtered = f" (filtered by '{self.include_pattern}')" if self.include_pattern else ""
        if not self.matches:
            head = f"No files found containing pattern '{self.pattern}' in directory '{self.search_path}'{filtered}"
            return "\n".join([head, *self.warnings])
        head = f"Found {self.files} file(s) containing pattern '{self.pattern}' in '{self.search_path}'{filtered}:"
        cut = ["", "[Results truncated. Use a more specific pattern or path.]"] if self.truncated else []
        return "\n".join([head, *self.matches, *cut, *self.warnings])


class GrepTool(ToolDefinition[GrepAction, GrepObservation]):
    """Searches with ripgrep or in Python."""

    @classmethod
    def create(cls, conv_state: ConversationState, **params: object) -> "Sequence[GrepTool]":
        """The one instance."""
        from ferrule.builtin.grep.impl import GrepExecutor

        return [cls(description=DESCRIPTION, executor=GrepExecutor(conv_state), annotations=LOOKS)]
