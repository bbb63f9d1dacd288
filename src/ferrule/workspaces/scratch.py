"""The folder that holds workspaces on disk, shared by the processes that have it open.

    SCRATCH/door              locked while somebody opens or closes
            bases/KEY         what workspaces start from
            bases/KEY.lock    locked while somebody makes it
            owners/ID/lock    locked as long as its process lives
            owners/ID/N/      one workspace, and what belongs to it

A dead owner's lock is free: whoever opens next removes what it has left. With the last owner all goes.
"""

import errno
import logging
import os
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager, suppress
from pathlib import Path

from ferrule.containers.removal import remove_tree
from ferrule.locks import POLL_SECONDS, hold, take_in_time, try_lock
from ferrule.workspaces.source import WorkspaceError

DOOR, BASES, OWNERS, LOCK = "door", "bases", "owners", "lock"
PRIVATE, LOCK_MODE = 0o700, 0o600
_LOCK_FLAGS = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
MAKING_SECONDS = 3600
"""To wait for a base that another process makes: the largest repositories take minutes."""
ENDING_SECONDS = 2.0
"""For what a dead owner had started to end, too: most of it does so at once."""
log = logging.getLogger("ferrule.workspaces")


class Scratch:
    """Our part of the folder."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(os.path.realpath(folder))
        self._own = self.folder / OWNERS / secrets.token_hex(4)
        self._lock: int | None = None
        self._number = 0

    def open(self) -> None:
        """Make it; remove what the dead have left. Blocking. Raises `WorkspaceError`."""
        try:
            self._must_be_ours()
            with self._door():
                if not self._sweep():
                    _remove(self.bases)
                self.bases.mkdir(PRIVATE, exist_ok=True)
                self._own.mkdir(PRIVATE, parents=True)
                self._lock = _open_lock(self._own)
                try_lock(self._lock)
        except OSError as error:
            raise WorkspaceError(f"workspaces cannot be kept in {self.folder}: {error.strerror}") from error

    def _must_be_ours(self) -> None:
        """Raise `WorkspaceError` for a folder that somebody else uses: what is called as ours would be removed."""
        with suppress(FileNotFoundError):
            if (names := os.listdir(self.folder)) and DOOR not in names:
                text = (
                    f"workspaces cannot be kept in {self.folder}: other files are there; name a new or an empty folder"
                )
                raise WorkspaceError(text)

    @property
    def bases(self) -> Path:
        return self.folder / BASES

    @property
    def number(self) -> tuple[int, int]:
        """The device and inode of the folder."""
        found = self.folder.stat()
        return found.st_dev, found.st_ino

    def new_folder(self) -> Path:
        """Make a folder of our own."""
        self._number += 1
        folder = self._own / str(self._number)
        folder.mkdir(PRIVATE)
        return folder

    @asynccontextmanager
    async def making(self, base: Path) -> AsyncIterator[None]:
        """Hold the lock of a base: nobody else makes it."""
        lock = os.open(base.with_suffix(".lock"), _LOCK_FLAGS, LOCK_MODE)
        try:
            if not await take_in_time(lambda: try_lock(lock), MAKING_SECONDS):
                raise WorkspaceError(f"another process has been making {base} for {MAKING_SECONDS // 60} minutes")
            yield
        finally:
            os.close(lock)

    def remove(self, folder: Path) -> None:
        """Remove one of our folders. Blocking."""
        _remove(folder)

    def close(self) -> None:
        """Remove what is ours, and all if nobody else is there. Blocking."""
        if self._lock is None:
            return
        _remove(self._own)
        os.close(self._lock)
        self._lock = None
        with suppress(OSError), self._door():
            if self._sweep():
                return
            for folder in (self.bases, self.folder / OWNERS):
                _remove(folder)
            if os.listdir(self.folder) == [DOOR]:
                (self.folder / DOOR).unlink()
                self.folder.rmdir()

    def _door(self) -> AbstractContextManager[None]:
        return hold(self.folder / DOOR, lambda: self.folder.mkdir(PRIVATE, parents=True, exist_ok=True))

    def _sweep(self) -> bool:
        """Remove what dead owners have left. Returns whether some are alive. Hold the door: an owner may be half made
        else."""
        alive = False
        try:
            owners = sorted((self.folder / OWNERS).iterdir())
        except FileNotFoundError:
            return False
        for owner in owners:
            lock = _open_lock(owner)
            try:
                if try_lock(lock):
                    _remove(owner)
                else:
                    alive = True
            finally:
                os.close(lock)
        return alive


def _open_lock(folder: Path) -> int:
    return os.open(folder / LOCK, _LOCK_FLAGS, LOCK_MODE)


def _remove(folder: Path) -> None:
    """Remove a folder. Programs of a dead owner may still write there, and end soon. What cannot be removed stays for
    the next one to open: it must be in nobody's way."""
    deadline = time.monotonic() + ENDING_SECONDS
    while True:
        try:
            return remove_tree(folder)
        except OSError as error:
            if error.errno != errno.ENOTEMPTY or time.monotonic() > deadline:
                return log.warning("%s cannot be removed: %s", folder, error.strerror)
        time.sleep(POLL_SECONDS)
