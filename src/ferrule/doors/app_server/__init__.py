"""`ferrule app-server`: threads and turns over JSON-RPC, in the shapes of the Codex app-server."""
