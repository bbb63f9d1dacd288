"""`search_tool_bm25`: the older form of `tool_search`, a function that answers with JSON."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ferrule.builtin.schemas import function_spec
from ferrule.protocol.specs import ToolSpec
from ferrule.tools.conversation import ConversationState

if TYPE_CHECKING:
    from ferrule.builtin.search_tool_bm25.definition import SearchToolBm25Tool

DESCRIPTION = """\
Looks for tools of MCP servers, plugins and the client that are not listed here, with BM25 over their names, titles, \
descriptions, servers and parameters. The tools that it finds can be called from the next request on. Search before \
you say that something cannot be done."""


def spec(state: ConversationState) -> ToolSpec:
    """What the model sees."""
    return function_spec("search_tool_bm25", DESCRIPTION)


def create(state: ConversationState) -> "Sequence[SearchToolBm25Tool]":
    """The tool."""
    from ferrule.builtin.search_tool_bm25.definition import SearchToolBm25Tool

    return SearchToolBm25Tool.create(state)
