"""Orders the calls of a turn: parallel tools run together, any other call runs alone. First come, first in."""

import asyncio
from collections import deque
from contextlib import suppress


class Gate:
    """A fair read/write lock. Without a queue, entering costs no suspension."""

    __slots__ = ("_queue", "_readers", "_writing")

    def __init__(self) -> None:
        self._readers = 0
        self._writing = False
        self._queue: deque[tuple[asyncio.Future[None], bool]] = deque()

    def try_enter(self, shared: bool) -> bool:
        """Enter if nobody has to be waited for."""
        if self._queue or self._writing or (self._readers and not shared):
            return False
        self._admit(shared)
        return True

    async def enter(self, shared: bool) -> None:
        """Wait for the turn of this call."""
        if self.try_enter(shared):
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        place = (waiter, shared)
        self._queue.append(place)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.cancelled():  # not admitted; who left meanwhile may have taken it out of the queue already
                with suppress(ValueError):
                    self._queue.remove(place)
                self._wake()
            else:
                self.leave(shared)
            raise

    def leave(self, shared: bool) -> None:
        """The call is over."""
        if shared:
            self._readers -= 1
        else:
            self._writing = False
        if self._queue:
            self._wake()

    def _admit(self, shared: bool) -> None:
        if shared:
            self._readers += 1
        else:
            self._writing = True

    def _wake(self) -> None:
        while self._queue and not self._writing:
            waiter, shared = self._queue[0]
            if not shared and self._readers:
                return
            self._queue.popleft()
            if not waiter.done():
                self._admit(shared)
                waiter.set_result(None)
