"""The SDK's own server, for the benchmarks of MCP calls."""

from mcp.server import MCPServer
from mcp.types import ToolAnnotations

server = MCPServer("echo")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def echo(text: str) -> str:
    """Say it again."""
    return f"ECHO: {text}"


if __name__ == "__main__":
    server.run("stdio")
