"""Locks on files that several processes of ours share. They end with the descriptor, whatever ends the process."""

import fcntl
import time

PATIENCE = 0.25
"""Seconds to wait for a lock held for one small write: a command can hold one for ever on any file that it can read."""


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
        time.sleep(0.002)
    return True
