"""The direct connections of the HTTP client, whose streams merge chunks before the HTTP parser sees them.

Imported when the first connection is made: it brings the HTTP library.
"""

import ssl
from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import httpcore2
import httpx2

from ferrule.model.chunks import ChunkMerger

_END_OF_HEAD = b"\r\n\r\n"


class MergingTransport(httpx2.AsyncBaseTransport):
    """`httpx2.AsyncHTTPTransport` without a proxy, with chunk merging.

    Unused connections stand in a list. The library's pool looks at all there are, twice for each request: with a
    thousand streams at once that took a third of the time.
    """

    def __init__(self, context: ssl.SSLContext, *, idle: int, idle_s: float) -> None:
        self._context = context
        self._most_idle = idle
        self._idle_s = idle_s
        self._idle: list[httpcore2.AsyncHTTPConnection] = []
        self._backend = _Backend()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send the request, and return the answer when its head has arrived."""
        url = request.url
        asked = httpcore2.Request(
            method=request.method,
            url=httpcore2.URL(scheme=url.raw_scheme, host=url.raw_host, port=url.port, target=url.raw_path),
            headers=request.headers.raw,
            content=request.stream,
            extensions=request.extensions,
        )
        connection = await self._connection(asked.url.origin)
        try:
            with _translated():
                answer = await connection.handle_async_request(asked)
        except BaseException:
            await connection.aclose()
            raise
        return httpx2.Response(
            status_code=answer.status,
            headers=answer.headers,
            stream=_Body(answer, partial(self._release, connection)),
            extensions=answer.extensions,
        )

    async def _connection(self, origin: httpcore2.Origin) -> httpcore2.AsyncHTTPConnection:
        """Take the connection that was used last, or make one. Those that are too old, or closed by the server, go."""
        while self._idle:
            connection = self._idle.pop()
            if connection.can_handle_request(origin) and not connection.has_expired():
                return connection
            await connection.aclose()
        return httpcore2.AsyncHTTPConnection(origin, self._context, self._idle_s, network_backend=self._backend)

    async def _release(self, connection: httpcore2.AsyncHTTPConnection) -> None:
        """Keep a connection for the next request, if its answer was read to the end."""
        if connection.is_idle():
            self._idle.append(connection)
        if len(self._idle) > self._most_idle:
            await self._idle.pop(0).aclose()

    async def aclose(self) -> None:
        """Close the connections that nobody uses; the others are closed with their answers."""
        while self._idle:
            await self._idle.pop().aclose()


class DirectClient(httpx2.AsyncClient):
    """Sends each request as it is. The usual client looks for logins, redirects and cookies, too: a fifth of a
    short request's time."""

    def __init__(self, transport: MergingTransport, *, timeout: httpx2.Timeout, headers: dict[str, str]) -> None:
        super().__init__(transport=transport, timeout=timeout, headers=headers)
        self._direct = transport

    async def send(self, request: httpx2.Request, **options: object) -> httpx2.Response:
        """Send a request. The `options` are about what is not looked for."""
        response = await self._direct.handle_async_request(request)
        response.request = request
        return response


class _Body(httpx2.AsyncByteStream):
    """The body of an answer; `release` follows its end."""

    def __init__(self, answer: httpcore2.Response, release: Callable[[], Awaitable[None]]) -> None:
        self._answer = answer
        self._release = release

    async def __aiter__(self) -> AsyncIterator[bytes]:
        stream = self._answer.stream
        assert isinstance(stream, AsyncIterable)
        with _translated():
            async for part in stream:
                yield part

    async def aclose(self) -> None:
        await self._answer.aclose()
        await self._release()


@contextmanager
def _translated() -> Iterator[None]:
    """Translate the connection's errors to the client's."""
    try:
        yield
    except (
        httpcore2.TimeoutException,
        httpcore2.NetworkError,
        httpcore2.ProtocolError,
        httpcore2.ProxyError,
        httpcore2.UnsupportedProtocol,
    ) as error:
        kind: type[httpx2.TransportError] = getattr(httpx2, type(error).__name__)
        raise kind(str(error)) from error


class _Backend(httpcore2.AnyIOBackend):
    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        return _Stream(await super().connect_tcp(host, port, timeout, local_address, socket_options))


class _Stream(httpcore2.AsyncNetworkStream):
    """Sends the head of a request together with its body: a packet costs both sides more than what is in it."""

    def __init__(self, inner: httpcore2.AsyncNetworkStream) -> None:
        self._inner = inner
        self._merger = ChunkMerger()
        self._head = b""

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        if self._head:  # there was no body
            await self._send(b"", timeout)
        while data := await self._inner.read(max_bytes, timeout):
            if merged := self._merger.feed(data):
                return merged
        return b""

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._merger.reset()
        if buffer.endswith(_END_OF_HEAD) and not self._head:
            self._head = buffer
        else:
            await self._send(buffer, timeout)

    async def _send(self, buffer: bytes, timeout: float | None) -> None:
        head, self._head = self._head, b""
        await self._inner.write(head + buffer, timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.AsyncNetworkStream:
        return _Stream(await self._inner.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)
