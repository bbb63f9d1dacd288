"""`tool_search`: the model looks for tools that a request does not list."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ferrule.builtin.schemas import schema
from ferrule.protocol.specs import ToolSearchTool as ToolSearchSpec
from ferrule.protocol.specs import ToolSpec
from ferrule.tools.conversation import ConversationState

if TYPE_CHECKING:
    from ferrule.builtin.tool_search.definition import ToolSearchTool

DESCRIPTION = """\
Looks for tools that are not listed here (of MCP servers, plugins and the client) by words of their names, \
descriptions and parameters. Search before you say that something cannot be done. The tools that it finds can be \
called from then on."""


def spec(state: ConversationState) -> ToolSpec:
    """What the model sees: the native item, which other wires get as a function."""
    parameters = dict(schema("search_tool_bm25").mapping)
    return ToolSearchSpec(execution="client", description=DESCRIPTION, parameters=parameters)


def create(state: ConversationState) -> "Sequence[ToolSearchTool]":
    """The tool."""
    from ferrule.builtin.tool_search.definition import ToolSearchTool

    return ToolSearchTool.create(state)
