"""Work of the disk on a thread, which ends early when nobody waits any more."""

import asyncio
from collections.abc import Callable
from threading import Event
from typing import TypeVar

from ferrule.sync import uninterrupted

T = TypeVar("T")


class Stopped(Exception):
    """Nobody waits for the work any more."""


class Stop:
    """What tells work on a thread to end."""

    def __init__(self) -> None:
        self._event = Event()

    def set(self) -> None:
        """Let the work end at its next check."""
        self._event.set()

    def check(self) -> None:
        """Raise `Stopped` if nobody waits any more."""
        if self._event.is_set():
            raise Stopped


async def on_thread(work: Callable[[Stop], T]) -> T:
    """Do the work on a thread. If the caller is cancelled, it is told to stop, and has ended when this returns."""
    stop = Stop()
    running = asyncio.ensure_future(asyncio.to_thread(work, stop))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        stop.set()
        await uninterrupted(_end_of(running))
        raise


async def _end_of(running: asyncio.Future[T]) -> None:
    await asyncio.wait([running])
    if not running.cancelled():
        running.exception()  # nobody asks for it any more
