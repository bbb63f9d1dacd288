"""A server's tools: as the client is shown them, as the conversation keeps them, and as the model is told of them."""

import hashlib
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ferrule.hosted.mcp.declared import RemoteServer
from ferrule.hosted.records import ToolList, record_in
from ferrule.mcp.client import McpTool, tool_of
from ferrule.mcp.names import qualified_name
from ferrule.mcp.tools import mcp_tool_to_openai_tool, shown_description
from ferrule.protocol.items import ResponseItem
from ferrule.protocol.json_text import JsonObject
from ferrule.protocol.specs import ResponsesApiTool
from ferrule.tools.tasks import run_blocking

MOST_TOOLS = 256
"""Of one server: the model is told of all of them in each request."""
LIST_BYTES = 1 << 20
"""Of all descriptions and schemas of one server's tools: more than fits into a model's context beside anything else."""
MOST_DEFERRED = 5_000
"""Of one server, where the model looks for them: it is told of those that it finds."""
DEFERRED_BYTES = 8 << 20
"""Of their descriptions and schemas: the client is told of all of them, once."""
KEPT_TOOLS = 20_000
"""Of all servers: some 100 MB."""
LONGEST_ABOUT = 200
"""Characters of the client's description of a server that stand in each of its tools."""


def entries_of(server: RemoteServer, tools: Iterable[McpTool]) -> tuple[JsonObject, ...]:
    """Return the tools that the model may know, as the API shows them."""
    usable = (tool for tool in tools if tool.unusable is None and not tool.as_task)
    meant = [tool for tool in usable if server.allows(tool.name, read_only=tool.annotations.readOnlyHint)]
    shown: Sequence[JsonObject] = [
        {
            "name": tool.name,
            "description": shown_description(tool.description),
            "input_schema": tool.schema.mapping,
            "annotations": msgspec.to_builtins(tool.annotations) or None,
        }
        for tool in meant
    ]
    return tuple(server.cleared(entry, kept="name") for entry in shown)


def too_many(entries: Sequence[JsonObject], *, deferred: bool) -> str | None:
    """Say why a list is not taken; None if it is. `deferred`: the model looks for its tools."""
    most, bytes_ = (MOST_DEFERRED, DEFERRED_BYTES) if deferred else (MOST_TOOLS, LIST_BYTES)
    advice = "" if deferred else "; or defer them: defer_loading, and the tool tool_search"
    if len(entries) > most:
        return f"the MCP server has {len(entries)} tools; name up to {most} of them in allowed_tools{advice}"
    size = len(msgspec.json.encode(entries))
    if size > bytes_:
        return f"the descriptions of its tools have {size:,} bytes; name in allowed_tools those that are needed{advice}"
    return None


def source_of(server: RemoteServer) -> str:
    """Return what tells one server and choice of tools from another: a list is good for this one alone."""
    meant = msgspec.json.encode((server.server_url, msgspec.to_builtins(server.allowed_tools)))
    return hashlib.sha256(meant).hexdigest()


def known_list(items: Sequence[ResponseItem], server: RemoteServer) -> tuple[JsonObject, ...] | None:
    """Return the newest list of a server's tools in a conversation; None if there is none that is good."""
    for item in reversed(items):
        known = record_in(item, ToolList)
        if known is not None and known.server == server.server_label and known.source in ("", source_of(server)):
            return known.tools
    return None


def tools_in(server: RemoteServer, entries: Iterable[JsonObject]) -> dict[str, McpTool]:
    """Return the tools that the model may know, by the names of their functions."""
    found: dict[str, McpTool] = {}
    for entry in entries:
        raw = {**entry, "inputSchema": entry.get("input_schema")}
        tool = tool_of(server.server_label, raw, runs_tasks=False)
        if tool is not None and server.allows(tool.name, read_only=tool.annotations.readOnlyHint):
            found.setdefault(qualified_name(server.server_label, tool.name), tool)
    return found


class ServerTools(msgspec.Struct, frozen=True):
    """A server's tools by the names of their functions, and the functions."""

    tools: Mapping[str, McpTool]
    functions: tuple[ResponsesApiTool, ...]


class ListCache:
    """Makes tools of lists, and keeps them for the next responses: that takes a fifth of a millisecond a tool."""

    def __init__(self) -> None:
        self._kept: OrderedDict[bytes, ServerTools] = OrderedDict()

    async def tools_of(self, server: RemoteServer, entries: tuple[JsonObject, ...]) -> ServerTools:
        """Return the tools of a list, made beside the event loop."""
        meant = (server.server_label, server.server_description, source_of(server), entries)
        key = hashlib.sha256(msgspec.json.encode(meant)).digest()
        known = self._kept.get(key)
        if known is None:
            known = self._kept[key] = await run_blocking(_made, server, entries)
        self._kept.move_to_end(key)
        while sum(len(one.tools) for one in self._kept.values()) > KEPT_TOOLS and len(self._kept) > 1:
            self._kept.popitem(last=False)
        return known


def _made(server: RemoteServer, entries: tuple[JsonObject, ...]) -> ServerTools:
    tools = tools_in(server, entries)
    return ServerTools(tools, functions_of(server, tools))


def functions_of(server: RemoteServer, tools: Mapping[str, McpTool]) -> tuple[ResponsesApiTool, ...]:
    """Return the functions that the model is told of."""
    about = shown_description(server.server_description or "")[:LONGEST_ABOUT].strip()
    return tuple(_function(name, tool, about) for name, tool in tools.items())


def _function(name: str, tool: McpTool, about: str) -> ResponsesApiTool:
    function = mcp_tool_to_openai_tool(name, tool)
    described = "\n\n".join(filter(None, [function.description, about and f"Server {tool.server}: {about}"]))
    return msgspec.structs.replace(function, description=described)
