"""Locks on files that several processes of ours share. They end with the descriptor, whatever ends the process."""

import asyncio
import fcntl
import time
from collections.abc import Callable

PATIENCE = 0.25
"""Seconds to wait for a lock held for one small write: a command can hold one for ever on any file that it can read."""

POLL_SECONDS = 0.002
"""The kernel tells nobody with a deadline that a lock is free. This is short beside a disk write, and costs no work."""


def try_lock(descriptor: int) -> bool:
    """Take the lock alone, at once; False where another process has it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def lock_patiently(descriptor: int, seconds: float = PATIENCE) -> bool:
    """Take the lock, waiting for at most so many seconds; False where it is still held then. Blocking."""
    deadline = time.monotonic() + seconds
    while not try_lock(descriptor):
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


async def take_in_time(take: Callable[[], bool], seconds: float) -> bool:
    """Try to take a lock of any kind again and again; return False if `take` has not returned True in time."""
    deadline = time.monotonic() + seconds
    while not take():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(POLL_SECONDS)
    return True
