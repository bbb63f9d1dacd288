"""HTTP connections with bounds on what a client may send before it is known: the head of a request."""

import asyncio
from typing import Any

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from ferrule.responses.errors import ApiError

MAX_HEAD_BYTES = 64 << 10
"""Bytes of a request's head; other servers take a quarter of that."""

HEAD_S = 60.0
"""Seconds for a head to come whole: a connection that sends none would be kept for nothing."""

MOST_WAITING = 16 << 10
"""Bytes that wait for the end of a turn: more than any head with a first event."""

TOO_LARGE = "The head of the request is too large."

_BAD_REQUEST = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n"
)


class JoinedWrites(asyncio.Transport):
    """A transport that sends together what is written within two turns of the loop: the head of an answer and its
    first events, the last text and the end. Each packet costs a client more than the events in it."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._transport = transport
        self._loop = loop
        self._waiting = b""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes soon, or now if they are many: a slow client must be felt."""
        if not self._waiting:
            self._loop.call_soon(self._loop.call_soon, self._flush)
        self._waiting += data
        if len(self._waiting) > MOST_WAITING:
            self._flush()

    def _flush(self) -> None:
        data, self._waiting = self._waiting, b""
        if data and not self._transport.is_closing():
            self._transport.write(data)

    def close(self) -> None:
        """Send what waits, then close."""
        self._flush()
        self._transport.close()

    def abort(self) -> None:
        """Close at once."""
        self._waiting = b""
        self._transport.abort()

    def is_closing(self) -> bool:
        """Return whether it is closed or closing."""
        return self._transport.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        """Return what is known of the connection."""
        return self._transport.get_extra_info(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """Hand the connection to another protocol."""
        self._transport.set_protocol(protocol)

    def pause_reading(self) -> None:
        """Take nothing from the client for now."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Take from the client again."""
        self._transport.resume_reading()


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol, which has no such bounds."""

    _head_bytes = 0
    _is_in_head = False
    _ending: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(JoinedWrites(transport, self.loop))
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._head_came()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """Count a new head."""
        super().on_message_begin()
        self._is_in_head, self._head_bytes = True, 0
        self._expect_head()

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self._is_in_head = False
        self._head_came()
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        """Take bytes; refuse a head that does not end."""
        super().data_received(data)
        if self._is_in_head and not self.transport.is_closing():
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self.send_400_response(TOO_LARGE)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP, as every other error is told."""
        body = msgspec.json.encode(ApiError(msg, code="invalid_http").body)
        self.transport.write(_BAD_REQUEST % len(body) + body)
        self.transport.close()

    def _should_upgrade(self) -> bool:
        """Take a WebSocket by GET alone: the handshake of anything else would never be answered."""
        return self.scope["method"] == "GET" and super()._should_upgrade()

    def _expect_head(self) -> None:
        self._head_came()
        self._ending = self.loop.call_later(HEAD_S, self.transport.close)

    def _head_came(self) -> None:
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None
