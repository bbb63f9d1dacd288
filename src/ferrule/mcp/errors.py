"""Failures of a server, sorted by what the user can do about them."""

from typing import Literal

from ferrule.protocol.errors import FerruleError, RespondToModel
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
    """A server could not be started, reached or used. The text is one sentence: the server's name, then `said`.
    `code` is that of the protocol's error, `status` that of the HTTP answer, if it was one."""

    def __init__(
        self, server: str, kind: FailureKind, text: str, *, code: int | None = None, status: int | None = None
    ) -> None:
        super().__init__(f"MCP server {server} {text}")
        self.server = server
        self.said = text
        self.kind: FailureKind = kind
        self.code = code
        self.status = status

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


class CallFailed(RespondToModel):
    """A request to a server that it refused, did not answer, or may not have got. `code` is that of the protocol's
    error, `status` that of the HTTP answer or what a proxy would answer; None where there is none."""

    def __init__(self, message: str, *, code: int | None = None, status: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.status = status
