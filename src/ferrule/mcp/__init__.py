"""MCP servers as tools: the client, the bridge to our tools, and what a session needs of both.

    for tool in create_mcp_tools({"mcpServers": {"fetch": {"command": "uvx", "args": ["mcp-server-fetch"]}}}):
        print(tool.name, tool.description)

`connection.py`, `stdio.py`, `http.py`, `wire.py` and `login.py` import the SDK; nothing else here does, and they are
imported only where a server is used. docs/mcp.md is the user's view.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ferrule.mcp.client import MCPClient, McpTool
    from ferrule.mcp.create import create_mcp_tools
    from ferrule.mcp.errors import McpFailure
    from ferrule.mcp.schema import Schema
    from ferrule.mcp.source import McpSource
    from ferrule.mcp.tools import (
        MCPToolAction,
        MCPToolDefinition,
        MCPToolExecutor,
        MCPToolObservation,
        mcp_tool_to_openai_tool,
    )

__all__ = [
    "MCPClient",
    "MCPToolAction",
    "MCPToolDefinition",
    "MCPToolExecutor",
    "MCPToolObservation",
    "McpFailure",
    "McpSource",
    "McpTool",
    "Schema",
    "create_mcp_tools",
    "mcp_tool_to_openai_tool",
]

_HOMES = {
    "MCPClient": "client", "McpTool": "client", "McpFailure": "errors", "McpSource": "source", "Schema": "schema",
    "create_mcp_tools": "create", "MCPToolAction": "tools", "MCPToolDefinition": "tools", "MCPToolExecutor": "tools",
    "MCPToolObservation": "tools", "mcp_tool_to_openai_tool": "tools",
}  # fmt: skip


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
