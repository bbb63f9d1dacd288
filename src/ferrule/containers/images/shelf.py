"""A folder of whole things under names: made beside and renamed, locked while used.

    NAME              one of them
    .import-XXXX      one that is being made, or left by a process that was killed
    .removed-XXXX     one that is being removed, or was replaced while it was used
    .lock             held for a moment while one of those begins

Each folder is locked: shared by those who use it, alone by whoever makes or removes it. It gets its name when it is
whole, so nobody sees half of one. A power cut is no kill: after one, what was made in the last half minute may have to
be made again.
"""

import fcntl
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ferrule.containers.images.errors import ImageError, UnknownImage, explained
from ferrule.containers.images.exchange import exchange
from ferrule.containers.images.folders import OPEN
from ferrule.containers.removal import remove_tree
from ferrule.locks import try_lock, try_share

LOCK, STAGED, REMOVED = ".lock", ".import-", ".removed-"
_LOCK = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
Check = Callable[[], object]


class Shelf:
    """The things below one folder, which need not exist. Blocking."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def names(self) -> list[str]:
        """Return all names in order, also of what is not ours."""
        try:
            return sorted(os.listdir(self.folder))
        except FileNotFoundError:
            return []

    def hold(self, name: str, check: Check) -> int:
        """Return a descriptor that keeps a thing while any copy of it is open. `check` raises if there is none."""
        with self.locked():
            check()
            with explained(self.folder / name):
                lock = os.open(self.folder / name, OPEN)
            if not try_share(lock):
                os.close(lock)
                raise UnknownImage(f"the image {name} is being removed")
        return lock

    def remove(self, name: str, check: Check) -> None:
        """Remove a thing. `check` raises if there is none. Raises `ImageError` while it is used."""
        with self.locked():
            check()
            with explained(self.folder / name):
                lock = os.open(self.folder / name, OPEN)
            try:
                if not try_lock(lock):
                    raise ImageError(f"the image {name} is in use: end the containers that run it first")
                gone = self._put_away(name)
            except BaseException:
                os.close(lock)
                raise
        _remove_all([(gone, lock)])

    def sweep(self) -> None:
        """Remove what killed processes have left. Raises `ImageError` if it cannot be removed."""
        if not self.folder.is_dir():
            return
        with self.locked():
            left = [held for name in os.listdir(self.folder) if (held := self._held(name)) is not None]
        _remove_all(left)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock of the shelf: no name is given or taken meanwhile."""
        with explained(self.folder):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(self.folder / LOCK, _LOCK, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    @contextmanager
    def staging(self) -> Iterator[tuple[Path, int]]:
        """Make a folder for a thing that is being made, and lock it; it is removed unless it gets another name."""
        staged = self.folder / f"{STAGED}{secrets.token_hex(8)}"
        with self.locked(), explained(staged):
            staged.mkdir(mode=0o700)
            lock = os.open(staged, OPEN)
            try_lock(lock)
        try:
            yield staged, lock
        finally:
            _remove_all([(staged, lock)])

    def publish(self, staged: Path, lock: int, name: str, *, replace: bool = False) -> None:
        """Give a staged thing its name. Call it with the shelf locked. What it replaces goes when nobody uses it.

        A kill leaves the old one or the new one under the name, where the file system can exchange names.
        """
        place = self.folder / name
        fcntl.flock(lock, fcntl.LOCK_UN)  # it can be used from its first moment on
        with explained(place):
            if replace and place.exists():
                if exchange(staged, place):
                    self._put_away(staged.name)
                    return
                self._put_away(name)
            staged.rename(place)

    def _put_away(self, name: str) -> Path:
        gone = self.folder / f"{REMOVED}{secrets.token_hex(8)}"
        with explained(self.folder / name):
            (self.folder / name).rename(gone)
        return gone

    def _held(self, name: str) -> tuple[Path, int] | None:
        """Lock a remnant that nobody has."""
        if not name.startswith((STAGED, REMOVED)):
            return None
        try:
            lock = os.open(self.folder / name, OPEN)
        except OSError:  # removed meanwhile, or nothing of ours
            return None
        if try_lock(lock):
            return self.folder / name, lock
        os.close(lock)
        return None


def _remove_all(held: Sequence[tuple[Path, int]]) -> None:
    """Remove folders that we have locked, and let go of them."""
    try:
        for folder, _ in held:
            with explained(folder):
                remove_tree(folder)
    finally:
        for _, lock in held:
            os.close(lock)
