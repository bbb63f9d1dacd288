"""Search backends without HTTP: a program, and the tool of a server that is handed in."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import msgspec

from ferrule.lookup import NOWHERE, Places, locate
from ferrule.process.environment import CORE_VARIABLES
from ferrule.process.launcher import LaunchError
from ferrule.process.plain import PlainLauncher
from ferrule.process.run import run
from ferrule.protocol.errors import FerruleError, UsageError
from ferrule.protocol.json_text import JsonObject
from ferrule.web.results import hits_in, hits_in_text, read_json
from ferrule.web.search import Hit, Location, SearchFailed

log = logging.getLogger("ferrule.web")

MAX_OUTPUT = 4 << 20
"""Bytes that the program may print."""
MOST_AT_ONCE = 8
"""Programs that run at once."""


class CommandBackend:
    """A program of the user: it reads the query as a JSON object on its standard input, and prints JSON, a list of
    objects with `url`, `title` and `content`, or an object with such a list as `results`."""

    name = "command"
    works_offline = takes_domains = True

    def __init__(
        self,
        argv: Sequence[str],
        *,
        timeout: float,
        cwd: str,
        env: Mapping[str, str] = os.environ,
        passed: Sequence[str] = (),
        places: Places = NOWHERE,
    ) -> None:
        """`passed` are variables that it gets beside the usual; a bare name is never looked up in `places`."""
        self._argv = tuple(argv)
        self._timeout = timeout
        self._cwd = cwd
        self._env = {name: env[name] for name in (*CORE_VARIABLES, *passed) if name in env}
        self._places = places
        self._turns = asyncio.Semaphore(MOST_AT_ONCE)

    async def search(
        self, query: str, *, count: int, domains: Sequence[str], location: Location | None, offline: bool
    ) -> list[Hit]:
        """See `SearchBackend`."""
        asked = {
            "query": query,
            "count": count,
            "domains": list(domains),
            "location": None if location is None else msgspec.to_builtins(location),
            "offline": offline,
        }
        async with self._turns:
            printed = await self._run(msgspec.json.encode(asked))
        try:
            return hits_in(read_json(printed))
        except (ValueError, RecursionError) as error:
            raise self._failed("did not print JSON", printed[:300]) from error

    async def _run(self, asked: bytes) -> bytes:
        name = os.path.expanduser(self._argv[0])
        found = name if "/" in name else locate(name, self._env.get("PATH"), self._places).path
        if found is None:
            raise self._failed("is not installed", name)
        try:
            done = await run(
                PlainLauncher(),
                (found, *self._argv[1:]),
                env=self._env,
                cwd=self._cwd,
                stdin=asked,
                timeout_ms=int(self._timeout * 1000),
                capture_bytes=MAX_OUTPUT,
            )
        except LaunchError as error:
            raise self._failed("cannot be started", error) from error
        if done.timed_out:
            raise self._failed(f"did not end within {self._timeout:g} seconds", done.stderr.text()[-300:])
        if done.status.code != 0:
            raise self._failed(f"ended with the code {done.status.shell_code}", done.stderr.text()[-300:])
        return done.stdout.text().encode()

    def _failed(self, what: str, why: object) -> SearchFailed:
        log.warning("the search command %s: %s", what, why)
        return SearchFailed(f"The search command {what}.")

    async def aclose(self) -> None:
        """Do nothing: each search has a process of its own."""


class SearchTool(msgspec.Struct, frozen=True):
    """The search tool of a server. `parameters` are the names of its arguments; `call` runs it and returns the result
    as MCP has it, with `content`, `structuredContent` and `isError`. `close` ends the connection."""

    parameters: frozenset[str]
    call: Callable[[JsonObject], Awaitable[Mapping[str, Any]]]
    close: Callable[[], Awaitable[None]]


_QUERIES = ("query", "q", "search_query", "queries", "input", "text")
_COUNTS = ("count", "max_results", "num_results", "numResults", "maxResults", "limit", "top_k", "k")
_DOMAINS = ("include_domains", "includeDomains", "allowed_domains", "domains")
_COUNTRIES = ("country", "gl")


class ToolBackend:
    """A search tool of an MCP server, connected at the first search."""

    name = "mcp"
    works_offline = False
    takes_domains = True

    def __init__(self, connect: Callable[[], Awaitable[SearchTool]], *, timeout: float) -> None:
        """`connect` returns the tool. It raises `FerruleError`."""
        self._connect = connect
        self._timeout = timeout
        self._connecting = asyncio.Lock()
        self._tool: SearchTool | None = None

    async def search(
        self, query: str, *, count: int, domains: Sequence[str], location: Location | None, offline: bool
    ) -> list[Hit]:
        """See `SearchBackend`."""
        country = None if location is None else location.country
        given = ((_QUERIES, query), (_COUNTS, count), (_DOMAINS, list(domains)), (_COUNTRIES, country))
        try:
            tool = await self._connected()
            named = [(next((n for n in names if n in tool.parameters), None), value) for names, value in given]
            arguments: JsonObject = {name: value for name, value in named if name is not None and value}
            arguments = {n: [v] if n == "queries" else v for n, v in arguments.items()} or {"query": query}
            async with asyncio.timeout(self._timeout):
                result = await tool.call(arguments)
            return _hits(result)
        except TimeoutError as error:
            raise SearchFailed(f"The search tool did not answer within {self._timeout:g} seconds.") from error
        except UsageError as error:
            raise SearchFailed(f"The search tool of the MCP server cannot be used: {error}.") from error
        except FerruleError as error:
            log.warning("the search tool failed: %s", error)
            raise SearchFailed("The search tool of the MCP server failed.") from error

    async def _connected(self) -> SearchTool:
        async with self._connecting:
            if self._tool is None:
                self._tool = await self._connect()
            return self._tool

    async def aclose(self) -> None:
        """End the connection."""
        tool, self._tool = self._tool, None
        if tool is not None:
            await tool.close()


def _hits(result: Mapping[str, Any]) -> list[Hit]:
    content = result.get("content")
    parts = [part for part in content if isinstance(part, Mapping)] if isinstance(content, list) else []
    texts = [part.get("text") for part in parts]
    text = "\n\n".join(one for one in texts if isinstance(one, str))
    if result.get("isError"):
        log.warning("the search tool failed: %s", text[:300])
        raise SearchFailed("The search tool of the MCP server failed.")
    if found := hits_in(result.get("structuredContent")):
        return found
    return [hit for one in texts if isinstance(one, str) for hit in _in_text(one)]


def _in_text(text: str) -> list[Hit]:
    try:
        return hits_in(read_json(text.encode(errors="replace")))
    except (ValueError, RecursionError):
        return hits_in_text(text)
