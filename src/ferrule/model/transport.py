"""The direct connections of the HTTP client, whose streams merge chunks before the HTTP parser sees them.

Imported when the first connection is made: it brings the HTTP library.
"""

import ssl
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import httpcore2
import httpx2

from ferrule.model.chunks import ChunkMerger


class MergingTransport(httpx2.AsyncBaseTransport):
    """`httpx2.AsyncHTTPTransport` without a proxy, with chunk merging."""

    def __init__(self, context: ssl.SSLContext, limits: httpx2.Limits) -> None:
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=context,
            max_connections=limits.max_connections,
            max_keepalive_connections=limits.max_keepalive_connections,
            keepalive_expiry=limits.keepalive_expiry,
            network_backend=_Backend(),
        )

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
        with _translated():
            answer = await self._pool.handle_async_request(asked)
        return httpx2.Response(
            status_code=answer.status,
            headers=answer.headers,
            stream=_Body(answer),
            extensions=answer.extensions,
        )

    async def aclose(self) -> None:
        """Close the connections."""
        await self._pool.aclose()


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
    def __init__(self, answer: httpcore2.Response) -> None:
        self._answer = answer

    async def __aiter__(self) -> AsyncIterator[bytes]:
        stream = self._answer.stream
        assert isinstance(stream, AsyncIterable)
        with _translated():
            async for part in stream:
                yield part

    async def aclose(self) -> None:
        await self._answer.aclose()


@contextmanager
def _translated() -> Iterator[None]:
    """Translate the pool's errors to the client's."""
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
    def __init__(self, inner: httpcore2.AsyncNetworkStream) -> None:
        self._inner = inner
        self._merger = ChunkMerger()

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        while data := await self._inner.read(max_bytes, timeout):
            if merged := self._merger.feed(data):
                return merged
        return b""

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._merger.reset()
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.AsyncNetworkStream:
        return _Stream(await self._inner.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._inner.get_extra_info(info)
