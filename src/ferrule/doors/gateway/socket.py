"""The Responses API over a WebSocket: one response after the other, whose histories stay with the connection.

Source: the WebSocket mode of `/v1/responses`.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect

from ferrule.doors.gateway.guard import broken, told
from ferrule.doors.gateway.services import Services
from ferrule.model.calls import random_id
from ferrule.protocol.errors import FerruleError
from ferrule.protocol.json_text import JsonValue
from ferrule.responses.errors import ApiError
from ferrule.responses.history import ResponseCache
from ferrule.responses.ledger import Ledger
from ferrule.responses.request import ResponseRequest, read, read_request

log = logging.getLogger("ferrule.gateway")

LONGEST_S = 3600.0
"""Seconds that a connection lasts at most, as at the API's own server: clients know how to connect again."""

GOING_AWAY = 1001
"""The close code of a server that ends."""
TIME_IS_UP = 1000
KEPT_RESPONSES = 8
"""Responses of one connection whose history is kept where they are not stored: the newest one is what clients continue,
an older one if they go back."""

CREATE = "response.create"


class _Message(msgspec.Struct):
    type: str | None = None


class Sockets:
    """All open connections."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._open: set[Connection] = set()

    async def serve(self, socket: WebSocket) -> None:
        """Serve one connection to its end."""
        connection = Connection(self._services, socket)
        self._open.add(connection)
        try:
            await connection.serve()
        finally:
            self._open.discard(connection)

    async def close(self) -> None:
        """End all connections: the server ends."""
        await asyncio.gather(*(connection.close(GOING_AWAY, "The server ends.") for connection in list(self._open)))


class Connection:
    """One client's connection."""

    def __init__(self, services: Services, socket: WebSocket) -> None:
        self._services = services
        self._socket = socket
        self._owner: str = socket.state.owner
        self._admit: Callable[[], Awaitable[str]] = socket.state.admit
        self._cache = ResponseCache(KEPT_RESPONSES)
        self._answering: asyncio.Task[None] | None = None
        self._is_closed = False

    async def serve(self) -> None:
        """Answer messages until the client leaves or its time is up."""
        await self._socket.accept()
        try:
            async with asyncio.timeout(LONGEST_S):
                await self._listen()
        except TimeoutError:
            await self._end_of_time()
        finally:
            await self._stop()

    async def close(self, code: int, reason: str) -> None:
        """Close the connection; nothing more is sent."""
        await self._stop()
        if not self._is_closed:
            self._is_closed = True
            await self._socket.close(code, reason)

    async def _listen(self) -> None:
        while True:
            message = await self._socket.receive()
            if message["type"] == "websocket.disconnect":
                self._is_closed = True
                return
            given = message.get("text")
            body = message.get("bytes") or b"" if given is None else given.encode()
            try:
                self._take(body)
            except ApiError as error:
                await self._send_error(error)

    def _take(self, body: bytes) -> None:
        """Start to answer a message. Raises `ApiError` if it cannot be answered."""
        kind = read(body, _Message).type
        if kind != CREATE:
            raise ApiError(
                f"type: {kind!r} is no message of this API; send {CREATE}", code="unknown_message_type", param="type"
            )
        if self._answering is not None and not self._answering.done():
            raise ApiError(
                "A response runs on this connection: wait for its end, or open another connection.",
                code="response_in_progress",
            )
        self._answering = asyncio.create_task(self._answer(body))

    async def _answer(self, body: bytes) -> None:
        try:
            await self._respond(body)
        except WebSocketDisconnect:
            self._is_closed = True
        except FerruleError as error:
            await self._send_error(told(error, f"req_{random_id()}"))
        except Exception:
            log.exception("a response over a WebSocket failed")
            await self._send_error(broken())

    async def _respond(self, body: bytes) -> None:
        await self._admit()  # the key may be gone: a connection lasts long
        ledger = await self._opened(read_request(body))
        try:
            async for batch in ledger.batches():
                for event in batch.events:
                    await self._socket.send_text(event.decode())
        finally:
            await self._services.running.leave(ledger, self._owner)

    async def _opened(self, request: ResponseRequest) -> Ledger:
        """Start a response. One that has started is ended if this is cancelled."""
        opening = asyncio.create_task(self._services.running.open(request, self._owner, cache=self._cache))
        try:
            return await asyncio.shield(opening)
        except asyncio.CancelledError:
            await self._services.running.leave(await opening, self._owner)
            raise

    async def _end_of_time(self) -> None:
        error = ApiError(
            f"The connection has lasted {LONGEST_S / 60:g} minutes, its limit: connect again.",
            code="websocket_connection_limit_reached",
        )
        await self._stop()
        await self._send_error(error)
        await self.close(TIME_IS_UP, error.code or "")

    async def _stop(self) -> None:
        if self._answering is not None:
            self._answering.cancel()
            await asyncio.wait([self._answering])

    async def _send_error(self, error: ApiError) -> None:
        if not self._is_closed:
            await self._socket.send_text(msgspec.json.encode(error_event(error)).decode())


def error_event(error: ApiError) -> Mapping[str, JsonValue]:
    """Return an error as a WebSocket tells it."""
    return {"type": "error", "sequence_number": 0, "status": error.status, **error.body}
