"""Empty folders in the place of reserved names that are missing, for as long as a command runs.

A mount needs something to be mounted on. So a reserved name that does not exist is made, and taken away afterwards by
the last command, in whichever process. They count each other with read locks on one byte a root of one file in a
private folder. Such a lock (`F_OFD_SETLK`) belongs to the open file, so it ends with the last process that has it, and
a confined command cannot take a write lock on a file that it only reads.

Beside the lock file, a record of a root's placeholders (paths, each ended by a NUL) stands while there are any.
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
"""Seconds: the lock is held for writing only while a few empty folders are removed."""


class Placeholders:
    """The placeholders of the commands of one zygote. Not for several threads."""

    def __init__(self, state_dir: Path, roots: Iterable[Root]) -> None:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder = os.open(state_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self.lock = os.open("lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600, dir_fd=self.folder)
        self._users = {root.path: 0 for root in roots if root.reserve}
        self._recorded: set[str] = set()

    @property
    def records(self) -> tuple[str, ...]:
        """The names of the records that may come to stand; they tell the place of the lock, too."""
        return tuple(record_name(root) for root in self._users)

    async def acquire(self, covers: Iterable[Cover]) -> list[Cover]:
        """Make the placeholders among `covers`, for one command. Raises `LaunchError`.

        Returns the covers without those that cannot be made: where we may not make a folder, commands cannot either.
        """
        for root in self._users:
            self._users[root] += 1
        try:
            for root in self._users:
                await self._share(root)
            return [cover for cover in covers if cover.kind != "empty" or self._make(cover.path)]
        except OSError as error:
            self.release()
            raise LaunchError(f"cannot protect {error.filename}: {error.strerror}") from error
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """One command has ended; the last one of all processes takes the placeholders away."""
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
            raise LaunchError(f"another process does not let go of the protected folders of {root}")

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
        """Before it is made: so that whoever comes after a crash knows whose it is."""
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
    """The name of a root's record; as a hexadecimal number, it is also the byte of the lock file that stands for it."""
    return hashlib.sha256(os.fsencode(root)).hexdigest()[:15]


_RECORD: Final = re.compile("[0-9a-f]{15}")


def remove_placeholders(folder: int, lock: int, record: str) -> None:
    """Give up a root; take its placeholders away if nobody else uses it. The zygote does the same, if we cannot."""
    # First unlocked: two that leave at once and both want more would both fail.
    _lock(lock, record, fcntl.F_UNLCK)
    if not _lock(lock, record, fcntl.F_WRLCK):
        return
    try:
        with suppress(FileNotFoundError):
            fd = os.open(record, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
            with os.fdopen(fd, "rb") as file:
                paths = file.read().split(b"\0")[:-1]
            # Those that are gone or in use by now are not ours any more.
            if not [path for path in paths if _rmdir(path) == errno.EBUSY]:
                os.unlink(record, dir_fd=folder)
    finally:
        _lock(lock, record, fcntl.F_UNLCK)


def _rmdir(path: bytes) -> int | None:
    """Of a placeholder only: a folder that somebody may write is somebody's, though it is empty."""
    try:
        if not os.lstat(path).st_mode & WRITABLE:
            os.rmdir(path)
    except OSError as error:
        return error.errno
    return None


def sweep(state_dir: Path) -> None:
    """Take away what processes have left that were killed all at once."""
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
