"""Placeholders: empty folders in place of missing reserved names, for as long as commands run.

A mount needs something to be mounted on. So a missing reserved name is created, and removed after the last command, in
whichever process that ran. Processes count each other with read locks on one file in a private folder, one byte per
root. Such a lock (`F_OFD_SETLK`) belongs to the open file, so it ends with the last process that has it, and a confined
command cannot take a write lock on a file that it may only read.

While a root has placeholders, a record of their paths, each ended by a NUL, lies beside the lock file.
"""

import errno
import fcntl
import hashlib
import os
import re
import struct
import sys
from collections.abc import Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from ferrule.locks import take_in_time
from ferrule.process.launcher import LaunchError
from ferrule.sandbox.boundary import PLACEHOLDER_MODE, Cover
from ferrule.sandbox.plan import Root

WRITABLE: Final = 0o222
LOCK_PATIENCE: Final = 5.0
"""Seconds: a write lock is held only while a few empty folders are removed."""


class Placeholders:
    """The placeholders for the commands of one zygote. Use it from one thread."""

    def __init__(self, state_dir: Path, roots: Iterable[Root]) -> None:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder = os.open(state_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.lock = os.open("lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600, dir_fd=self.folder)
        self._users = {root.path: 0 for root in roots if root.reserve}
        self._recorded: set[str] = set()

    @property
    def records(self) -> tuple[str, ...]:
        """The names of the records that may be written; each also gives its byte in the lock file."""
        return tuple(record_name(root) for root in self._users)

    async def acquire(self, covers: Iterable[Cover]) -> list[Cover]:
        """Create the placeholders among `covers` for one command. Raises `LaunchError`.

        Returns the covers without those that cannot be created: where we may not make a folder, commands cannot either.
        """
        for root in self._users:
            self._users[root] += 1
        try:
            for root in self._users:
                await self._share(root)
            return [cover for cover in covers if cover.kind != "empty" or self._make(cover.path)]
        except OSError as error:
            self.release()
            where = error.filename or " and ".join(self._users)  # a full disk names no file
            raise LaunchError(f"cannot protect {where}: {error.strerror}") from error
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Give up one command's share; the last one of all processes removes the placeholders."""
        for root in self._users:
            self._users[root] -= 1
            if not self._users[root]:
                remove_placeholders(self.folder, self.lock, record_name(root))
                self._recorded = {path for path in self._recorded if os.path.dirname(path) != root}

    def close(self) -> None:
        os.close(self.lock)
        os.close(self.folder)

    async def _share(self, root: str) -> None:
        if not await take_in_time(partial(_lock, self.lock, record_name(root), fcntl.F_RDLCK), LOCK_PATIENCE):
            raise LaunchError(f"another process does not release the protected folders of {root}: try again")

    def _make(self, path: str) -> bool:
        self._record(path)
        try:
            os.mkdir(path, PLACEHOLDER_MODE)
        except FileExistsError:
            return True
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise
            return False
        return True

    def _record(self, path: str) -> None:
        """Record a placeholder before it is created, so that a start after a crash knows whose it is."""
        if path in self._recorded:
            return
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        record = os.open(record_name(os.path.dirname(path)), flags, 0o600, dir_fd=self.folder)
        try:
            os.write(record, os.fsencode(path) + b"\0")
        finally:
            os.close(record)
        self._recorded.add(path)


def record_name(root: str) -> str:
    """Return the name of a root's record, a hexadecimal number that is also the root's byte in the lock file."""
    return hashlib.sha256(os.fsencode(root)).hexdigest()[:15]


_RECORD: Final = re.compile("[0-9a-f]{15}")


def remove_placeholders(folder: int, lock: int, record: str) -> None:
    """Give up a root and remove its placeholders if nobody else uses it. If we cannot, the zygote does the same."""
    # Unlock first: if two leave at once and both ask for the write lock, both would fail.
    _lock(lock, record, fcntl.F_UNLCK)
    if not _lock(lock, record, fcntl.F_WRLCK):
        return
    try:
        with suppress(FileNotFoundError):
            fd = os.open(record, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
            with os.fdopen(fd, "rb") as file:
                paths = file.read().split(b"\0")[:-1]
            # One that is gone or in use by now is not ours any more.
            if not [path for path in paths if _rmdir(path) == errno.EBUSY]:
                os.unlink(record, dir_fd=folder)
    finally:
        _lock(lock, record, fcntl.F_UNLCK)


def _rmdir(path: bytes) -> int | None:
    """Remove a placeholder; an empty folder that is writable belongs to somebody. Returns an errno if that failed."""
    try:
        if not os.lstat(path).st_mode & WRITABLE:
            os.rmdir(path)
    except OSError as error:
        return error.errno
    return None


def sweep(state_dir: Path) -> None:
    """Remove placeholders left by processes that were killed at the same moment."""
    placeholders = Placeholders(state_dir, ())
    try:
        for record in os.listdir(placeholders.folder):
            if _RECORD.fullmatch(record):
                remove_placeholders(placeholders.folder, placeholders.lock, record)
    finally:
        placeholders.close()


def _lock(fd: int, record: str, kind: int) -> bool:
    if sys.platform != "linux":
        raise LaunchError("placeholders are for Linux")
    request = struct.pack("hhqqi4x", kind, os.SEEK_SET, int(record, 16), 1, 0)
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, request)
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True
