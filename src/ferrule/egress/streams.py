"""Streams of bytes over sockets, with and without TLS, that share the event loop fairly."""

import asyncio
import socket
import ssl
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any
from weakref import WeakKeyDictionary

BLOCK = 1 << 18
"""Bytes read at once: enough that the work per block is small beside the copying."""
TURNS = 2
"""Blocks that all streams together move before other work gets its turn: a tenth of a millisecond each."""
PATIENCE_S = 300.0
"""Seconds without a byte after which the other side counts as gone: as long as proxies usually wait."""


class Turns:
    """Lets streams move a block in turn, a few between two looks at everything else that the loop does."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._scheduled = False

    async def next(self) -> None:
        """Wait for a turn."""
        turn = self._loop.create_future()
        self._waiting.append(turn)
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._give)
        await turn

    def _give(self) -> None:
        given = 0
        while self._waiting and given < TURNS:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                given += 1
        self._scheduled = bool(self._waiting)
        if self._scheduled:
            self._loop.call_soon(self._give)


_turns: "WeakKeyDictionary[asyncio.AbstractEventLoop, Turns]" = WeakKeyDictionary()


def turns() -> Turns:
    """Return the turns of the running loop."""
    loop = asyncio.get_running_loop()
    if loop not in _turns:
        _turns[loop] = Turns()
    return _turns[loop]


class SocketStream:
    """A connected socket. `early` was read from it already. Its methods raise `OSError`, a `TimeoutError` after
    `patience` seconds without a byte; None is for ever."""

    def __init__(self, connection: socket.socket, early: bytes = b"", patience: float | None = PATIENCE_S) -> None:
        connection.setblocking(False)
        self.socket = connection
        self._loop = asyncio.get_running_loop()
        self._turns = turns()
        self._early = early
        self.patience = patience

    def unread(self, data: bytes) -> None:
        """Put back what was read."""
        self._early = data + self._early

    def take_early(self) -> bytes:
        """Return, once, what was read already."""
        data, self._early = self._early, b""
        return data

    async def read(self, most: int = BLOCK) -> bytes:
        """Return some bytes; none at the end."""
        if self._early:
            data, self._early = self._early[:most], self._early[most:]
            return data
        while True:
            await self._turns.next()
            try:
                return self.socket.recv(most)
            except BlockingIOError:
                await self._readable()

    async def write(self, data: bytes) -> None:
        """Write all of it."""
        try:
            sent = self.socket.send(data)
        except BlockingIOError:
            sent = 0
        if sent < len(data):
            async with asyncio.timeout(self.patience):
                await self._loop.sock_sendall(self.socket, memoryview(data)[sent:])

    async def end(self) -> None:
        """Say that nothing more is written."""
        self.socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close it at once."""
        self.socket.close()

    @property
    def is_stale(self) -> bool:
        """True if the other side has closed, or says what nobody asked for."""
        try:
            self.socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True
        return True

    async def _readable(self) -> None:
        ready = self._loop.create_future()
        self._loop.add_reader(self.socket.fileno(), _set, ready)
        try:
            async with asyncio.timeout(self.patience):
                await ready
        finally:
            if self.socket.fileno() >= 0:
                self._loop.remove_reader(self.socket.fileno())


def _set(ready: "asyncio.Future[None]") -> None:
    if not ready.done():
        ready.set_result(None)


class TlsStream:
    """TLS over a stream. Call `handshake` first."""

    def __init__(self, inner: SocketStream, context: ssl.SSLContext, *, host: str, server_side: bool = False) -> None:
        self._inner = inner
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        name = None if server_side else host
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=server_side, server_hostname=name)
        self._sending = asyncio.Lock()

    async def handshake(self) -> None:
        """Agree on keys, and check who the other side is. Raises `OSError`."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._flush()
                await self._receive()
            except ssl.SSLError:
                await self._flush()  # the alert, which says why
                raise
            else:
                await self._flush()
                return

    async def read(self, most: int = BLOCK) -> bytes:
        """Return some bytes; none at the end."""
        while True:
            parts, ended = self._decrypted(most)
            if parts or ended:
                return b"".join(parts)
            await self._flush()
            await self._receive()

    async def write(self, data: bytes) -> None:
        """Write all of it."""
        self._tls.write(data)
        await self._flush()

    async def end(self) -> None:
        """Say that nothing more is written."""
        with suppress(ssl.SSLError):  # the other side has not said so, too
            self._tls.unwrap()
        await self._flush()
        await self._inner.end()

    def close(self) -> None:
        """Close it at once."""
        self._inner.close()

    @property
    def patience(self) -> float | None:
        """As of a `SocketStream`."""
        return self._inner.patience

    @patience.setter
    def patience(self, seconds: float | None) -> None:
        self._inner.patience = seconds

    @property
    def is_stale(self) -> bool:
        """True if the other side has closed, or says what nobody asked for."""
        return self._inner.is_stale

    def _decrypted(self, most: int) -> tuple[list[bytes], bool]:
        """Return what is here, and whether that is the end. TLS gives a record at a time."""
        parts: list[bytes] = []
        while most > 0:
            try:
                part = self._tls.read(most)
            except ssl.SSLWantReadError:
                return parts, False
            except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
                return parts, True
            if not part:
                return parts, True
            parts.append(part)
            most -= len(part)
        return parts, False

    async def _receive(self) -> None:
        data = await self._inner.read()
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()

    async def _flush(self) -> None:
        async with self._sending:
            if data := self._outgoing.read():
                await self._inner.write(data)


async def tunnel(one: SocketStream, other: SocketStream, idle_s: float = PATIENCE_S) -> None:
    """Pass bytes both ways until both have ended, or nothing came for `idle_s` seconds. Raises `OSError`."""
    async with silent_together((one, other), idle_s) as moved:
        await both(_pump(one, other, moved), _pump(other, one, moved))


@asynccontextmanager
async def silent_together(
    streams: "Iterable[SocketStream | TlsStream]", idle_s: float = PATIENCE_S
) -> AsyncIterator[Callable[[], None]]:
    """Let a stream be silent while another is not. Yields what is to be called when bytes have come; raises
    `TimeoutError` where that was not for `idle_s` seconds."""
    for stream in streams:
        stream.patience = None
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(idle_s) as idle:

        def moved() -> None:
            now = loop.time()
            if (until := idle.when()) is None or until < now + idle_s - 1:  # moving a timer takes as long as a block
                idle.reschedule(now + idle_s)

        yield moved


async def both(one: Coroutine[Any, Any, None], other: Coroutine[Any, Any, None]) -> None:
    """Run both to their end; the first error ends the other. Raises it."""
    tasks = [asyncio.ensure_future(one), asyncio.ensure_future(other)]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pump(source: SocketStream, target: SocketStream, moved: Callable[[], None]) -> None:
    while data := await source.read():
        await target.write(data)
        moved()
    await target.end()
