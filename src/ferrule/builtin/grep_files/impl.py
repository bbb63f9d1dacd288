"""Lists the files that match."""

from ferrule.builtin.grep_files.definition import GrepFilesAction, GrepFilesObservation
from ferrule.builtin.paging import shown_name, whole
from ferrule.builtin.searching.door import Searcher, shown_warnings
from ferrule.builtin.searching.request import Search, newest_first
from ferrule.protocol.errors import RespondToModel
from ferrule.tools.commands import Commands
from ferrule.tools.context import ToolContext
from ferrule.tools.executor import ToolExecutor

DEFAULT_LIMIT = 100
MAX_LIMIT = 2000
"""What models expect."""


class GrepFilesExecutor(ToolExecutor[GrepFilesAction, GrepFilesObservation]):
    """Only the names that are shown are made readable: others may be many."""

    def __init__(self, commands: Commands) -> None:
        self._searcher = Searcher(commands, "grep_files")

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
        found = await self._searcher.search(Search(path=path, cwd=ctx.cwd, pattern=pattern, include=include), ctx)
        files = newest_first(found.files)[:limit]
        return GrepFilesObservation(
            paths=[shown_name(file.path) for file in files], warnings=shown_warnings(found.warnings)
        )
