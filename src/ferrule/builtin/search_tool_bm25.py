"""`search_tool_bm25`: the older form of `tool_search`, a function that answers with JSON."""

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, Field

from ferrule.builtin.hints import LOOKS
from ferrule.protocol.errors import RespondToModel
from ferrule.tools.action import Action, Observation
from ferrule.tools.context import ToolContext
from ferrule.tools.conversation import ConversationState
from ferrule.tools.definition import ToolDefinition
from ferrule.tools.executor import ToolExecutor
from ferrule.tools.search import DEFAULT_LIMIT, Hit, ToolSearch

DESCRIPTION = """\
Looks for tools of MCP servers, plugins and the client that are not listed here, with BM25 over their names, titles, \
descriptions, servers and parameters. The tools that it finds can be called from the next request on. Search before \
you say that something cannot be done."""


class SearchAction(Action):
    """Words to search for."""

    query: str = Field(description="Words that say what the tool should do, or parts of its name")
    limit: int | None = Field(default=None, description=f"How many tools to find at most; {DEFAULT_LIMIT} by default")


def checked(action: SearchAction) -> tuple[str, int]:
    """Return the query and the limit. Raises `RespondToModel` where there is nothing to look for."""
    if not action.query.strip():
        raise RespondToModel("query must not be empty")
    limit = DEFAULT_LIMIT if action.limit is None else action.limit
    if limit < 1:
        raise RespondToModel("limit must be greater than zero")
    return action.query, limit


class FoundTool(BaseModel):
    """A tool that was found, by the name to call it."""

    model_config = ConfigDict(frozen=True)

    name: str
    server: str | None
    title: str | None
    description: str
    connector_id: str | None = None
    connector_name: str | None = None
    input_keys: list[str]
    score: float


class SearchToolBm25Observation(Observation):
    """The matching tools, best first, and the names of all tools found so far."""

    query: str
    total_tools: int
    active_selected_tools: list[str]
    tools: list[FoundTool]


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


class SearchToolBm25Tool(ToolDefinition[SearchAction, SearchToolBm25Observation]):
    """Searches the session's deferred tools."""

    @classmethod
    def create(cls, conv_state: ConversationState, **params: object) -> "Sequence[SearchToolBm25Tool]":
        """Create one for the conversation."""
        executor = SearchToolBm25Executor(conv_state.shared.get(ToolSearch))
        return [cls(name="search_tool_bm25", description=DESCRIPTION, executor=executor, annotations=LOOKS)]


TOOL = SearchToolBm25Tool
