"""One session file belongs to one open session at a time. The claim is a lock on the file: it ends with the process,
however that ends."""

import os
import re
from contextlib import suppress
from pathlib import Path

from ferrule.locks import try_lock
from ferrule.protocol.errors import UsageError

_FLOCK = re.compile(
    r"^\d+: FLOCK +\S+ +\S+ (?P<pid>\d+) (?P<major>[0-9a-f]+):(?P<minor>[0-9a-f]+):(?P<inode>\d+) ", re.MULTILINE
)


def claim(descriptor: int, path: Path, session_id: str, remedy: str) -> None:
    """Lock a session's open file. Raises `UsageError` that names the holder and the `remedy`, or where the file is no
    longer there."""
    try:
        free = try_lock(descriptor)
    except OSError:
        return  # a file system without locks
    if not free:
        raise UsageError(f"session {session_id} is open in {_holder(descriptor)}; {remedy}")
    try:
        here = os.path.samestat(path.stat(), os.fstat(descriptor))
    except FileNotFoundError:
        here = False
    if not here:
        raise UsageError(f"session {session_id} was moved or deleted by another program just now")


def _holder(descriptor: int) -> str:
    """Say which process holds the lock, where the kernel tells (Linux)."""
    status = os.fstat(descriptor)
    where = (os.major(status.st_dev), os.minor(status.st_dev), status.st_ino)
    with suppress(OSError):
        for held in _FLOCK.finditer(Path("/proc/locks").read_text()):
            if (int(held["major"], 16), int(held["minor"], 16), int(held["inode"])) == where and int(held["pid"]):
                return "this program" if int(held["pid"]) == os.getpid() else f"process {held['pid']}"
    return "another process"
