"""The events of a response as server-sent events.

A stream ends with `[DONE]`. While nothing happens, a comment keeps proxies and clients from giving up.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from itertools import chain

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ferrule.responses.ledger import Batch

KEEP_ALIVE_S = 15.0
"""Seconds of silence before a comment: proxies end what is silent for 30 or 60."""

STALLED_S = 600.0
"""Seconds that a client may take nothing at all: then it counts as gone, and what is kept for it is freed."""

WRITE_BYTES = 64 * 1024
"""Bytes that are handed over at once: what waits for a slow client is no more than that, besides the response's own
record."""

KEEP_ALIVE = b": keep-alive\n\n"
DONE = b"data: [DONE]\n\n"
HEADERS = {"cache-control": "no-cache", "content-type": "text/event-stream; charset=utf-8", "x-accel-buffering": "no"}

_BEFORE = b'{"type":"'
"""How the JSON of each event begins."""

Batches = AsyncIterator[Batch]
Leave = Callable[[], Awaitable[None]]


def frame(event: bytes) -> bytes:
    """Return an event, as its JSON, as it goes over the wire."""
    assert event.startswith(_BEFORE)
    name = event[len(_BEFORE) : event.index(b'"', len(_BEFORE))]
    return b"event: %b\ndata: %b\n\n" % (name, event)


def writes(batch: Batch) -> Iterator[tuple[bytes, bool]]:
    """Yield what is written at once, and whether more comes: events are joined, and the end goes with the last."""
    waiting, size = list[bytes](), 0
    for one in chain(map(frame, batch.events), (DONE,) if batch.is_last else ()):
        if size >= WRITE_BYTES:
            yield b"".join(waiting), True
            waiting, size = [], 0
        waiting.append(one)
        size += len(one)
    yield b"".join(waiting), not batch.is_last


class EventStream(Response):
    """Sends batches of events, each its JSON, as they come. `leave` is awaited when the client has all, or
    has left."""

    def __init__(self, batches: Batches, headers: Mapping[str, str], leave: Leave | None = None) -> None:
        super().__init__(None, 200, {**HEADERS, **headers})
        del self.headers["content-length"]
        self._batches = batches
        self._leave = leave
        self._sent_at = 0.0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the whole stream."""
        sending = asyncio.create_task(self._send(send))
        leaving = asyncio.create_task(gone(receive))
        try:
            await self._until_end(sending, leaving, send)
        finally:
            leaving.cancel()
            sending.cancel()
            if self._leave is not None:
                await self._leave()
        if not sending.cancelled() and sending.done():
            sending.result()

    async def _until_end(self, sending: "asyncio.Task[None]", leaving: "asyncio.Task[None]", send: Send) -> None:
        """Wait until all is sent or the client has left; break silence."""
        self._sent_at = time.monotonic()
        pause = KEEP_ALIVE_S
        while True:
            await asyncio.wait((sending, leaving), timeout=pause, return_when=asyncio.FIRST_COMPLETED)
            if sending.done() or leaving.done():
                return
            silent = time.monotonic() - self._sent_at
            if self._is_blocked and silent > STALLED_S:
                return
            if silent >= KEEP_ALIVE_S and not self._is_blocked:
                await send({"type": "http.response.body", "body": KEEP_ALIVE, "more_body": True})
            pause = KEEP_ALIVE_S - silent if silent < KEEP_ALIVE_S else KEEP_ALIVE_S

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async for batch in self._batches:
            for piece, more in writes(batch):
                await self._write(send, piece, more=more)

    _is_blocked = False

    async def _write(self, send: Send, piece: bytes, *, more: bool) -> None:
        self._is_blocked = True
        await send({"type": "http.response.body", "body": piece, "more_body": more})
        self._is_blocked = False
        self._sent_at = time.monotonic()


async def gone(receive: Receive) -> None:
    """Wait until the client leaves."""
    while (await receive())["type"] != "http.disconnect":
        pass
