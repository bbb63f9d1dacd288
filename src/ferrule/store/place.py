"""The folder, the file and the lock of a store, made so that only this user can read them."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ferrule.locks import lock_patiently, try_lock
from ferrule.store.errors import StoreError, StoreFull, StoreInUse

FOLDER_MODE = 0o700
FILE_MODE = 0o600
OPENING_SECONDS = 30.0
"""Opening takes milliseconds, migrating a large store seconds."""
_OPEN = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_PID_BYTES = 20
NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def make_folder(path: Path) -> None:
    """Make the folder of a store if there is none."""
    with explained(path, "made"):
        path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)


def make_file(path: Path) -> None:
    """Make the file if there is none; let only this user read it. SQLite gives its own files the same mode.

    One that exists is not opened here: closing any descriptor of it would end the locks of whoever has it open in this
    process.
    """
    with explained(path, "made"):
        with suppress(FileExistsError):
            os.close(os.open(path, _OPEN | os.O_EXCL, FILE_MODE))
        mode = path.lstat().st_mode
        if not stat.S_ISREG(mode):
            raise StoreError(f"{path} is not a file; move it away")
        if stat.S_IMODE(mode) & ~FILE_MODE:
            path.chmod(FILE_MODE)


def lock(path: Path) -> int:
    """Keep other processes out while the descriptor returned is open. Raises `StoreInUse` if one is there already."""
    with explained(path, "locked"):
        descriptor = os.open(f"{path}.lock", _OPEN, FILE_MODE)
        try:
            _take(descriptor, path)
        except BaseException:
            os.close(descriptor)
            raise
    return descriptor


@contextmanager
def alone_in(path: Path) -> Iterator[None]:
    """Be the only process that opens the file or makes it: SQLite cannot wait for another one that turns its log on.
    The lock is on the folder, since closing the file itself would give up SQLite's own locks."""
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        if not lock_patiently(descriptor, OPENING_SECONDS):
            raise StoreError(f"another process has been opening {path} for {OPENING_SECONDS} s: try again")
        yield
    finally:
        os.close(descriptor)


def _take(descriptor: int, path: Path) -> None:
    if not try_lock(descriptor):
        process = os.pread(descriptor, _PID_BYTES, 0).decode("ascii", "replace").strip()
        raise StoreInUse(
            f"the store {path} is in use by another `ferrule serve` (process {process}); stop that one first"
        )
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)


def moved(path: Path) -> StoreError:
    """Return the error for what is not in its place any more."""
    return StoreError(f"{path} was moved, replaced or deleted while it was in use; start `ferrule serve` again")


class Whole:
    """Tells whether the files of a store that is open are still those at its path: what is written to one that was
    deleted or replaced would be lost, though SQLite takes it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._paths = [f"{path}{suffix}" for suffix in ("", "-wal", "-shm")]
        with explained(path, "read"):
            self._known = self._identities()

    def check(self) -> None:
        """Raise `StoreError` if one of them was deleted or replaced."""
        try:
            same = self._identities() == self._known
        except OSError:
            same = False
        if not same:
            raise moved(self._path)

    def _identities(self) -> list[tuple[int, int]]:
        found = map(os.stat, self._paths)
        return [(status.st_dev, status.st_ino) for status in found]


@contextmanager
def explained(path: Path, what: str) -> Iterator[None]:
    """Raise errors of the file system as `StoreError`; `what` goes on "cannot be"."""
    try:
        yield
    except OSError as error:
        kind = StoreFull if error.errno in NO_SPACE else StoreError
        raise kind(f"the store {path} cannot be {what}: {error.strerror}") from error
