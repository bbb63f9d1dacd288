"""The way to a model server: so many requests at a time, and none while it asks to wait."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from ferrule.model.stream import ModelError

LONGEST_HOLD = 3600.0
"""Seconds that a server may ask to wait: limits per hour pass within it. A longer wait is an error that says so."""
MOST_REFUSALS = 100
"""How often one request may be told to wait. A server that never takes it has another reason than the rate."""
_ASKS_TO_WAIT = (429, 503)


class Gate:
    """The requests of one process to a server. `tell` hears of a wait, in seconds, that holds everybody."""

    def __init__(self, slots: int, tell: Callable[[float], None]) -> None:
        self._free = asyncio.Semaphore(slots)
        self._tell = tell
        self._until = 0.0
        self._bounds: set[asyncio.Timeout] = set()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """See `RequestGate.turn`."""
        await self._free.acquire()
        try:
            await self._open()
            yield
        finally:
            self._free.release()

    async def again(self, refused: ModelError, tries: int) -> bool:
        """See `RequestGate.again`: a wait that the server states holds all, and costs no retry."""
        seconds = (refused.retry_after_ms or 0) / 1000
        waits = refused.retryable and refused.status in _ASKS_TO_WAIT and 0 < seconds <= LONGEST_HOLD
        if not waits or tries > MOST_REFUSALS:
            return False
        self.hold(seconds)
        self._tell(seconds)
        await self._open()
        return True

    def hold(self, seconds: float) -> None:
        """Send nothing for so long. It takes nothing from the time that tasks have."""
        now = _now()
        until = max(self._until, now + seconds)
        more = until - max(self._until, now)
        self._until = until
        for bound in self._bounds:
            _lengthen(bound, more)

    @contextmanager
    def not_counted(self, bound: asyncio.Timeout) -> Iterator[None]:
        """Leave the waits out of a time limit while the body runs."""
        _lengthen(bound, self._until - _now())
        self._bounds.add(bound)
        try:
            yield
        finally:
            self._bounds.discard(bound)

    async def _open(self) -> None:
        while (left := self._until - _now()) > 0:  # noqa: ASYNC110 - it waits for a time, which may move
            await asyncio.sleep(left)


def _now() -> float:
    return asyncio.get_running_loop().time()


def _lengthen(bound: asyncio.Timeout, seconds: float) -> None:
    when = bound.when()
    if when is not None and seconds > 0 and not bound.expired():
        bound.reschedule(when + seconds)
