"""What `search_tool_bm25` takes and answers."""

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, Field

from ferrule.builtin.hints import LOOKS
from ferrule.builtin.search_tool_bm25 import DESCRIPTION
from ferrule.protocol.errors import RespondToModel
from ferrule.tools.conversation import ConversationState
from ferrule.tools.definition import Action, Observation, ToolDefinition
from ferrule.tools.search import DEFAULT_LIMIT, ToolSearch


class SearchAction(Action):
    """What to look for."""

    query: str = Field(description="Words that say what the tool should do, or parts of its name")
    limit: int | None = Field(default=None, description=f"How many tools to find at most; {DEFAULT_LIMIT} by default")


def checked(action: SearchAction) -> tuple[str, int]:
    """The query and the limit. Raises `RespondToModel` where there is nothing to look for."""
    if not action.query.strip():
        raise RespondToModel("query must not be empty")
    limit = DEFAULT_LIMIT if action.limit is None else action.limit
    if limit < 1:
        raise RespondToModel("limit must be greater than zero")
    return action.query, limit


class FoundTool(BaseModel):
    """One tool that was found. `name` is what it is called by."""

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
    """The tools that fit, the best first, and the names of all that were found so far."""

    query: str
    total_tools: int
    active_selected_tools: list[str]
    tools: list[FoundTool]


class SearchToolBm25Tool(ToolDefinition[SearchAction, SearchToolBm25Observation]):
    """Searches the session's deferred tools."""

    @classmethod
    def create(cls, conv_state: ConversationState, **params: object) -> "Sequence[SearchToolBm25Tool]":
        """The one instance."""
        from ferrule.builtin.search_tool_bm25.impl import SearchToolBm25Executor

        executor = SearchToolBm25Executor(conv_state.shared.get(ToolSearch))
        return [cls(name="search_tool_bm25", description=DESCRIPTION, executor=executor, annotations=LOOKS)]
