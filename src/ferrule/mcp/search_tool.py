"""The search tool of an MCP server, for the web search."""

import os
from collections.abc import Mapping
from typing import Any

from ferrule.lookup import NOWHERE, Places
from ferrule.mcp.client import MCPClient
from ferrule.protocol.errors import UsageError
from ferrule.protocol.json_text import JsonObject
from ferrule.protocol.mcp_settings import McpServerSettings
from ferrule.web.opening import Connect
from ferrule.web.other_backends import SearchTool


def search_tools_of(
    servers: Mapping[str, McpServerSettings],
    *,
    cwd: str,
    home: str,
    env: Mapping[str, str] = os.environ,
    places: Places = NOWHERE,
) -> Connect:
    """Return what connects one of the configured servers, with a client of its own, for its search tool."""

    async def connect(server: str, tool: str | None) -> SearchTool:
        client = MCPClient(server, servers[server], cwd=cwd, home=home, env=env, places=places)
        try:
            return await _search_tool(client, tool)
        except BaseException:
            await client.close()
            raise

    return connect


async def _search_tool(client: MCPClient, wanted: str | None) -> SearchTool:
    """Return the tool `wanted` of a server; None: the only one whose name speaks of a search. Raises `McpFailure`, and
    `UsageError` if there is none."""
    tools = await client.list_tools()
    meant = [tool for tool in tools if (tool.name == wanted if wanted else "search" in tool.name.lower())]
    if len(meant) != 1:
        what = f"no tool {wanted!r}" if wanted else f"{len(meant)} tools with `search` in their names"
        names = ", ".join(tool.name for tool in tools)
        raise UsageError(f"the MCP server {client.name} has {what}: set web_search.tool to one of {names}")
    (tool,) = meant
    properties = tool.schema.mapping.get("properties")

    async def call(arguments: JsonObject) -> Mapping[str, Any]:
        return await client.call_tool(tool.name, arguments)

    return SearchTool(frozenset(properties if isinstance(properties, Mapping) else ()), call, client.close)
