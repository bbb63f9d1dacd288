"""Descriptors in the event loop: a reader that drains one, a writer that fills one. Each owns its descriptor."""

import asyncio
import os
from collections import deque
from collections.abc import Callable

READ_BYTES = 64 * 1024
"""A pipe's capacity, so that one read empties it."""
READS_PER_WAKEUP = 8
"""After this many reads a busy output lets other tasks run."""
DISCARD_PAUSE = 0.1
"""Seconds between reads of an output that is drained only to keep its writers alive."""
LAST_READ_BYTES = 1024 * 1024
"""Bytes read at once from an output that others keep writing to: a pipe holds no more."""


class Reader:
    """A reader that passes every piece to `sink` until the end."""

    def __init__(self, fd: int, sink: Callable[[bytes], None]) -> None:
        self._fd = fd
        self._sink = sink
        self._loop = asyncio.get_running_loop()
        self._end = asyncio.Event()
        self._fault: Exception | None = None
        self.reached_end = False
        os.set_blocking(fd, False)
        self._loop.add_reader(fd, self._ready)

    @property
    def closed(self) -> bool:
        return self._end.is_set()

    async def finish(self, grace: float) -> None:
        """After the exit: wait up to `grace` seconds for the end, and take what has already arrived.

        Later writers may go on, but their output is discarded. Raises what `sink` raised.
        """
        try:
            async with asyncio.timeout(grace):
                await self._end.wait()
        except TimeoutError:
            self.catch_up()
        if not self.closed:
            self._end.set()
            self._loop.remove_reader(self._fd)
            _Discard(self._fd, self._loop)
        if self._fault:
            raise self._fault

    def catch_up(self) -> None:
        """Take what has already arrived, without waiting."""
        taken = 0
        while taken < LAST_READ_BYTES and (count := self._read()):
            taken += count

    def close(self) -> None:
        if not self.closed:
            self._end.set()
            self._loop.remove_reader(self._fd)
            os.close(self._fd)

    def _ready(self) -> None:
        for _ in range(READS_PER_WAKEUP):
            if self._read() < READ_BYTES:
                return

    def _read(self) -> int:
        """Read once; return 0 if there is nothing now, or nothing more."""
        if self.closed:
            return 0
        try:
            data = os.read(self._fd, READ_BYTES)
        except BlockingIOError:
            return 0
        except OSError:  # a terminal reports EIO when its last user has gone
            data = b""
        if not data:
            self.reached_end = True
            self.close()
            return 0
        try:
            self._sink(data)
        except Exception as fault:  # noqa: BLE001 - `finish` raises it where somebody waits
            self._fault = fault
            self.close()
        return len(data)


class _Discard:
    """A drain for processes that outlived their command: without it, a server that logs would die of SIGPIPE.

    The event loop keeps it alive until the last writer has gone or the loop ends.
    """

    def __init__(self, fd: int, loop: asyncio.AbstractEventLoop) -> None:
        self._fd = fd
        self._loop = loop
        loop.add_reader(fd, self._ready)

    def __del__(self) -> None:
        os.close(self._fd)

    def _ready(self) -> None:
        self._loop.remove_reader(self._fd)
        for _ in range(READS_PER_WAKEUP):
            try:
                data = os.read(self._fd, READ_BYTES)
            except BlockingIOError:
                break
            except OSError:
                return
            if not data:
                return
        self._loop.call_later(DISCARD_PAUSE, self._loop.add_reader, self._fd, self._ready)


class Writer:
    """A background writer, as fast as the other side reads. A closed other side sets `broken` and is not an error."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[memoryview] = deque()
        self._finishing = False
        self._closed = False
        self.unsent = 0
        """Bytes still queued."""
        self.broken = False
        self._idle = asyncio.Event()
        self._idle.set()
        os.set_blocking(fd, False)

    def write(self, data: bytes) -> None:
        """Queue bytes. Does nothing once the other side has gone."""
        if data and not self._closed:
            self._waiting.append(memoryview(data))
            self.unsent += len(data)
            if len(self._waiting) == 1:
                self._idle.clear()
                self._ready()

    async def drain(self) -> None:
        """Wait until the queue is empty, for input without an end. Returns if the other side closes."""
        await self._idle.wait()

    def finish(self) -> None:
        """Close the descriptor once everything is written."""
        self._finishing = True
        if not self._waiting:
            self.close()

    def close(self) -> None:
        """Close the descriptor now and drop what is still queued."""
        if not self._closed:
            self._closed = True
            self._loop.remove_writer(self._fd)
            os.close(self._fd)
            self._waiting.clear()
            self._idle.set()

    def _ready(self) -> None:
        try:
            while self._waiting:
                self._send(self._waiting[0])
        except BlockingIOError:
            self._loop.add_writer(self._fd, self._ready)
        except OSError:  # EPIPE, or EIO from a terminal
            self.broken = True
            self.close()
        else:
            self._loop.remove_writer(self._fd)
            self._idle.set()
            if self._finishing:
                self.close()

    def _send(self, piece: memoryview) -> None:
        sent = os.write(self._fd, piece)
        self.unsent -= sent
        if sent == len(piece):
            self._waiting.popleft()
        else:
            self._waiting[0] = piece[sent:]
