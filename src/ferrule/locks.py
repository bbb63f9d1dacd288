"""Lock files that several of our processes share. A lock ends with its descriptor, however the process ends."""

import asyncio
import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PATIENCE = 0.25
"""Seconds to wait for a lock held for one small write: a command can hold one forever on any file that it can read."""

POLL_SECONDS = 0.002
"""Seconds between tries: the kernel offers no wait with a deadline. Short compared with a disk write, and cheap."""


def try_lock(descriptor: int) -> bool:
    """Take the exclusive lock at once; False if another process has it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def try_share(descriptor: int) -> bool:
    """Take the lock at once together with others that share it; False if a process has it for itself."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def release(descriptor: int) -> None:
    """Give the lock up, whoever else has the descriptor."""
    with suppress(OSError):  # a file system without locks
        fcntl.flock(descriptor, fcntl.LOCK_UN)


def lock_patiently(descriptor: int, seconds: float = PATIENCE) -> bool:
    """Take the exclusive lock, waiting at most this long; False if it is still held then. Blocking."""
    return wait_in_time(lambda: try_lock(descriptor), seconds)


def wait_in_time(take: Callable[[], bool], seconds: float) -> bool:
    """Call `take` until it returns True; False if it does not do so within this time. Blocking."""
    deadline = time.monotonic() + seconds
    while not take():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


async def take_in_time(take: Callable[[], bool], seconds: float) -> bool:
    """Do as `wait_in_time`, without blocking the loop."""
    deadline = time.monotonic() + seconds
    while not take():
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(POLL_SECONDS)
    return True


@contextmanager
def hold(file: Path, prepare: Callable[[], None]) -> Iterator[None]:
    """Hold the exclusive lock of a file that whoever holds it may remove; `prepare` makes the folder it lies in.
    Blocking, without a bound. Raises `OSError`, and what `prepare` raises."""
    while True:
        prepare()
        try:
            lock = os.open(file, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if os.fstat(lock).st_nlink:
                yield
                return
        finally:
            os.close(lock)
