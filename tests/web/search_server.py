"""An MCP server with a search tool, for tests."""

from mcp.server import MCPServer

app = MCPServer("search")


@app.tool()
def web_search(query: str, num_results: int = 3) -> str:
    """Search the web."""
    return f"Title: {query} {num_results}\nURL: https://a.example/x\nDescription: words\n\nNo hit here"


@app.tool()
def other() -> str:
    """Do something else."""
    return ""


if __name__ == "__main__":
    app.run()
