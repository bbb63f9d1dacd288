"""Serve clients over WebSockets, on this machine alone, to whoever has the token: one JSON-RPC message a frame."""

import asyncio
import logging
import secrets
from collections.abc import Callable
from contextlib import suppress

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from ferrule.doors.app_server.connection import Connection
from ferrule.doors.app_server.methods import METHODS
from ferrule.doors.app_server.openings import Configure
from ferrule.mcp.lines import MAX_MESSAGE_BYTES
from ferrule.protocol.errors import UsageError
from ferrule.serving import Bind, Callers, Refused, bearer_token, listen, quiet_server
from ferrule.stdio import Outbox
from ferrule.sync import uninterrupted
from ferrule.timed_heads import TimedHeads
from ferrule.tools.tasks import end_tasks

MAX_CLIENTS = 64
"""Connections at once: each may have threads that run commands."""
MAX_CONNECTIONS = 512
"""Connections at once that have not become a client yet."""
MAX_HEAD_BYTES = 16 * 1024
"""Bytes of a request's head; other servers take as much."""
MAX_FRAMES = 16
"""Messages of a client that may wait to be taken."""
PING_S = 20.0
"""Seconds between two pings, and the time for an answer: a client that is gone without a word is noticed."""
GRACE_S = 1
"""Seconds in which open connections may end after a signal."""
CLOSE_S = 0.5
"""Seconds for a client to read why it is closed."""
GOING_AWAY, TRY_LATER, GIVEN_UP = 1001, 1013, 1008
NOT_HERE = "An app-server runs commands, so it listens on this machine alone: bind it to 127.0.0.1, [::1] or localhost."


async def serve_network(
    configure: Configure, bind: Bind, token: str, ready: Callable[[str], None], stop: asyncio.Event
) -> None:
    """Serve until `stop` is set; then end what runs for the clients. `ready` is told the URL as soon as clients can
    connect. Raises `UsageError`."""
    if not bind.is_loopback:
        raise UsageError(NOT_HERE)
    listening, at = listen(bind)
    logger = logging.getLogger("uvicorn.error")
    if not logger.handlers:
        logger.addHandler(logging.NullHandler())  # it calls a client that is refused an error, on standard error
    try:
        app = _App(configure, Callers.of(bind, at), token)
        server = quiet_server(
            app,
            http=TimedHeads,
            limit_concurrency=MAX_CONNECTIONS,
            h11_max_incomplete_event_size=MAX_HEAD_BYTES,
            ws="websockets-sansio",
            ws_max_size=MAX_MESSAGE_BYTES,
            ws_max_queue=MAX_FRAMES,
            ws_ping_interval=PING_S,
            ws_ping_timeout=PING_S,
            ws_per_message_deflate=False,
            timeout_graceful_shutdown=GRACE_S,
        )
        await server.startup([listening])
        serving = asyncio.create_task(server.main_loop())
        ready(f"ws://{at}")
        await stop.wait()
        server.should_exit = True
        await serving
        await app.aclose()
        await server.shutdown([listening])
    finally:
        listening.close()


class _App:
    """Lets a client in if it means this server, comes from no foreign page, and has the token."""

    def __init__(self, configure: Configure, callers: Callers, token: str) -> None:
        self._configure = configure
        self._callers = callers
        self._token = token.encode()
        self._clients: set[asyncio.Task[None]] = set()
        self._ending: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        status, words = self._refusal(scope)
        if scope["type"] == "http":
            shown = PlainTextResponse(words or "Connect by WebSocket.\n", status or 426)
            await shown(scope, receive, send)
            return
        socket = WebSocket(scope, receive, send)
        if status:
            await socket.send_denial_response(PlainTextResponse(words, status))
            return
        await socket.accept()
        if len(self._clients) >= MAX_CLIENTS:
            await socket.close(TRY_LATER, f"{MAX_CLIENTS} clients are connected")
            return
        task = asyncio.create_task(self._serve(socket))
        self._clients.add(task)
        try:
            await asyncio.wait([task])
        finally:
            await end_tasks([task])
            self._clients.discard(task)
        if not task.cancelled():
            task.result()

    async def _serve(self, socket: WebSocket) -> None:
        client = Connection(METHODS, self._configure, Outbox(), self._ended)
        code = GIVEN_UP
        try:
            await _until_gone(client, socket)
        except asyncio.CancelledError:
            code = GOING_AWAY
            raise
        finally:
            ending = asyncio.create_task(client.aclose())
            self._ending.add(ending)
            ending.add_done_callback(self._ending.discard)
            await uninterrupted(_finished(ending))
            with suppress(RuntimeError, WebSocketDisconnect, TimeoutError):  # it may be closed, or read nothing
                async with asyncio.timeout(CLOSE_S):
                    await socket.close(code)

    async def _ended(self) -> None:
        """Wait until nothing is left of clients that are gone."""
        if self._ending:
            await asyncio.wait(self._ending)

    async def aclose(self) -> None:
        """End all clients."""
        await end_tasks(self._clients)

    def _refusal(self, scope: Scope) -> tuple[int, str]:
        headers = Headers(scope=scope)
        try:
            self._callers.check(headers.getlist("host"), ())
        except Refused:
            return 421, "The request is for another server: its Host is not this one.\n"
        try:
            self._callers.check(headers.getlist("host"), headers.getlist("origin"))
        except Refused:
            return 403, "Pages of other sites may not connect here.\n"
        given = bearer_token(headers.get("authorization", "")).encode()
        if not secrets.compare_digest(given, self._token):
            return 401, "Send the server's token: `Authorization: Bearer TOKEN`.\n"
        return 0, ""


async def _until_gone(client: Connection, socket: WebSocket) -> None:
    """Serve a client until it is gone, or given up."""
    works = [asyncio.create_task(work) for work in (_read(client, socket), _write(client, socket))]
    works.append(asyncio.create_task(_await_loss(client)))
    try:
        await asyncio.wait(works, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end_tasks(works)


async def _finished(task: "asyncio.Task[None]") -> None:
    await asyncio.wait([task])


async def _await_loss(client: Connection) -> None:
    await client.outbox.lost.wait()


async def _read(client: Connection, socket: WebSocket) -> None:
    """Take messages until the client is gone. Those of a client that does not read wait on its side."""
    while True:
        message = await socket.receive()
        if message["type"] == "websocket.disconnect":
            return
        given = message.get("text")
        await client.outbox.room()
        client.take(message.get("bytes") or b"" if given is None else given.encode(errors="replace"))
        await asyncio.sleep(0)


async def _write(client: Connection, socket: WebSocket) -> None:
    """Send messages, each as a frame, without the end of the line."""
    while True:
        messages = await client.outbox.take()
        for message in messages:
            try:
                await socket.send_text(message[:-1].decode())
            except (RuntimeError, WebSocketDisconnect):
                return
            client.outbox.taken([message])
