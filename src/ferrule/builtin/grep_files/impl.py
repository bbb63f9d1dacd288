"""Lists the files that match."""

from ferrule.builtin.grep_files.definition import GrepFilesAction, GrepFilesObservation
from ferrule.builtin.paging import shown_name, whole
from ferrule.builtin.searching.door import Searcher, shown_warnings
from ferrule.builtin.searching.request import Search
from ferrule.protocol.errors import RespondToModel
from ferrule.tools.context import ToolContext
from ferrule.tools.conversation import ConversationState
from ferrule.tools.executor import ToolExecutor

DEFAULT_LIMIT = 100
MAX_LIMIT = 2000
"""What models expect."""


class GrepFilesExecutor(ToolExecutor[GrepFilesAction, GrepFilesObservation]):
    """Only the names that are shown are made readable: others may be many."""

    def __init__(self, state: ConversationState) -> None:
        self._searcher = Searcher(state.commands)

    async def __call__(self, action: GrepFilesAction, ctx: ToolContext) -> GrepFilesObservation:
        """The paths. Raises `RespondToModel`."""
        pattern = action.pattern.strip()
        limit = min(whole(action.limit, "limit", DEFAULT_LIMIT), MAX_LIMIT)
        if not pattern:
            raise RespondToModel("pattern must not be empty")
        if limit < 1:
            raise RespondToModel("limit must be greater than zero")
        include = (action.include or "").strip() or None
        path = ctx.files.path(action.path or ctx.cwd)
        found = await self._searcher.search(
            Search(path=path, cwd=ctx.cwd, pattern=pattern, include=include, newest=limit)
        )
        return GrepFilesObservation(
            paths=[shown_name(path) for path in found.files], warnings=shown_warnings(found.warnings)
        )
