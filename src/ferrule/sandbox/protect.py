"""Protected paths of the writable roots: which they are now, and placeholders where they are missing.

A mount needs something to be mounted on. So a protected name that does not exist is made, as an empty folder, for as
long as a command runs, and taken away afterwards by the last one, in whichever process. They count each other with read
locks on one byte a root of one file in a private folder. Such a lock (`F_OFD_SETLK`) belongs to the open file, so it
ends with the last process that has it, and a confined command cannot take a write lock on a file that it only reads.

Beside the lock file, a record of a root's placeholders (paths, each ended by a NUL) stands while there are any.
"""

import asyncio
import errno
import fcntl
import hashlib
import os
import re
import stat
import struct
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Final, Literal

from ferrule.process.launcher import LaunchError
from ferrule.sandbox.plan import PROTECTED_NAMES, ConfinementPlan, Root, folders_between, is_within

PLACEHOLDER_MODE: Final = 0o555
"""Nobody writes into one; it also tells a placeholder from a folder that somebody made."""
LOCK_PATIENCE: Final = 5.0
"""Seconds: the lock is held for writing only while a few empty folders are removed."""
MAX_SUBMODULES: Final = 200
"""Of one repository: enough for real ones, and a bound where a command makes them up."""
LARGEST_POINTER: Final = 4096
"""Bytes of a `.git` file, which holds one path."""


@dataclass(frozen=True, slots=True)
class Cover:
    """One protected path. `read`: read-only as it is; `empty`: a placeholder; `link`: a symbolic link, covered by a
    read-only file with `content`; `pin`: stays writable but cannot be renamed."""

    kind: Literal["read", "empty", "link", "pin"]
    path: str
    content: str = ""


def covers_of(plan: ConfinementPlan, repositories: Iterable[str] = ()) -> tuple[Cover, ...]:
    """The protected paths as they are now, in the order of mounting. `repositories`: `.git` further below."""
    covers: list[Cover] = [Cover("read", path) for path in plan.read_only]
    for root in plan.roots:
        for name in PROTECTED_NAMES:
            covers += _covers_of_name(f"{root.path}/{name}", root.reserve)
    nested = [cover for path in repositories for cover in _covers_of_name(path, reserve=False)]
    inside = [cover for cover in covers if any(is_within(cover.path, root.path) for root in plan.roots)]
    return (*_pins(plan, inside), *inside, *nested)


def _covers_of_name(path: str, reserve: bool) -> Iterator[Cover]:
    mode = _mode(path)
    if mode is None or (stat.S_IMODE(mode) == PLACEHOLDER_MODE and _is_empty(path)):
        if reserve:
            yield Cover("empty", path)
    elif stat.S_ISLNK(mode):
        target = os.path.realpath(path)
        yield Cover("read", target)
        yield Cover("link", path, f"gitdir: {target}\n")
    else:
        yield Cover("read", path)
        if stat.S_ISREG(mode) and path.endswith("/.git"):
            yield from (Cover("read", target) for target in _pointed_at(path))


def _mode(path: str) -> int | None:
    try:
        return os.lstat(path).st_mode
    except OSError:
        return None


def _is_empty(path: str) -> bool:
    """Whether a folder is empty, as a placeholder is, which may be of another process."""
    try:
        return not os.listdir(path)
    except OSError:
        return False


def repository_folders(git: str) -> tuple[str, ...]:
    """The git directories that a `.git` (folder, file or link) stands for, its submodules' included; real paths."""
    folder = os.path.realpath(git)
    if os.path.isfile(folder):
        return tuple(_pointed_at(folder))
    modules = (place for place, _, files in os.walk(f"{folder}/modules") if "HEAD" in files)
    return (folder, *islice(modules, MAX_SUBMODULES))


def _pointed_at(pointer: str) -> Iterator[str]:
    """The repository that a `.git` file names, and the one that it shares (gitrepository-layout(5))."""
    folder = _path_in(pointer, "gitdir: ", os.path.dirname(pointer))
    if folder:
        yield folder
        common = _path_in(os.path.join(folder, "commondir"), "", folder)
        if common:
            yield common


def _path_in(file: str, prefix: str, base: str) -> str | None:
    try:
        with Path(file).open(encoding="utf-8", errors="surrogateescape") as stream:
            text = stream.read(LARGEST_POINTER).rstrip("\n")
    except OSError:
        return None
    if not text.startswith(prefix):
        return None
    path = os.path.realpath(os.path.join(base, text.removeprefix(prefix)))
    return path if os.path.exists(path) else None


def _pins(plan: ConfinementPlan, covers: Iterable[Cover]) -> Iterator[Cover]:
    """The folders between a root and what is protected below it: renaming one would move the protection away."""
    paths = [*(cover.path for cover in covers), *(root.path for root in plan.roots)]
    pinned = {folder for path in paths for root in plan.roots for folder in folders_between(root.path, path)}
    pinned -= {root.path for root in plan.roots}
    return (Cover("pin", path) for path in sorted(pinned))


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
        deadline = time.monotonic() + LOCK_PATIENCE
        while not _lock(self.lock, record_name(root), fcntl.F_RDLCK):
            if time.monotonic() > deadline:
                raise LaunchError(f"another process does not let go of the protected folders of {root}")
            await asyncio.sleep(0.001)

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
    try:
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
