"""`grep_files`: which files match a regular expression."""

from collections.abc import Sequence

from pydantic import Field

from ferrule.builtin.hints import LOOKS
from ferrule.builtin.paging import shown_name, whole
from ferrule.builtin.searching.door import Searcher, shown_warnings
from ferrule.builtin.searching.request import Search
from ferrule.protocol.errors import RespondToModel
from ferrule.tools.action import Action, Observation
from ferrule.tools.context import ToolContext
from ferrule.tools.conversation import ConversationState
from ferrule.tools.definition import ToolDefinition
from ferrule.tools.executor import ToolExecutor

DESCRIPTION = """\
Find the files that have a line matching a regular expression, and list their paths, the last changed first. Hidden \
and ignored files (`.gitignore`) are left out."""
NOTHING = "No matches found."


class GrepFilesAction(Action):
    """A pattern and the place to search."""

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


DEFAULT_LIMIT = 100
MAX_LIMIT = 2000
"""The default that models expect."""


class GrepFilesExecutor(ToolExecutor[GrepFilesAction, GrepFilesObservation]):
    """Only the names that are shown are made readable: others may be many."""

    def __init__(self, state: ConversationState) -> None:
        self._searcher = Searcher(state.commands)

    async def __call__(self, action: GrepFilesAction, ctx: ToolContext) -> GrepFilesObservation:
        """Return the paths. Raises `RespondToModel`."""
        pattern = action.pattern.strip()
        limit = min(whole(action.limit, "limit", DEFAULT_LIMIT), MAX_LIMIT)
        if not pattern:
            raise RespondToModel("pattern must not be empty")
        if limit < 1:
            raise RespondToModel("limit must be greater than zero")
        include = (action.include or "").strip() or None
        path = ctx.files.shown_path(action.path or ctx.cwd)
        found = await self._searcher.search(
            Search(path=path, cwd=ctx.cwd, pattern=pattern, include=include, newest=limit, shown=ctx.files.shown)
        )
        return GrepFilesObservation(
            paths=[shown_name(path) for path in found.files], warnings=shown_warnings(found.warnings)
        )


class GrepFilesTool(ToolDefinition[GrepFilesAction, GrepFilesObservation]):
    """Searches with ripgrep or in Python."""

    @classmethod
    def create(cls, conv_state: ConversationState, **params: object) -> "Sequence[GrepFilesTool]":
        """Create one for the conversation."""
        return [cls(description=DESCRIPTION, executor=GrepFilesExecutor(conv_state), annotations=LOOKS)]


TOOL = GrepFilesTool
