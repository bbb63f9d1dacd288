"""What goes wrong between us and a server, sorted by what the user can do about it."""

from typing import Literal

from ferrule.protocol.errors import FerruleError

FailureKind = Literal["launch", "timeout", "crash", "login", "unreachable", "refused"]


class McpFailure(FerruleError):
    """The server could not be started, reached or used. The text is one sentence that names the server; `said` is what
    it says of it."""

    def __init__(self, server: str, kind: FailureKind, text: str) -> None:
        super().__init__(f"MCP server {server} {text}")
        self.server = server
        self.said = text
        self.kind: FailureKind = kind
