"""The door for MCP clients: the tools of a session, or an agent, over stdio and streamable HTTP."""
