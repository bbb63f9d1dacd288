"""Tools that the server runs for a client of the Responses API: a module a tool."""
