"""The HTTP of a client's MCP server: bounded answers, and failures as answers that say why.

Imported when a server is used: it brings the HTTP library.
"""

from collections.abc import AsyncIterator

import httpx2

from ferrule.egress.guard import Refused
from ferrule.mcp.http import status_error

_INTERNAL = -32603


class Bounded(httpx2.AsyncBaseTransport):
    """Passes requests on. An answer may have so many bytes, as they are: one that is packed was not asked for."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, most: int) -> None:
        self._inner = inner
        self._most = most

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request. What kept it from being sent becomes an answer."""
        request.headers["accept-encoding"] = "identity"
        try:
            response = await self._inner.handle_async_request(request)
        except Refused as error:
            return _failed(request, 502, str(error))
        except httpx2.TimeoutException:
            return _failed(request, 504, "The server does not answer.")
        except httpx2.TransportError as error:
            return _failed(request, 502, f"The server cannot be reached: {_why(error)}")
        if response.headers.get("content-encoding", "identity").lower() != "identity":
            await response.aclose()
            return _failed(request, 502, "The server packed its answer, which nobody asked for.")
        assert isinstance(response.stream, httpx2.AsyncByteStream)
        response.stream = _Limited(response.stream, self._most)
        return response

    async def aclose(self) -> None:
        """Close all connections."""
        await self._inner.aclose()


def _why(error: httpx2.TransportError) -> str:
    return str(error).rstrip(".") + "."


def _failed(request: httpx2.Request, status: int, text: str) -> httpx2.Response:
    return httpx2.Response(
        status,
        headers={"content-type": "application/json"},
        content=status_error(_INTERNAL, text, status),
        request=request,
    )


class _Limited(httpx2.AsyncByteStream):
    """A body that fails above the limit."""

    def __init__(self, stream: httpx2.AsyncByteStream, most: int) -> None:
        self._stream = stream
        self._left = most

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            self._left -= len(chunk)
            if self._left < 0:
                raise httpx2.StreamError("the answer is larger than an answer may be")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()
