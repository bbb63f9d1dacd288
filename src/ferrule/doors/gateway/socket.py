"""The Responses API over a WebSocket: one response after the other, whose histories stay with the connection.

A client that names lanes (`stream_id`) has one response after the other in each of them.

Source: the WebSocket mode of `/v1/responses`.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect

from ferrule.doors.gateway.guard import broken, told
from ferrule.doors.gateway.services import Services
from ferrule.doors.gateway.steering import (
    MAX_PENDING,
    Steer,
    SteerMessage,
    SteerRefused,
    accepted,
    can_be_steered,
    continued,
    failed,
    new_steer,
    pending,
    read_steer,
    required_input,
)
from ferrule.model.calls import random_id
from ferrule.protocol.errors import FerruleError
from ferrule.protocol.json_text import JsonValue
from ferrule.responses.errors import ApiError
from ferrule.responses.history import ResponseCache
from ferrule.responses.ledger import STEERED, Ledger
from ferrule.responses.request import ResponseRequest, read, read_request

log = logging.getLogger("ferrule.gateway")

LONGEST_S = 3600.0
"""Seconds that a connection lasts at most, as at the API's own server: clients know how to connect again."""

GOING_AWAY = 1001
"""The close code of a server that ends."""
TIME_IS_UP = 1000
KEPT_RESPONSES = 32
"""Responses of one connection whose history is kept where they are not stored: the newest one of each lane is what
clients continue, an older one if they go back."""
MAX_LANES = 16
"""Lanes in which responses run at once on one connection."""
MAX_WAITING = 16
"""Requests that wait in one lane."""

NOT_CONTINUED = "Too many responses of this connection wait for outputs: this one was the first of them."
CREATE, STEER = "response.create", "response.steer"


class _Message(msgspec.Struct):
    type: str | None = None
    stream_id: str | None = None


class _Lane(msgspec.Struct):
    """Requests that are answered one after the other. `body` is the one that is answered now, `ledger` its response,
    `steers` are additions to it."""

    stream_id: str | None
    body: bytes
    waiting: deque[bytes]
    steers: list[Steer]
    ledger: Ledger | None = None
    task: "asyncio.Task[None] | None" = None


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
        self._lanes: dict[str | None, _Lane] = {}
        self._pending: dict[str, list[Steer]] = {}
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
                await self._take(body)
            except ApiError as error:
                await self._send_error(error)

    async def _take(self, body: bytes) -> None:
        """Start to answer a message. Raises `ApiError` if it cannot be answered."""
        message = read(body, _Message)
        if message.type == STEER:
            await self._steer(read_steer(body))
        elif message.type == CREATE:
            self._queue(message.stream_id, body)
        else:
            text = f"type: {message.type!r} is no message of this API; send {CREATE} or {STEER}"
            raise ApiError(text, code="unknown_message_type", param="type")

    def _queue(self, stream_id: str | None, body: bytes) -> None:
        """Answer a request as soon as its lane is free; what names no lane has to wait by itself."""
        lane = self._lanes.get(stream_id)
        if lane is not None and stream_id is None:
            raise ApiError(
                "A response runs on this connection: wait for its end, name lanes by stream_id, or open another "
                "connection.",
                code="response_in_progress",
            )
        if (lane is None and len(self._lanes) >= MAX_LANES) or (lane is not None and len(lane.waiting) >= MAX_WAITING):
            text = f"At most {MAX_LANES} lanes, in each of which {MAX_WAITING} requests wait: wait for an end."
            raise ApiError(text, status=429, kind="rate_limit_error", code="rate_limit_exceeded", param="stream_id")
        if lane is not None:
            lane.waiting.append(body)
            return
        lane = self._lanes[stream_id] = _Lane(stream_id, body, deque(), [])
        lane.task = asyncio.create_task(self._serve(lane))

    async def _serve(self, lane: _Lane) -> None:
        try:
            await self._answer(lane)
            while lane.waiting:
                lane.body = lane.waiting.popleft()
                await self._answer(lane)
        finally:
            del self._lanes[lane.stream_id]

    async def _answer(self, lane: _Lane) -> None:
        try:
            await self._respond(lane)
        except WebSocketDisconnect:
            self._is_closed = True
        except FerruleError as error:
            await self._send_error(told(error, f"req_{random_id()}"), lane)
        except Exception:
            log.exception("a response over a WebSocket failed")
            await self._send_error(broken(), lane)

    async def _respond(self, lane: _Lane) -> None:
        request = read_request(lane.body)
        if steers := self._pending.pop(request.known.previous_response_id or "", []):
            request = read_request(continued(lane.body, steers))
        ledger = await self._told(lane, request)
        while lane.steers and (body := await self._after_steers(lane, ledger)) is not None:
            steers, lane.steers = lane.steers, []
            try:
                ledger = await self._told(lane, read_request(body))
            except FerruleError as error:
                for steer in steers:
                    await self._send(failed(steer.message, "successor_creation_failed", str(error), steer.id), lane)

    async def _told(self, lane: _Lane, request: ResponseRequest) -> Ledger:
        """Run a response, and tell of it to its end."""
        await self._admit()  # the key may be gone: a connection lasts long
        ledger = lane.ledger = await self._opened(request)
        mark = b"" if lane.stream_id is None else b',"stream_id":%b}' % msgspec.json.encode(lane.stream_id)
        try:
            async for batch in ledger.batches():
                for event in batch.events:
                    await self._socket.send_text((event[:-1] + mark if mark else event).decode())
        finally:
            lane.ledger = None
            await self._services.running.leave(ledger, self._owner)
        return ledger

    # Input that is added meanwhile

    async def _steer(self, message: SteerMessage) -> None:
        """Take an addition to a response that runs on this connection, or give it back."""
        lane = next(
            (one for one in self._lanes.values() if one.ledger and one.ledger.id == message.previous_response_id), None
        )
        try:
            steer = self._checked(message, lane)
        except SteerRefused as refusal:
            await self._send(failed(message, refusal.code, str(refusal)), lane)
            return
        await self._send(accepted(steer), lane)

    def _checked(self, message: SteerMessage, lane: _Lane | None) -> Steer:
        if lane is None or lane.ledger is None:
            text = f"No response {message.previous_response_id!r} runs on this connection."
            raise SteerRefused("response_not_found", text)
        message.check()
        if not can_be_steered(read_request(lane.body)):
            raise SteerRefused("steering_not_supported", "Nothing can be added to a response of a conversation.")
        if len(lane.steers) >= MAX_PENDING:
            raise SteerRefused("too_many_pending_steers", f"{MAX_PENDING} additions wait already.")
        steer = new_steer(message)
        lane.steers.append(steer)
        lane.ledger.steer()
        return steer

    async def _after_steers(self, lane: _Lane, ledger: Ledger) -> bytes | None:
        """Return the request that follows a response by itself, if one does."""
        if required := required_input(ledger):
            self._pending[ledger.id], lane.steers = lane.steers, []
            for steer in self._pending[ledger.id]:
                await self._send(pending(steer, required), lane)
            if len(self._pending) > MAX_LANES:
                await self._give_back(self._pending.pop(next(iter(self._pending))), NOT_CONTINUED, lane)
            return None
        details = ledger.object["incomplete_details"]
        if ledger.object["status"] == "completed" or details == {"reason": STEERED}:
            return continued(lane.body, lane.steers, ledger.id)
        steers, lane.steers = lane.steers, []
        await self._give_back(steers, "The response did not end well.", lane)
        return None

    async def _give_back(self, steers: Sequence[Steer], why: str, lane: _Lane) -> None:
        for steer in steers:
            await self._send(failed(steer.message, "response_not_active", why, steer.id), lane)

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
        tasks = [lane.task for lane in self._lanes.values() if lane.task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _send_error(self, error: ApiError, lane: _Lane | None = None) -> None:
        await self._send(error_event(error), lane)

    async def _send(self, event: Mapping[str, JsonValue], lane: _Lane | None) -> None:
        if lane is not None and lane.stream_id is not None:
            event = {**event, "stream_id": lane.stream_id}
        if not self._is_closed:
            await self._socket.send_text(msgspec.json.encode(event).decode())


def error_event(error: ApiError) -> Mapping[str, JsonValue]:
    """Return an error as a WebSocket tells it."""
    return {"type": "error", "sequence_number": 0, "status": error.status, **error.body}
