"""Between the SDK's session and the bytes: keep answers as the server sent them.

The SDK is shown only the part that it needs itself (`lenient`), and the whole answer is left beside it, for the task
that asked.
"""

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any

import anyio
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import MCPError
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.message import MessageMetadata
from mcp.shared.transport_context import TransportContext
from mcp.types import UNSUPPORTED_PROTOCOL_VERSION, JSONRPCMessage, JSONRPCRequest
from mcp.types.version import HANDSHAKE_PROTOCOL_VERSIONS, LATEST_HANDSHAKE_VERSION

from ferrule.mcp.lenient import Answer, shown_answer

TRACE_FIELDS = frozenset({"traceparent", "tracestate", "baggage"})
"""What the W3C's propagators write; baggage holds whatever the program put there."""

_answer: ContextVar[Answer] = ContextVar("mcp_answer")


def take_answer() -> Answer:
    """Return the whole answer to this task's last request."""
    answer = _answer.get()
    _answer.set({})
    return answer


class Wire(JSONRPCDispatcher[TransportContext]):
    """The SDK's dispatcher, tolerant of what answers hold. `ended` is set when it is over; `greeting` is how the server
    answered the handshake."""

    def __init__(self, read: Any, write: Any, *, propagate: bool = False) -> None:
        """`propagate`: the server is sent the trace's id, and what else the program's propagators tell."""
        super().__init__(read, write)
        self._propagate = propagate
        self.ended = anyio.Event()
        self.greeting: Answer = {}

    async def run(self, *args: Any, **kwargs: Any) -> None:
        try:
            await super().run(*args, **kwargs)
        finally:
            self.ended.set()

    async def _write(self, message: JSONRPCMessage, metadata: MessageMetadata = None) -> None:
        """Write a message. The SDK puts the trace into each request where the program has set up OpenTelemetry."""
        if not self._propagate and isinstance(message, JSONRPCRequest):
            message = _without_trace(message)
        await super()._write(message, metadata)

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None, **private: Any
    ) -> dict[str, Any]:
        raw = await super().send_raw_request(method, params, opts, **private)
        shown = shown_answer(method, raw, LATEST_HANDSHAKE_VERSION)
        if shown is None:
            return raw
        _answer.set(raw)
        if method in ("initialize", "server/discover"):
            self.greeting = raw
        if method == "initialize":
            _check_version(shown["protocolVersion"])
        return shown

    async def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """Return the answer to a request that the SDK does not know. Raises `MCPError`."""
        return await super().send_raw_request(method, params)


def _without_trace(message: JSONRPCRequest) -> JSONRPCRequest:
    meta = (message.params or {}).get("_meta") or {}
    if not TRACE_FIELDS & meta.keys():
        return message
    kept = {name: value for name, value in meta.items() if name not in TRACE_FIELDS}
    params = {name: value for name, value in (message.params or {}).items() if name != "_meta"}
    params |= {"_meta": kept} if kept else {}
    return message.model_copy(update={"params": params or None})


def _check_version(version: str) -> None:
    if version not in HANDSHAKE_PROTOCOL_VERSIONS:
        known = ", ".join(HANDSHAKE_PROTOCOL_VERSIONS)
        text = f"it speaks version {version[:40]!r} of the protocol, and we know {known}"
        raise MCPError(UNSUPPORTED_PROTOCOL_VERSION, text)
