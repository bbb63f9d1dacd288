"""The SDK's own server, for the benchmark of MCP calls."""

from mcp.server import MCPServer

server = MCPServer("echo")


@server.tool()
def echo(text: str) -> str:
    """Say it again."""
    return f"ECHO: {text}"


if __name__ == "__main__":
    server.run("stdio")
