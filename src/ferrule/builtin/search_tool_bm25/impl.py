"""Searches, and lets what was found join the session's tools."""

from ferrule.builtin.search_tool_bm25.definition import (
    FoundTool,
    SearchAction,
    SearchToolBm25Observation,
    checked,
)
from ferrule.tools.context import ToolContext
from ferrule.tools.executor import ToolExecutor
from ferrule.tools.search import Hit, ToolSearch


class SearchToolBm25Executor(ToolExecutor[SearchAction, SearchToolBm25Observation]):
    """The index is the session's."""

    def __init__(self, search: ToolSearch) -> None:
        self._search = search

    async def __call__(self, action: SearchAction, ctx: ToolContext) -> SearchToolBm25Observation:
        """Find the tools that fit best."""
        query, limit = checked(action)
        hits = self._search.search(query, limit)
        return SearchToolBm25Observation(
            query=query.strip(),
            total_tools=len(self._search.tools),
            active_selected_tools=[tool.flat_name for tool in self._search.found],
            tools=[_found(hit) for hit in hits],
        )


def _found(hit: Hit) -> FoundTool:
    tool = hit.tool
    return FoundTool(
        name=tool.flat_name,
        server=tool.server,
        title=tool.title or None,
        description=tool.spec.description,
        input_keys=tool.parameter_names,
        score=round(hit.score, 4),
    )
