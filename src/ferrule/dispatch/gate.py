"""Order the calls of a turn: parallel tools run together, any other call runs alone. First come, first served."""

import asyncio
from collections import deque
from contextlib import suppress

ALONE = -1
"""One call runs alone inside; any other number counts the parallel ones."""


class Gate:
    """A fair read/write lock. Without a queue, entering costs no suspension."""

    __slots__ = ("_inside", "_queue")

    def __init__(self) -> None:
        self._inside = 0
        self._queue: deque[tuple[asyncio.Future[None], bool]] = deque()

    def try_enter(self, shared: bool) -> bool:
        """Enter if there is nobody to wait for."""
        inside = self._inside
        if self._queue or (inside and (inside == ALONE or not shared)):
            return False
        self._inside = inside + 1 if shared else ALONE
        return True

    async def enter(self, shared: bool) -> None:
        """Wait for this call's turn."""
        if self.try_enter(shared):
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        place = (waiter, shared)
        self._queue.append(place)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.cancelled():  # not admitted; a leaving call may have removed it from the queue already
                with suppress(ValueError):
                    self._queue.remove(place)
                self._wake()
            else:
                self.leave(shared)
            raise

    def leave(self, shared: bool) -> None:
        """Leave after the call."""
        self._inside = self._inside - 1 if shared else 0
        if self._queue:
            self._wake()

    def _wake(self) -> None:
        while self._queue and self._inside != ALONE:
            waiter, shared = self._queue[0]
            if not shared and self._inside:
                return
            self._queue.popleft()
            if not waiter.done():
                self._inside = self._inside + 1 if shared else ALONE
                waiter.set_result(None)
