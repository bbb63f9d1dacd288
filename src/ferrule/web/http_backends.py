"""Search backends with an HTTP API: SearXNG, Brave, Tavily. Their address is the user's own choice, so it is reached
directly, wherever it is; pages are not."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import httpx2

from ferrule.egress.http import client_of, no_cookies
from ferrule.protocol.errors import UsageError
from ferrule.web.results import hits_in, read_json
from ferrule.web.search import Hit, Location, SearchFailed

log = logging.getLogger("ferrule.web")

MAX_ANSWER = 4 << 20
"""Bytes of an answer: a hundred hits have a tenth of it."""
BRAVE_URL = "https://api.search.brave.com/res/v1"
TAVILY_URL = "https://api.tavily.com"
MOST_BRAVE, MOST_TAVILY = 20, 20
"""Hits that one request may ask for."""


class HttpBackend:
    """What such backends share. `key` is the secret, and `env_key` the variable that has it."""

    name = ""
    works_offline = takes_domains = False

    def __init__(
        self, base_url: str, *, key: str = "", env_key: str = "", timeout: float = 20.0, ca_file: str | None = None
    ) -> None:
        self._base = base_url.rstrip("/")
        if not self._base.startswith(("http://", "https://")):
            raise UsageError(f"web_search.base_url: {base_url!r} has to begin with http:// or https://")
        self._key = key
        self._env_key = env_key
        self._timeout = timeout
        self._ca_file = ca_file
        self._client: httpx2.AsyncClient | None = None

    async def search(
        self, query: str, *, count: int, domains: Sequence[str], location: Location | None, offline: bool
    ) -> list[Hit]:
        """See `SearchBackend`."""
        return hits_in(await self._answer(query, count, domains, location))

    async def _answer(self, query: str, count: int, domains: Sequence[str], location: Location | None) -> Any:
        raise NotImplementedError

    async def aclose(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    async def _ask(self, method: str, path: str, **request: Any) -> Any:
        """Send a request and return the JSON of its answer. Raises `SearchFailed`."""
        if self._client is None:
            self._client = client_of(
                self._base,
                ca_file=self._ca_file,
                timeout=self._timeout,
                headers={"accept": "application/json"},
                cookies=no_cookies(),
            )
        try:
            async with (
                asyncio.timeout(self._timeout),  # the client's own is one of silence
                self._client.stream(method, self._base + path, **request) as answer,
            ):
                return self._read(answer.status_code, await _body(answer))
        except (TimeoutError, httpx2.TimeoutException) as error:
            raise self._failed(f"did not answer within {self._timeout:g} seconds", error) from error
        except _TooLong as error:
            raise self._failed(f"answered with more than {MAX_ANSWER >> 20} MB", error) from error
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise self._failed("cannot be reached", error) from error

    def _read(self, status: int, body: bytes) -> Any:
        if status >= 300:
            raise self._failed(self._refusal(status), f"status {status}: {body[:300]!r}")
        try:
            return read_json(body)
        except (ValueError, RecursionError) as error:
            raise self._failed("did not answer with JSON", body[:300]) from error

    def _refusal(self, status: int) -> str:
        if status in (401, 403):
            return f"does not accept the key in {self._env_key}: the operator has to set it"
        if status < 400:
            return f"sends on to another address (status {status}): the operator has to set web_search.base_url to it"
        return "wants fewer searches: try again later" if status == 429 else f"answered with the status {status}"

    def _failed(self, what: str, why: object) -> SearchFailed:
        log.warning("the search backend %s %s: %s", self.name, what, why)
        return SearchFailed(f"The search backend {self.name} {what}.")


class _TooLong(Exception):
    """An answer has more than `MAX_ANSWER` bytes."""


async def _body(answer: httpx2.Response) -> bytes:
    body = bytearray()
    async for piece in answer.aiter_bytes():
        body += piece
        if len(body) > MAX_ANSWER:
            raise _TooLong
    return bytes(body)


class Searxng(HttpBackend):
    """A SearXNG instance, by its JSON form, which it must have switched on."""

    name = "searxng"

    async def _answer(self, query: str, count: int, domains: Sequence[str], location: Location | None) -> Any:
        sent = {"authorization": f"Bearer {self._key}"} if self._key else {}
        return await self._ask("GET", "/search", params={"q": query, "format": "json"}, headers=sent)

    def _refusal(self, status: int) -> str:
        if status == 403:
            return "refuses JSON: the operator has to add `json` to `search.formats` in its settings.yml"
        return super()._refusal(status)


class Brave(HttpBackend):
    """The API of Brave Search."""

    name = "brave"

    async def _answer(self, query: str, count: int, domains: Sequence[str], location: Location | None) -> Any:
        asked: dict[str, str | int] = {"q": query, "count": min(count, MOST_BRAVE)}
        if location is not None and location.country:
            asked["country"] = location.country.upper()
        found = await self._ask("GET", "/web/search", params=asked, headers={"x-subscription-token": self._key})
        return found.get("web") if isinstance(found, Mapping) else found


class Tavily(HttpBackend):
    """The API of Tavily."""

    name = "tavily"
    takes_domains = True

    async def _answer(self, query: str, count: int, domains: Sequence[str], location: Location | None) -> Any:
        asked: dict[str, Any] = {"query": query, "max_results": min(count, MOST_TAVILY)}
        if domains:
            asked["include_domains"] = list(domains)
        return await self._ask("POST", "/search", json=asked, headers={"authorization": f"Bearer {self._key}"})
