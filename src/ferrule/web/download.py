"""Get what is at an address: through the guard, with limits on redirects, size and time."""

import asyncio
from collections.abc import Callable, Mapping
from weakref import WeakValueDictionary

import httpx2
import msgspec

from ferrule._version import __version__
from ferrule.egress.guard import Guard, Refused
from ferrule.egress.http import guarded_client, no_cookies
from ferrule.protocol.errors import FerruleError
from ferrule.web.urls import BadUrl, WebUrl

MAX_REDIRECTS = 5
MOST_OF_OWNER = 16
"""What one owner gets at once, of 100 in all: nobody waits for what is slow for another."""
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_ENCODINGS = frozenset({"", "identity", "gzip", "deflate", "x-gzip"})
HEADERS = {"user-agent": f"ferrule/{__version__}", "accept-encoding": "gzip, deflate"}

Permit = Callable[[WebUrl], None]
"""Raises `PageRefused` for an address that this request must not open."""


class PageRefused(FerruleError):
    """An address is not opened: one sentence for the model. `forbidden`: nobody may open it from here."""

    def __init__(self, message: str, *, forbidden: bool = False) -> None:
        super().__init__(message)
        self.forbidden = forbidden


class Downloaded(msgspec.Struct, frozen=True):
    """What was found, where in the end, and the type that its server says it has."""

    url: WebUrl
    type: str
    data: bytes


class Downloads:
    """Gets what has at most `most` bytes within `seconds`. Belongs to one event loop."""

    def __init__(
        self, guard: Guard, *, most: int, seconds: float, ca_file: str | None = None, headers: Mapping[str, str] = {}
    ) -> None:
        self._guard = guard
        self._most = most
        self._seconds = seconds
        self._ca_file = ca_file
        self._headers = {**HEADERS, **headers}
        self._client: httpx2.AsyncClient | None = None
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def get(self, url: WebUrl, permit: Permit = lambda url: None) -> Downloaded:
        """Get what is at an address. `permit` is asked before each redirect, too. Raises `PageRefused`."""
        try:
            async with asyncio.timeout(self._seconds):
                return await self._got(url, permit)
        except TimeoutError as error:
            raise PageRefused(f"{url.text} did not answer within {self._seconds:g} seconds.") from error

    async def get_for(self, owner: str, url: WebUrl) -> Downloaded:
        """`get`, in turn with what else this owner gets. Raises `PageRefused`."""
        turns = self._turns.setdefault(owner, asyncio.Semaphore(MOST_OF_OWNER))
        async with turns:
            return await self.get(url)

    async def aclose(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _got(self, url: WebUrl, permit: Permit) -> Downloaded:
        if self._client is None:
            self._client = guarded_client(
                self._guard, ca_file=self._ca_file, headers=self._headers, cookies=no_cookies()
            )
        for _ in range(MAX_REDIRECTS + 1):
            permit(url)
            try:
                async with self._client.stream("GET", url.text) as answer:
                    if answer.status_code not in _REDIRECTS or "location" not in answer.headers:
                        return Downloaded(url, answer.headers.get("content-type", ""), await self._body(answer, url))
                    url = url.joined(answer.headers["location"])
            except Refused as error:
                raise PageRefused(f"{url.text} is not opened. {error}", forbidden=True) from error
            except BadUrl as error:
                raise PageRefused(f"{url.text} leads on to another place: {error}.") from error
            except (httpx2.HTTPError, httpx2.InvalidURL) as error:
                raise PageRefused(f"{url.text} cannot be reached: {_why(error)}.") from error
        raise PageRefused(f"{url.text} is not opened: it is the end of more than {MAX_REDIRECTS} redirects.")

    async def _body(self, answer: httpx2.Response, url: WebUrl) -> bytes:
        if answer.status_code >= 300:
            raise PageRefused(f"{url.text} answered with the status {answer.status_code}.")
        if answer.headers.get("content-encoding", "").strip().lower() not in _ENCODINGS:
            raise PageRefused(f"{url.text} is compressed in a way that was not asked for.")
        body = bytearray()
        async for piece in answer.aiter_bytes():
            body += piece
            if len(body) > self._most:
                raise PageRefused(f"{url.text} has more than {self._most >> 20} MB, so it is not read.")
        return bytes(body)


def _why(error: Exception) -> str:
    """Return what went wrong with a request, in words that name no address of this machine."""
    if isinstance(error, httpx2.TimeoutException):
        return "it does not answer"
    if isinstance(error, httpx2.DecodingError):
        return "its compression is damaged"
    if isinstance(error, httpx2.ConnectError):
        return str(error).rstrip(".") if "certificate" in str(error).lower() else "there is no connection"
    return "it does not speak HTTP as it should"
