"""Failures of a server, sorted by what the user can do about them."""

from typing import Literal

from ferrule.protocol.errors import FerruleError
from ferrule.protocol.mcp_settings import McpServerSettings

FailureKind = Literal["launch", "timeout", "crash", "login", "unreachable", "refused"]

_STEPS: dict[FailureKind, str] = {
    "launch": "install it, or correct the server's `command`",
    "timeout": "give it more time with startup_timeout",
    "crash": "run its command yourself to see more",
    "unreachable": "check its url and the network",
    "refused": "check its settings and its version",
}
"""What to do next; what needs a login says so itself."""


class McpFailure(FerruleError):
    """A server could not be started, reached or used. The text is one sentence: the server's name, then `said`."""

    def __init__(self, server: str, kind: FailureKind, text: str) -> None:
        super().__init__(f"MCP server {server} {text}")
        self.server = server
        self.said = text
        self.kind: FailureKind = kind

    def next_step(self, settings: McpServerSettings) -> str:
        """Return what the user can do about it; empty if the text says so already."""
        if self.kind == "crash" and settings.url is not None:
            return _STEPS["unreachable"]
        return _STEPS.get(self.kind, "")

    def as_required(self, settings: McpServerSettings) -> "McpFailure":
        """Return the failure of a server that the session needs, with what to do next."""
        step = self.next_step(settings)
        then = f": {step}, or set required = false to go on without it" if step else ""
        return McpFailure(self.server, self.kind, f"{self.said} (it is required){then}")
