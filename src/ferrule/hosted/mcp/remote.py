"""The way to a client's MCP server: only where the guard lets it, and never without bounds."""

import asyncio
import re
from contextlib import AsyncExitStack
from weakref import WeakValueDictionary

import msgspec

from ferrule.egress.guard import Guard
from ferrule.hosted.mcp.declared import RemoteServer
from ferrule.mcp.client import MCPClient, McpTool
from ferrule.mcp.errors import CallFailed, McpFailure
from ferrule.mcp.route import Route
from ferrule.protocol.json_text import JsonObject, JsonValue
from ferrule.protocol.mcp_settings import McpServerSettings
from ferrule.protocol.redaction import hidden

LIST_S = 30.0
"""Seconds in which a server has to be reached and to list its tools: the client waits for that before the model is even
asked."""
SILENT_S = 120.0
"""Seconds until a call must end or report progress: as in a session."""
CALL_S = 600.0
"""Seconds of a call, whatever it reports: longer than any answer that somebody waits for."""
MOST_CONNECTIONS = 256
"""Servers that are connected at once: each takes two descriptors."""
MOST_OF_OWNER = 64
"""Of these, of one client: no client takes all of them."""
ANSWER_BYTES = 16 << 20
"""Bytes of one answer, with all that it tells on its way: above any sensible picture."""
BUSY = "too many MCP servers are connected at this moment; ask again when other responses have ended"
"""The server was not asked yet: it is not its fault."""
ADVICE = "check `authorization` and `headers` of the tool"


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds of each server, in seconds."""

    list_s: float = LIST_S
    silent_s: float = SILENT_S
    call_s: float = CALL_S


LIMITS = Limits()


class Failure(msgspec.Struct, frozen=True):
    """Why a request to a server failed: a sentence, and the error as the API types it."""

    text: str
    error: JsonObject


class Remotes:
    """Connects to servers for clients. `guard` says who may be reached, `ca_file` holds further roots."""

    def __init__(self, guard: Guard, *, ca_file: str | None = None, limits: Limits = LIMITS) -> None:
        self.guard = guard
        self.limits = limits
        self._ca_file = ca_file
        self._all = asyncio.Semaphore(MOST_CONNECTIONS)
        self._of_owners: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        self._closing: set[asyncio.Task[None]] = set()

    def open(self, server: RemoteServer, owner: str) -> "Remote":
        """Return a server; it is connected when it is used. It must be released."""
        return Remote(self, server, self._of_owners.setdefault(owner, asyncio.Semaphore(MOST_OF_OWNER)))

    async def slot(self, of_owner: asyncio.Semaphore) -> AsyncExitStack:
        """Wait for a place among the connections; it is given back when the stack is closed."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(of_owner)
            await stack.enter_async_context(self._all)
            return stack.pop_all()

    def close_later(self, remote: "Remote") -> None:
        """Close a connection in the background: a server may let one wait even for that."""
        task = asyncio.create_task(remote.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def aclose(self) -> None:
        """Wait until all connections are closed that were released."""
        await asyncio.gather(*self._closing)

    def route(self) -> Route:
        """Return the way to the network."""
        from ferrule.egress.http import guarded_transport
        from ferrule.hosted.mcp.transport import Bounded

        return Route(Bounded(guarded_transport(self.guard, ca_file=self._ca_file), ANSWER_BYTES), ADVICE)


class Remote:
    """A server of one response."""

    def __init__(self, remotes: Remotes, server: RemoteServer, of_owner: asyncio.Semaphore) -> None:
        self._remotes = remotes
        self._server = server
        self._of_owner = of_owner
        self._client: MCPClient | None = None
        self._slot = AsyncExitStack()
        self._starting = asyncio.Lock()

    async def list_tools(self) -> list[McpTool] | Failure:
        """Return all of the server's tools, or why they are not known."""
        limit = self._remotes.limits.list_s
        try:
            async with asyncio.timeout(limit):
                return await (await self._connected()).list_tools()
        except TimeoutError:
            return self._late(f"the MCP server did not list its tools within {limit:g} seconds")
        except (McpFailure, CallFailed) as error:
            return self._failed(error)

    async def call(self, tool: str, arguments: dict[str, JsonValue]) -> JsonObject | Failure:
        """Return the result of a call as the server sent it, or why there is none."""
        limit = self._remotes.limits.call_s
        try:
            async with asyncio.timeout(limit):
                return await (await self._connected()).call_tool(tool, arguments)
        except TimeoutError:
            return self._late(f"the MCP server did not end the call within {limit:g} seconds")
        except (McpFailure, CallFailed) as error:
            return self._failed(error)

    def release(self) -> None:
        """Let go of the connection."""
        if self._client is not None:
            self._remotes.close_later(self)

    async def close(self) -> None:
        """Close the connection."""
        async with self._slot:
            if self._client is not None:
                await self._client.close()

    async def _connected(self) -> MCPClient:
        async with self._starting:
            if self._client is None:
                self._slot = await self._remotes.slot(self._of_owner)
                route = self._remotes.route()
                self._client = MCPClient(self._server.server_label, self._settings(), env={}, route=route)
            return self._client

    def _settings(self) -> McpServerSettings:
        limits = self._remotes.limits
        return McpServerSettings(
            url=self._server.server_url,
            headers=self._server.sent_headers,
            startup_timeout=limits.list_s,
            tool_timeout=limits.silent_s,
            roots=(),
        )

    def _late(self, text: str) -> Failure:
        return self._failure(BUSY, status=503) if self._client is None else self._failure(text, status=504)

    def _failed(self, error: McpFailure | CallFailed) -> Failure:
        text = error.said if isinstance(error, McpFailure) else str(error)
        status, code = error.status, error.code
        if status is None and isinstance(error, McpFailure):
            status = _STATUSES.get(error.kind)
        return self._failure(f"the MCP server {text}" if isinstance(error, McpFailure) else text, status, code)

    def _failure(self, text: str, status: int | None = None, code: int | None = None) -> Failure:
        text = hidden(_SETTING.sub("", text), self._server.secrets)[:LONGEST_ERROR]
        if status is not None:
            return Failure(text, {"type": "http_error", "code": status, "message": text})
        return Failure(
            text, {"type": "mcp_protocol_error", "code": INTERNAL if code is None else code, "message": text}
        )


INTERNAL = -32603
"""JSON-RPC's code for an error without one."""
LONGEST_ERROR = 2_000
"""Characters of a server's sentence."""
_SETTING = re.compile(r" \((startup|tool)_timeout\)")
"""Names of settings that a session has, and a client of the API has not."""
_STATUSES = {"login": 401, "timeout": 504, "unreachable": 502, "crash": 502}
"""What a proxy would answer."""
