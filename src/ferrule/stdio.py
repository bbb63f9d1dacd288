"""Serving one client over standard input and output, and what waits for a client that is slow to read.

Standard output belongs to the protocol: whatever else is printed in this process goes to standard error.
"""

import asyncio
import os
import select
import stat
from collections.abc import Iterator
from contextlib import contextmanager

HIGH_BYTES = 1 << 20
"""Bytes that may wait for a client before those who make more have to wait: some thousand messages."""
LOW_BYTES = HIGH_BYTES // 2
"""Bytes that still wait when they may go on."""
MOST_BYTES = 64 << 20
"""Bytes after which a client is given up: what must be told, such as the ends of commands, cannot wait."""


class Outbox:
    """The messages that one client has not taken yet, in order.

    Who makes many of them waits for `room`, or leaves those out that `offer` does not take. What `put` takes must
    arrive: a client for which too much of it waits is `lost`.
    """

    def __init__(self) -> None:
        self._waiting: list[bytes] = []
        self._bytes = 0
        self._arrived = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._flushed = asyncio.Event()
        self._flushed.set()
        self.lost = asyncio.Event()
        """Set when the client takes nothing any more."""

    def put(self, message: bytes) -> None:
        """Add a message."""
        if self.lost.is_set():
            return
        self._waiting.append(message)
        self._bytes += len(message)
        self._arrived.set()
        self._flushed.clear()
        if self._bytes > HIGH_BYTES:
            self._room.clear()
        if self._bytes > MOST_BYTES:
            self.lose()

    def offer(self, message: bytes) -> bool:
        """Add a message that the client can do without; return False where it has enough to read."""
        if not self._room.is_set():
            return False
        self.put(message)
        return True

    async def room(self) -> None:
        """Wait until the client has read enough, or is lost."""
        await self._room.wait()

    async def take(self) -> list[bytes]:
        """Wait for messages and take all that there are; they count as waiting until `taken`."""
        await self._arrived.wait()
        self._arrived.clear()
        taken, self._waiting = self._waiting, []
        return taken

    def taken(self, messages: list[bytes]) -> None:
        """Note that the client has these."""
        self._bytes -= sum(map(len, messages))
        if self._bytes <= LOW_BYTES:
            self._room.set()
        if not self._bytes:
            self._flushed.set()

    async def flushed(self) -> None:
        """Wait until the client has everything, or is lost."""
        await self._flushed.wait()

    def lose(self) -> None:
        """Give the client up: nothing waits any more, nobody waits for it."""
        self.lost.set()
        self._waiting, self._bytes = [], 0
        self._room.set()
        self._flushed.set()


def write_ready(pipe: int, data: bytes) -> bytes:
    """Write what a pipe takes at once, and return the rest: all of it where this is no pipe. A thread for each write
    costs more than the write. Raises `OSError`."""
    if not stat.S_ISFIFO(os.fstat(pipe).st_mode):
        return data
    poll = select.poll()
    poll.register(pipe, select.POLLOUT)
    rest = memoryview(data)
    # As many bytes as are written whole or not at all find room in a pipe that is ready.
    while rest and any(happened & select.POLLOUT for _, happened in poll.poll(0)):
        rest = rest[os.write(pipe, rest[: select.PIPE_BUF]) :]
    return bytes(rest)


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write all of it. Raises `OSError`."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


@contextmanager
def standard_streams() -> Iterator[tuple[int, int]]:
    """Yield descriptors of our own for the client's messages and our answers. Meanwhile standard input is empty, and
    standard output goes where standard error goes."""
    source, sink = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    try:
        os.dup2(nothing, 0)
        try:
            os.dup2(2, 1)
        except OSError:  # there is no standard error
            os.dup2(nothing, 1)
        yield source, sink
    finally:
        os.dup2(sink, 1)
        os.close(sink)
        os.close(nothing)
