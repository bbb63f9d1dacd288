"""The shapes of the app-server's messages, as types. Names, on the wire in camel case, are those of Codex 0.171."""
