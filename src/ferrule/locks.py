"""Locks on files that several processes of ours share. They end with the descriptor, whatever ends the process."""

import fcntl


def try_lock(descriptor: int) -> bool:
    """Take the lock alone, at once; False where another process has it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
