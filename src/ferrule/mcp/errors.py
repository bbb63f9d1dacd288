"""Failures of a server, sorted by what the user can do about them."""

from typing import Literal

from ferrule.protocol.errors import FerruleError

FailureKind = Literal["launch", "timeout", "crash", "login", "unreachable", "refused"]


class McpFailure(FerruleError):
    """A server could not be started, reached or used. The text is one sentence: the server's name, then `said`."""

    def __init__(self, server: str, kind: FailureKind, text: str) -> None:
        super().__init__(f"MCP server {server} {text}")
        self.server = server
        self.said = text
        self.kind: FailureKind = kind
