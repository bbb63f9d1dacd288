"""Serve clients over streamable HTTP, on this machine alone, to whoever has the token."""

import asyncio
import secrets
from collections import Counter
from collections.abc import Callable
from typing import Any

import uvicorn
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ferrule.doors.mcp_server.messages import answer_of, read_message
from ferrule.doors.mcp_server.server import SESSION_HEADER, Clients
from ferrule.egress import header_lines
from ferrule.mcp.lines import MAX_MESSAGE_BYTES
from ferrule.protocol.errors import UsageError
from ferrule.rpc import EDGE, RpcError, too_long
from ferrule.serving import Bind, Callers, Refused, bearer_token, listen, quiet_server
from ferrule.timed_heads import TimedHeads

PATH = "/mcp"

IDLE_S = 30 * 60
"""Seconds after which the session of a client that neither listens nor asks is ended."""

MAX_SESSIONS = 64
"""Clients at once: each may have a shell and what it runs."""

MAX_CONNECTIONS = 512
"""Connections at once: some for each client."""

KEPT_S = 75
"""Seconds that an unused connection stays open: longer than clients keep one, or a request might meet its end."""

MAX_HEAD_BYTES = 16 * 1024
"""Bytes of a request's head; other servers take as much."""

GONE_S = 10.0
"""Seconds in which a client that lost its connections may come back to its calls."""

GRACE_S = 1
"""Seconds in which open requests may end after a signal; their calls have been ended."""

NOT_HERE = "An MCP server that runs commands listens on this machine alone: bind it to 127.0.0.1, [::1] or localhost."


async def serve_http(
    server: Server[Any],
    bind: Bind,
    token: str,
    ready: Callable[[str], None],
    stop: asyncio.Event,
    clients: Clients,
) -> None:
    """Serve until `stop` is set. `ready` is told the URL as soon as requests are answered. Raises `UsageError`."""
    if not bind.is_loopback:
        raise UsageError(NOT_HERE)
    listening, at = listen(bind)
    try:
        manager = StreamableHTTPSessionManager(
            server,
            session_idle_timeout=IDLE_S,
            max_request_body_size=MAX_MESSAGE_BYTES,
            max_sessions=MAX_SESSIONS,
        )
        header_lines.read_in_linear_time()
        present = _Presence(_Readable(manager.handle_request), clients)
        http = _uvicorn(_Guard(present, Callers.of(bind, at), token))
        async with manager.run():
            await http.startup([listening])
            serving = asyncio.create_task(http.main_loop())
            ready(f"http://{at}{PATH}")
            await stop.wait()
            http.should_exit = True
            await serving
            await clients.aclose()  # so that requests get answers; who asks now is ended by the caller
        await http.shutdown([listening])
    finally:
        listening.close()


class _Guard:
    """Lets a request through if it is meant for this server, comes from no foreign page, and has the token."""

    def __init__(self, app: ASGIApp, callers: Callers, token: str) -> None:
        self._app = app
        self._callers = callers
        self._token = token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":  # WebSockets are no transport of MCP
            await send({"type": "websocket.close", "code": 1000})
            return
        refusal = self._refusal(scope)
        await (self._app if refusal is None else refusal)(scope, receive, send)

    def _refusal(self, scope: Scope) -> ASGIApp | None:
        headers = Headers(scope=scope)
        try:
            self._callers.check(headers.getlist("host"), ())
        except Refused:
            return _error(421, "The request is for another server: its Host is not this one.")
        try:
            self._callers.check(headers.getlist("host"), headers.getlist("origin"))
        except Refused:
            return _error(403, "Pages of other sites may not ask here.")
        given = bearer_token(headers.get("authorization", "")).encode()
        if not secrets.compare_digest(given, self._token):
            return _error(401, "Send the server's token: `Authorization: Bearer TOKEN`.")
        return None if scope["path"] == PATH else _error(404, f"The server is at {PATH}.")


class _Readable:
    """Answers a request that holds no message: the SDK does so in many words."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Read the body of a request, and hand it on if it is a message."""
        if scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        body, more = bytearray(), True
        try:
            while more:
                event = await receive()
                if event["type"] == "http.disconnect":
                    return
                body += event.get("body", b"")
                more = event.get("more_body", False)
                if len(body) > MAX_MESSAGE_BYTES:
                    raise too_long(bytes(body[:EDGE]))
            read_message(bytes(body))
        except RpcError as error:
            status = 413 if more else 400
            shown = JSONResponse(answer_of(error).model_dump(by_alias=True, exclude_unset=True), status)
            await shown(scope, receive, send)
            return
        waiting = [{"type": "http.request", "body": bytes(body), "more_body": False}]

        async def replayed() -> Message:
            return waiting.pop() if waiting else await receive()

        await self._app(scope, replayed, send)


class _Presence:
    """Notices clients that are gone: a call whose client has no connection left is ended after a while, since its
    answer has nowhere to go. What its session runs besides goes on until the session ends."""

    def __init__(self, app: ASGIApp, clients: Clients) -> None:
        self._app = app
        self._clients = clients
        self._connections: Counter[str] = Counter()
        self._ending: dict[str, asyncio.TimerHandle] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        session = Headers(scope=scope).get(SESSION_HEADER, "")
        if session in self._ending:
            self._ending.pop(session).cancel()
        self._connections[session] += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._connections[session] -= 1
            if not self._connections[session]:
                del self._connections[session]
                if self._clients.has_calls(session):
                    self._ending[session] = asyncio.get_running_loop().call_later(GONE_S, self._gone, session)

    def _gone(self, session: str) -> None:
        del self._ending[session]
        self._clients.end_calls(session)


def _error(status: int, message: str) -> JSONResponse:
    headers = {"www-authenticate": "Bearer"} if status == 401 else None
    return JSONResponse({"error": {"message": message}}, status, headers)


def _uvicorn(app: ASGIApp) -> uvicorn.Server:
    """Return the HTTP server, with the limits of this door."""
    return quiet_server(
        app,
        http=TimedHeads,
        ws="none",
        limit_concurrency=MAX_CONNECTIONS,
        h11_max_incomplete_event_size=MAX_HEAD_BYTES,
        timeout_keep_alive=KEPT_S,
        timeout_graceful_shutdown=GRACE_S,
    )
