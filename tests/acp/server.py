"""An MCP server with one tool, which says a word of its environment."""

import os

from mcp.server import MCPServer

server = MCPServer("words")


@server.tool()
def word() -> str:
    """Say the word."""
    return os.environ["WORD"]


if __name__ == "__main__":
    server.run()
