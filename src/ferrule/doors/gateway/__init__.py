"""The Responses API over HTTP and WebSocket. Needs the extra `gateway`."""
