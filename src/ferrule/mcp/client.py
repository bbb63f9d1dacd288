"""A client of one server: connects when needed, reconnects after a loss, closes once."""

import asyncio
import logging
import os
import re
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from operator import methodcaller
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar
from weakref import WeakKeyDictionary

import msgspec

from ferrule.lookup import NOWHERE, Places
from ferrule.mcp.callbacks import Ask, Progress
from ferrule.mcp.environment import server_program
from ferrule.mcp.errors import CallFailed, McpFailure
from ferrule.mcp.extra import sdk_needed
from ferrule.mcp.route import Route
from ferrule.process.launcher import Launcher
from ferrule.process.plain import PlainLauncher
from ferrule.protocol.errors import FerruleError, RespondToModel, UsageError
from ferrule.protocol.json_schema import JsonSchema
from ferrule.protocol.json_text import JsonValue
from ferrule.protocol.mcp_settings import McpServerSettings
from ferrule.sync import on_loop, wait_for_coroutine
from ferrule.tools.annotations import ToolAnnotations
from ferrule.tools.tasks import run_blocking

if TYPE_CHECKING:
    from mcp.shared.exceptions import MCPError

    from ferrule.mcp.connection import Connection
    from ferrule.tools.context import ToolContext

log = logging.getLogger("ferrule.mcp")

T = TypeVar("T")
Answer = dict[str, JsonValue]

MAX_PAGES = 100
"""Pages of one list; a server that never ends its list is cut off here."""
MAX_TOOLS = 10_000
"""Tools of one server: more than anybody can search."""
FIRST_DELAY, LONGEST_DELAY = 0.25, 30.0
"""Seconds between two starts of a server that fails again and again: doubled each time, up to the longest."""
MOST_DOUBLINGS = 16
"""Far beyond the longest delay, and far below what a number of seconds can hold after hours of failures."""
NO_TASKS = "it runs only as a task, and the server does not say that it runs tasks"
MAX_STARTING = 64
"""Servers that are started or reached at once. Hundreds would compete for descriptors and processors until each of them
had used up its `startup_timeout`, which begins when its turn has come."""
LONGEST_WAIT = 2.0
"""Seconds that a call waits for the next start; a longer one is refused at once."""


_GUTS = re.compile(r": [0-9]+ validation errors? for .*", re.DOTALL)
"""What pydantic says of an answer that the SDK cannot read: classes of the SDK, and pieces of the answer."""


class McpTool(msgspec.Struct, frozen=True):
    """A tool as its server describes it. `name` is the raw name, `schema` the whole original.

    `as_task`: it runs only as a task. `unusable` says why it cannot be called, if so.
    """

    server: str
    name: str
    description: str
    schema: JsonSchema
    annotations: ToolAnnotations
    as_task: bool = False
    unusable: str | None = None


class MCPClient:
    """One server. Use it in `async with`, or plain `with` from code without a loop.

    Belongs to the loop that used it first; calls from other loops run there. A program with a bare name is never looked
    up in `places`, where commands can write. `ask` answers the server's questions to the user; `on_tools_changed` is
    called when its list of tools changes. `propagate`: the server is sent the trace's id. `route` is another way to a
    remote server.
    """

    def __init__(
        self,
        name: str,
        settings: McpServerSettings,
        *,
        cwd: str = ".",
        home: str | None = None,
        env: Mapping[str, str] = os.environ,
        launcher: Launcher | None = None,
        places: Places = NOWHERE,
        ask: Ask | None = None,
        on_tools_changed: Callable[[], None] = lambda: None,
        propagate: bool = False,
        route: Route | None = None,
    ) -> None:
        if settings.problem is not None:
            raise UsageError(f"MCP server {name} {settings.problem}")
        self.name = name
        self.settings = settings
        self._cwd = os.path.abspath(cwd)
        self._home = home
        self._env = env
        self._launcher = launcher or PlainLauncher()
        self._places = places
        self._ask = ask
        self.callers: list[ToolContext] = []
        """The calls that wait for the server, by their contexts."""
        self._on_tools_changed = on_tools_changed
        self._propagate = propagate
        self._route = route
        self._as_tasks: frozenset[str] = frozenset()
        self._connection: Connection | None = None
        self._connecting: asyncio.Task[Connection] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._users: Counter[Connection] = Counter()
        self._failures = 0
        self._not_before = 0.0
        self._closed = False

    @property
    def another_program(self) -> str | None:
        """A sentence if a program of this name was passed over for another one, else None."""
        if self.settings.command is None:
            return None
        found = server_program(self.settings, self._env, self._places)
        if found.path is None or not found.passed_over:
            return None
        return f"{found.problem}, so {found.path} is started; a command with a path is taken as it is"

    async def connect(self) -> None:
        """Start or reach the server now. Raises `McpFailure`."""
        await self._on_own_loop(self._connected)

    async def list_tools(self) -> list[McpTool]:
        """Return the server's tools that the settings allow, each once, from all pages. Raises `McpFailure`."""
        return await self._on_own_loop(self._list_tools)

    async def call_tool(
        self,
        tool: str,
        arguments: dict[str, JsonValue],
        *,
        on_progress: Progress | None = None,
        timeout: float | None = None,
    ) -> Answer:
        """Return the result as the server sent it: `content`, `structuredContent`, `isError`. `timeout` is in seconds.

        A lost server is started again first. Raises `McpFailure`, and `RespondToModel` with what went wrong with this
        call: a call that may have run is not repeated.
        """
        limit = self.settings.tool_timeout if timeout is None else timeout
        return await self._on_own_loop(lambda: self._call(tool, arguments, limit, on_progress))

    async def request(self, method: str, params: Mapping[str, JsonValue]) -> Answer:
        """Return the answer to `resources/list`, `resources/templates/list` (`cursor`) or `resources/read` (`uri`).

        Raises `McpFailure`, and `RespondToModel` with the server's refusal.
        """
        return await self._on_own_loop(lambda: self._request(method, params))

    async def has_resources(self) -> bool:
        """Return whether the server declares resources. Raises `McpFailure`."""
        return (await self._on_own_loop(self._connected)).declares("resources")

    async def server_name(self) -> str:
        """Return the server's name for itself and its version; empty if it gives none. Raises `McpFailure`."""
        return (await self._on_own_loop(self._connected)).server_name

    async def close(self) -> None:
        """End the connection and the server's whole process tree. May be called more than once."""
        self._closed = True
        if self._loop is not None:
            await self._on_own_loop(self._close)

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __enter__(self) -> Self:
        wait_for_coroutine(self.connect())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        wait_for_coroutine(self.close())

    async def _on_own_loop(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        loop = asyncio.get_running_loop()
        self._loop = self._loop or loop
        if self._loop is loop:
            return await work()
        return await on_loop(self._loop, work)

    async def _connected(self) -> "Connection":
        """Return the living connection; make one if there is none, once for everybody who waits."""
        if self._connection is not None and self._connection.alive:
            return self._connection
        if self._connecting is None or self._connecting.done():
            self._connecting = asyncio.create_task(self._connect())
            self._connecting.add_done_callback(lambda task: task.cancelled() or task.exception())
        return await asyncio.shield(self._connecting)

    async def _connect(self) -> "Connection":
        if self._connection is not None:
            await self._drop(self._connection)
        await self._wait_for_turn()
        connection_type = await run_blocking(_load_connection)
        roots = offered_roots(self.settings, self._cwd)
        connection = connection_type(
            self.name, await self._transport(), self._ask, self._on_tools_changed, roots, propagate=self._propagate
        )
        try:
            async with _turn_to_start():
                await connection.open(self.settings.startup_timeout)
        except McpFailure:
            self._failed()
            raise
        if self._closed:
            await connection.close()
            raise McpFailure(self.name, "refused", "was closed")
        self._connection = connection
        return connection

    async def _wait_for_turn(self) -> None:
        """Wait until the server may be started again. Raises `McpFailure` if that is long after repeated failures."""
        if self._closed:
            raise McpFailure(self.name, "refused", "was closed")
        wait = self._not_before - time.monotonic()
        if wait > LONGEST_WAIT:
            text = f"failed {self._failures} times in a row; it is started again in {wait:.0f} seconds at the earliest"
            raise McpFailure(self.name, "crash", text)
        if wait > 0:
            await asyncio.sleep(wait)

    def _failed(self) -> None:
        delay = min(FIRST_DELAY * 2 ** min(self._failures, MOST_DOUBLINGS), LONGEST_DELAY)
        self._failures += 1
        self._not_before = time.monotonic() + delay

    async def _transport(self) -> Any:
        if self.settings.url is None:
            from ferrule.mcp.stdio import StdioTransport

            return StdioTransport(self.name, self.settings, self._launcher, self._cwd, self._env, self._places)
        from ferrule.mcp.http import HttpTransport

        return HttpTransport(self.name, self.settings, self._env, self._home, self._route)

    async def _drop(self, connection: "Connection") -> None:
        await connection.close()
        if self._connection is connection:
            self._connection = None

    async def _close(self) -> None:
        if self._connecting is not None and not self._connecting.done():
            self._connecting.cancel()
            await asyncio.wait([self._connecting])
        mine = [self._connection] if self._connection is not None else []
        self._connection = None
        await asyncio.gather(*(connection.close() for connection in {*mine, *self._users}))

    async def _request(self, method: str, params: Mapping[str, JsonValue]) -> Answer:
        limit = self.settings.tool_timeout
        try:
            return await self._asked(method, lambda connection: connection.request(method, params, limit))
        except TimeoutError as error:
            raise RespondToModel(f"{method} had no answer within {limit:g} seconds (tool_timeout)") from error

    async def _list_tools(self) -> list[McpTool]:
        """List the tools within `startup_timeout`. Raises `McpFailure`, also if the server starts and does not list."""
        await self._connected()
        limit = self.settings.startup_timeout
        try:
            async with asyncio.timeout(limit):
                return await self._all_tools()
        except TimeoutError as error:
            text = f"did not list its tools within {limit:g} seconds (startup_timeout)"
            raise McpFailure(self.name, "timeout", text) from error
        except RespondToModel as error:
            raise McpFailure(self.name, "refused", f"did not list its tools: {error}") from error

    async def _all_tools(self) -> list[McpTool]:
        found: dict[str, McpTool] = {}
        cursor: str | None = None
        seen: set[str] = set()
        while True:
            page = await self._asked("tools/list", methodcaller("list_tools", cursor))
            connection = self._connection
            runs_tasks = connection is not None and connection.declares("tasks", "requests", "tools", "call")
            for raw in _entries(page.get("tools")):
                tool = tool_of(self.name, raw, runs_tasks=runs_tasks)
                if tool is not None and self.settings.wants(tool.name):
                    found.setdefault(tool.name, tool)
            cursor = page.get("nextCursor")
            if not isinstance(cursor, str) or not cursor:
                break
            if cursor in seen or len(found) >= MAX_TOOLS or len(seen) + 1 >= MAX_PAGES:
                log.warning("the list of tools of the MCP server %s does not end: cut at %d", self.name, len(found))
                break
            seen.add(cursor)
        self._failures = 0
        self._as_tasks = frozenset(tool.name for tool in found.values() if tool.as_task)
        return list(found.values())[:MAX_TOOLS]

    async def _call(
        self, tool: str, arguments: dict[str, JsonValue], timeout: float, on_progress: Progress | None
    ) -> Answer:
        what, as_task = f"{self.name}/{tool}", tool in self._as_tasks

        def call(connection: "Connection") -> Awaitable[Answer]:
            return connection.call_tool(tool, arguments, timeout, on_progress, as_task=as_task)

        try:
            result = await self._asked(what, call, acts=True)
        except TimeoutError as error:
            text = f"{what} did not answer within {timeout:g} seconds (tool_timeout); it may still be running"
            raise CallFailed(text, status=504) from error
        self._failures = 0
        return result

    async def _asked(
        self, what: str, request: "Callable[[Connection], Awaitable[Answer]]", *, acts: bool = False
    ) -> Answer:
        """Return the answer to a request, which `acts` or only reads.

        If the server's side of the session has expired, the server did not look at the request: it is sent once more,
        in a new session.
        """
        from mcp.shared.exceptions import MCPError

        from ferrule.mcp.http import SESSION_EXPIRED

        renewed = False
        while True:
            async with self._leased() as connection:
                try:
                    return await request(connection)
                except MCPError as error:
                    if error.code != SESSION_EXPIRED or renewed:
                        raise await self._failure(what, connection, error, acts=acts) from error
                renewed = True
                if self._connection is connection:
                    self._connection = None
                    self._on_tools_changed()

    @asynccontextmanager
    async def _leased(self) -> "AsyncIterator[Connection]":
        """Yield the living connection. The last user of one that was replaced meanwhile closes it."""
        connection = await self._connected()
        self._users[connection] += 1
        try:
            yield connection
        finally:
            self._users[connection] -= 1
            if not self._users[connection]:
                del self._users[connection]
                if connection is not self._connection:
                    await connection.close()

    async def _failure(self, what: str, connection: "Connection", error: "MCPError", *, acts: bool) -> FerruleError:
        """Return the error for a request that failed; a connection that was lost is dropped."""
        from mcp.types import CONNECTION_CLOSED

        from ferrule.mcp.http import LOGIN_NEEDED, http_status

        status = http_status(error)
        if error.code == LOGIN_NEEDED:
            return McpFailure(self.name, "login", error.message, code=error.code, status=status)
        if error.code != CONNECTION_CLOSED:
            said = _GUTS.sub(": it is no message of the protocol", error.message)
            return CallFailed(f"{what} failed: {said}", code=error.code, status=status)
        await self._drop(connection)
        self._failed()
        lost = connection.failure
        why = lost if lost is not None and lost.kind != "refused" else error.message
        then = "It may have run, so it was not repeated; the next call" if acts else "The next request"
        return CallFailed(f"{what} failed: {why}. {then} starts the server again", code=error.code, status=502)


_starting: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


def _turn_to_start() -> asyncio.Semaphore:
    """Return the semaphore that all clients on this loop share."""
    return _starting.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(MAX_STARTING))


def _load_connection() -> "type[Connection]":
    """Import the SDK, which takes most of a second: on a thread, and only if a server is used."""
    with sdk_needed():
        from ferrule.mcp.connection import Connection
    return Connection


def _entries(value: JsonValue) -> list[dict[str, JsonValue]]:
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def offered_roots(settings: McpServerSettings, cwd: str) -> tuple[str, ...]:
    """Return the folders offered to the server: the configured ones, else the session's if the server runs here."""
    if settings.roots is not None:
        return tuple(os.path.normpath(os.path.join(cwd, os.path.expanduser(root))) for root in settings.roots)
    return (cwd,) if settings.is_local else ()


def tool_of(server: str, raw: dict[str, JsonValue], *, runs_tasks: bool) -> McpTool | None:
    """Return the tool; None for an entry without a name. A missing schema means no parameters."""
    name = raw.get("name")
    if not isinstance(name, str) or not name:
        return None
    schema, description, execution = raw.get("inputSchema"), raw.get("description"), raw.get("execution")
    as_task = isinstance(execution, dict) and execution.get("taskSupport") == "required"
    return McpTool(
        server,
        name,
        description if isinstance(description, str) else "",
        JsonSchema(schema if isinstance(schema, dict) else {"type": "object", "properties": {}}),
        _annotations(raw),
        as_task,
        NO_TASKS if as_task and not runs_tasks else None,
    )


def _annotations(raw: dict[str, JsonValue]) -> ToolAnnotations:
    given = raw.get("annotations")
    hints = given if isinstance(given, dict) else {}
    title = hints.get("title", raw.get("title"))
    known = {name: value for name, value in hints.items() if name in ToolAnnotations.__struct_fields__}
    booleans = {name: value for name, value in known.items() if isinstance(value, bool)}
    return ToolAnnotations(title=title if isinstance(title, str) else None, **booleans)
