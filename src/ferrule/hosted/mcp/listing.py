"""A server's tools: as the client is shown them, as the conversation keeps them, and as the model is told of them."""

import hashlib
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

MOST_TOOLS = 256
"""Of one server: the model is told of all of them in each request."""
LIST_BYTES = 1 << 20
"""Of all descriptions and schemas of one server's tools: more than fits into a model's context beside anything else."""
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


def too_many(entries: Sequence[JsonObject]) -> str | None:
    """Say why a list is not taken; None if it is."""
    if len(entries) > MOST_TOOLS:
        return f"the MCP server has {len(entries)} tools; name up to {MOST_TOOLS} of them in allowed_tools"
    size = len(msgspec.json.encode(entries))
    if size > LIST_BYTES:
        return f"the descriptions of its tools have {size:,} bytes; name in allowed_tools those that are needed"
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


def functions_of(server: RemoteServer, tools: Mapping[str, McpTool]) -> tuple[ResponsesApiTool, ...]:
    """Return the functions that the model is told of."""
    about = shown_description(server.server_description or "")[:LONGEST_ABOUT].strip()
    return tuple(_function(name, tool, about) for name, tool in tools.items())


def _function(name: str, tool: McpTool, about: str) -> ResponsesApiTool:
    function = mcp_tool_to_openai_tool(name, tool)
    described = "\n\n".join(filter(None, [function.description, about and f"Server {tool.server}: {about}"]))
    return msgspec.structs.replace(function, description=described)
