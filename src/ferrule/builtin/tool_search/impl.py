"""Searches, and lets what was found join the session's tools."""

from ferrule.builtin.search_tool_bm25.definition import SearchAction, checked
from ferrule.builtin.tool_search.definition import ToolSearchObservation
from ferrule.tools.context import ToolContext
from ferrule.tools.executor import ToolExecutor
from ferrule.tools.search import ToolSearch


class ToolSearchExecutor(ToolExecutor[SearchAction, ToolSearchObservation]):
    """The index is the session's."""

    def __init__(self, search: ToolSearch) -> None:
        self._search = search

    async def __call__(self, action: SearchAction, ctx: ToolContext) -> ToolSearchObservation:
        """Find the tools that fit best."""
        hits = self._search.search(*checked(action))
        return ToolSearchObservation.of([hit.tool for hit in hits])
