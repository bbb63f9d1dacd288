"""MCP tools for code without a session: connect, list, return the definitions."""

import asyncio
from collections.abc import Mapping
from typing import Any

from ferrule.config.mcp_json import mcp_servers_of
from ferrule.mcp.client import MCPClient
from ferrule.mcp.tools import MCPToolDefinition
from ferrule.sync import wait_for_coroutine


def create_mcp_tools(config: Mapping[str, Any], timeout: float = 60.0, *, cwd: str = ".") -> list[MCPToolDefinition]:
    """Return the tools of all servers of `{"mcpServers": {...}}`, connected concurrently within `timeout` seconds.

    They work in plain code and on any loop; closing one closes the connection to its server, and so does the end of the
    program. Raises `McpFailure`, `UsageError` for a wrong configuration, and `TimeoutError`.
    """
    clients = [
        MCPClient(name, settings, cwd=cwd) for name, settings in mcp_servers_of(config).items() if settings.enabled
    ]
    return wait_for_coroutine(_listed(clients), timeout)


async def _listed(clients: list[MCPClient]) -> list[MCPToolDefinition]:
    try:
        lists = await asyncio.gather(*(client.list_tools() for client in clients))
    except BaseException:
        await asyncio.gather(*(client.close() for client in clients))
        raise
    pairs = [(tool, client) for client, tools in zip(clients, lists, strict=True) for tool in tools]
    return [MCPToolDefinition(tool, client) for tool, client in pairs if tool.unusable is None]
