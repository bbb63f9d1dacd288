"""Tools of remote MCP servers, run for a client of the Responses API."""
