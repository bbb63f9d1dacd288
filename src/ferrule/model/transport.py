"""The direct connections of the HTTP client, over asyncio's streams, with `h11` as the parser.

The pool of `httpcore2` looks at every open connection for each request, and its streams are made for three kinds of
event loops: of the time that a short request takes, they need more than half. Chunks are merged before the parser sees
them. Imported when the first connection is made: it brings the HTTP library.
"""

import asyncio
import errno
import os
import select
import ssl
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import h11
import httpx2

from ferrule.model.chunks import ChunkMerger

MAX_HEAD_BYTES = 100 * 2**10
"""Bytes of an answer's head: other clients take as many."""
READ_BYTES = 64 * 2**10
"""Bytes that are read at once."""
SECOND_ADDRESS_S = 0.25
"""Seconds after which the next address of a host is tried beside the one that does not answer (RFC 8305)."""

Timeouts = dict[str, float | None]


class DirectTransport(httpx2.AsyncBaseTransport):
    """Connections without a proxy. `idle` are kept at most, each for `idle_s` seconds."""

    def __init__(self, context: ssl.SSLContext, *, idle: int, idle_s: float) -> None:
        self._context = context
        self._most = idle
        self._idle_s = idle_s
        self._idle: list[_Connection] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request with its whole body, and return the answer when its head has arrived."""
        timeouts: Timeouts = request.extensions.get("timeout", {})
        connection = self._unused(_origin(request.url)) or await self._connect(request.url, timeouts.get("connect"))
        try:
            await connection.send(request, await request.aread(), timeouts.get("write"))
            head = await connection.head(timeouts.get("read"))
        except BaseException:
            connection.abort()
            raise
        return httpx2.Response(
            status_code=head.status_code,
            headers=head.headers.raw_items(),
            stream=_Body(self, connection, timeouts.get("read")),
            extensions={"http_version": b"HTTP/" + head.http_version, "reason_phrase": bytes(head.reason)},
        )

    def release(self, connection: "_Connection") -> None:
        """Keep a connection for the next request, if its answer is whole."""
        if not connection.begin_anew():
            connection.abort()
            return
        connection.unused_since = time.monotonic()
        self._idle.append(connection)
        if len(self._idle) > self._most:
            self._idle.pop(0).abort()

    async def aclose(self) -> None:
        """Close the connections that nobody uses."""
        closing, self._idle = self._idle, []
        for connection in closing:
            connection.abort()
        for connection in closing:
            await connection.closed()

    def _unused(self, origin: "_Origin") -> "_Connection | None":
        """Take the connection that was used last; close those that are too old, or that the server has closed."""
        oldest = time.monotonic() - self._idle_s
        for connection in reversed(self._idle):
            if connection.origin == origin:
                self._idle.remove(connection)
                if connection.unused_since >= oldest and connection.is_alive():
                    return connection
                connection.abort()
        return None

    async def _connect(self, url: httpx2.URL, timeout: float | None) -> "_Connection":
        _, host, port = origin = _origin(url)
        is_tls = url.scheme == "https"
        if is_tls:
            self._context.set_alpn_protocols(["http/1.1"])
        try:
            async with asyncio.timeout(timeout):
                reader, writer = await asyncio.open_connection(
                    host.decode(),
                    port,
                    limit=READ_BYTES,
                    ssl=self._context if is_tls else None,
                    happy_eyeballs_delay=SECOND_ADDRESS_S,
                )
        except TimeoutError as error:
            raise httpx2.ConnectTimeout("it did not answer") from error
        except OSError as error:
            raise httpx2.ConnectError(_why(error)) from error
        return _Connection(origin, reader, writer)


_Origin = tuple[str, bytes, int]


def _origin(url: httpx2.URL) -> _Origin:
    return url.scheme, url.raw_host, url.port or (443 if url.scheme == "https" else 80)


def _why(error: OSError) -> str:
    """Return why no connection was made: in the system's words, since asyncio's tell of functions and tuples."""
    if error.errno is None:
        return "none of its addresses answers"
    is_systems = error.errno in errno.errorcode and not isinstance(error, ssl.SSLError)
    return os.strerror(error.errno) if is_systems else str(error)


class _Connection:
    """One connection, and what has been read of its answer."""

    def __init__(self, origin: _Origin, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.origin = origin
        self.unused_since = 0.0
        self._reader = reader
        self._writer = writer
        self._parser = h11.Connection(h11.CLIENT, MAX_HEAD_BYTES)
        self._merger = ChunkMerger()

    async def send(self, request: httpx2.Request, body: bytes, timeout: float | None) -> None:
        """Send a request. A server that stops reading has answered already: the answer says why."""
        self._merger.reset()
        parser = self._parser
        with _translated():
            head = h11.Request(method=request.method, target=request.url.raw_path, headers=request.headers.raw)
            parts = [parser.send(head), parser.send(h11.Data(body)), parser.send(h11.EndOfMessage())]
        try:
            self._writer.write(b"".join(part for part in parts if part))
            async with asyncio.timeout(timeout):
                await self._writer.drain()
        except TimeoutError as error:
            raise httpx2.WriteTimeout("") from error
        except OSError:
            return
        if (trace := request.extensions.get("trace")) is not None:
            await trace("http11.send_request_body.complete", {})

    async def head(self, timeout: float | None) -> h11.Response:
        """Read the head of the answer."""
        while True:
            event = await self._event(timeout)
            if isinstance(event, h11.Response):
                return event

    async def body(self, timeout: float | None) -> AsyncIterator[bytes]:
        """Read the body of the answer."""
        while isinstance(event := await self._event(timeout), h11.Data):
            yield bytes(event.data)

    async def _event(self, timeout: float | None) -> Any:
        while True:
            with _translated():
                event = self._parser.next_event()
            if event is not h11.NEED_DATA:
                return event
            data = await self._read(timeout)
            if not data and self._parser.their_state is h11.SEND_RESPONSE:
                raise httpx2.RemoteProtocolError("Server disconnected without sending a response.")
            self._parser.receive_data(data)

    async def _read(self, timeout: float | None) -> bytes:
        """Read what is there; nothing at the end."""
        try:
            async with asyncio.timeout(timeout):
                while data := await self._reader.read(READ_BYTES):
                    if merged := self._merger.feed(data):
                        return merged
        except TimeoutError as error:
            raise httpx2.ReadTimeout("") from error
        except OSError as error:
            raise httpx2.ReadError(str(error)) from error
        return b""

    def begin_anew(self) -> bool:
        """Prepare for another request; False if the last answer was not read to its end."""
        if self._parser.our_state is not h11.DONE or self._parser.their_state is not h11.DONE:
            return False
        self._parser.start_next_cycle()
        return True

    def is_alive(self) -> bool:
        """Return whether an unused connection is open. The server sends nothing on it but its end, which the event loop
        may not have seen yet."""
        transport = self._writer.transport
        return not (transport.is_closing() or self._reader.at_eof() or _is_readable(transport.get_extra_info("socket")))

    def abort(self) -> None:
        """Close it. Nothing is owed to the server, least of all a wait for its goodbye."""
        self._writer.transport.abort()

    async def closed(self) -> None:
        """Wait until it is closed."""
        with suppress(OSError):
            await self._writer.wait_closed()


class _Body(httpx2.AsyncByteStream):
    def __init__(self, transport: DirectTransport, connection: _Connection, timeout: float | None) -> None:
        self._transport = transport
        self._connection: _Connection | None = connection
        self._timeout = timeout

    def __aiter__(self) -> AsyncIterator[bytes]:
        assert self._connection is not None
        return self._connection.body(self._timeout)

    async def aclose(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._transport.release(connection)


@contextmanager
def _translated() -> Iterator[None]:
    """Translate the parser's errors to the client's."""
    try:
        yield
    except h11.RemoteProtocolError as error:
        raise httpx2.RemoteProtocolError(str(error)) from error
    except h11.LocalProtocolError as error:
        raise httpx2.LocalProtocolError(str(error)) from error


def _is_readable(connected: Any) -> bool:
    poll = select.poll()
    poll.register(connected.fileno(), select.POLLIN)
    return bool(poll.poll(0))
