"""HTTP/1.1 on loopback: asyncio moves the bytes, h11 handles the protocol."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from itertools import accumulate

import h11

from ferrule.testing.delivery import chunk_sizes
from ferrule.testing.plain import JsonObject
from ferrule.testing.player import Answer
from ferrule.testing.request import Request, Wire

Respond = Callable[[Request], Answer]
Notify = Callable[[Request], None]

_WIRES: tuple[tuple[str, Wire], ...] = (
    ("/chat/completions", "chat"),
    ("/responses", "responses"),
    ("/messages", "messages"),
    ("/models", "models"),
)


class Connection(asyncio.Protocol):
    """One client connection, kept alive; one request at a time."""

    def __init__(self, respond: Respond, finished: Notify, connections: "set[Connection]") -> None:
        self._respond = respond
        self._finished = finished
        self._connections = connections
        self._http = h11.Connection(h11.SERVER)
        self._head: h11.Request | None = None
        self._body: list[bytes] = []
        self._request: Request | None = None
        self._delivery: asyncio.Task[None] | None = None
        self._lost = asyncio.Event()
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start a connection. asyncio has set TCP_NODELAY already, so a small answer leaves at once."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """End an answer in progress: the client went away, or we closed."""
        self._connections.discard(self)
        self._lost.set()
        if self._delivery is not None:
            self._delivery.cancel()
        if self._request is not None and self._request.finished_ns is None:
            self._request.aborted = True
            self._finished(self._request)

    def data_received(self, data: bytes) -> None:
        """Take bytes from the client."""
        self._http.receive_data(data)
        self._pump()

    async def abort(self) -> None:
        """Drop the connection and wait until it is gone."""
        self._transport.abort()
        await self._lost.wait()

    def _pump(self) -> None:
        try:
            while self._step(self._http.next_event()):
                pass
        except h11.RemoteProtocolError as error:
            self._transport.write(
                f"HTTP/1.1 {error.error_status_hint} Bad Request\r\nconnection: close\r\n\r\n".encode()
            )
            self._transport.close()

    def _step(self, event: object) -> bool:
        """Process one event of the HTTP parser; return False if it needs more bytes or has to wait."""
        match event:
            case h11.Request():
                self._head, self._body = event, []
                if self._http.they_are_waiting_for_100_continue:
                    self._transport.write(
                        self._http.send(h11.InformationalResponse(status_code=100, headers=[])) or b""
                    )
            case h11.Data():
                self._body.append(bytes(event.data))
            case h11.EndOfMessage():
                self._answer()
            case h11.ConnectionClosed():
                self._transport.close()
                return False
            case _:
                return False
        return True

    def _answer(self) -> None:
        assert self._head is not None
        request = self._request = read_request(self._head, b"".join(self._body))
        answer = self._respond(request)
        request.status = answer.status
        if answer.delivery.at_once:
            self._transport.write(self._whole(answer))
            self._end(request)
        else:
            self._delivery = asyncio.get_running_loop().create_task(self._deliver(request, answer))

    def _whole(self, answer: Answer) -> bytes:
        parts = (_head(answer, chunked=False), h11.Data(data=answer.body), h11.EndOfMessage())
        return b"".join(self._http.send(part) or b"" for part in parts)

    def _end(self, request: Request) -> None:
        self._note_end(request)
        if self._http.our_state is h11.MUST_CLOSE:
            self._transport.close()
        else:
            self._http.start_next_cycle()

    def _break_off(self, request: Request) -> None:
        self._note_end(request)
        self._transport.close()

    def _note_end(self, request: Request) -> None:
        request.finished_ns = time.monotonic_ns()
        self._finished(request)

    async def _deliver(self, request: Request, answer: Answer) -> None:
        delivery = answer.delivery
        await asyncio.sleep(delivery.delay)
        if delivery.hang_up:
            self._break_off(request)
            return
        self._transport.write(self._http.send(_head(answer, chunked=True)) or b"")
        start = 0
        for end in _ends(answer):
            await self._stand(answer, start)
            if start == answer.cut_at:
                break
            self._transport.write(self._http.send(h11.Data(data=answer.body[start:end])) or b"")
            await asyncio.sleep(delivery.pace)
            start = end
        await self._stand(answer, start if start == len(answer.body) else -1)
        if answer.cut_at is not None:
            self._break_off(request)
            return
        self._transport.write(self._http.send(h11.EndOfMessage()) or b"")
        self._delivery = None
        self._end(request)
        self._pump()

    async def _stand(self, answer: Answer, at: int) -> None:
        stall = answer.delivery.stall
        if stall is None or at != answer.stall_at:
            return
        if stall.gate is not None:
            await stall.gate.pass_through()
        elif stall.seconds is not None:
            await asyncio.sleep(stall.seconds)
        else:
            await asyncio.Event().wait()


def read_request(head: h11.Request, raw: bytes) -> Request:
    """Build the recorded request; a body that is not a JSON object reads as an empty one."""
    arrived = time.monotonic_ns()
    path = head.target.decode("ascii")
    route = path.partition("?")[0].rstrip("/")
    wire: Wire = next((wire for ending, wire in _WIRES if route.endswith(ending)), "unknown")
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in head.headers}
    return Request(wire, head.method.decode("ascii"), path, headers, raw, _object(raw), arrived)


def _object(raw: bytes) -> JsonObject:
    try:
        value = json.loads(raw) if raw else {}
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _head(answer: Answer, *, chunked: bool) -> h11.Response:
    headers = [("content-type", answer.content_type), *answer.headers]
    length = ("transfer-encoding", "chunked") if chunked else ("content-length", str(len(answer.body)))
    return h11.Response(status_code=answer.status, headers=[*headers, length])


def _ends(answer: Answer) -> Iterator[int]:
    """Yield where each piece of the body ends: by the requested sizes, and at a stall or a cut."""
    total = len(answer.body)
    ends = set(accumulate(chunk_sizes(answer.delivery.chunks, total)))
    ends.update(place for place in (answer.stall_at, answer.cut_at) if place)
    return iter(sorted(ends))
