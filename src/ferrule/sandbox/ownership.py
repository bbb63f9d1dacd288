"""Record which repositories our commands made, in Ferrule's folder, shared by all sessions and processes.

An entry is the path of a `.git` (or of a bare repository) with its device, inode and birth time. Any difference makes
it somebody else's. Entries are lines of JSON, appended under a lock; a session's start drops those of repositories that
are gone.
"""

import errno
import json
import os
import stat
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from ferrule.locks import lock_patiently
from ferrule.reading import Unreadable, read_file

if TYPE_CHECKING:
    from ctypes import CDLL

MAX_RECORDED = 5000
"""Entries kept, the newest: a program that makes repositories without end must not slow down every start."""
LARGEST_RECORD = 4 << 20
"""Bytes: some 40,000 entries with ordinary paths."""
_SAFE_FLAGS = os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_AT_FDCWD, _AT_SYMLINK_NOFOLLOW, _STATX_BTIME = -100, 0x100, 0x800
# struct statx of statx(2): stx_mask comes first, stx_ino and stx_btime at these offsets.
_STATX_BYTES: Final = 256
_INODE, _BIRTH = 32, 80


class Identity(msgspec.Struct, frozen=True):
    """The identity of a file or folder. `born` is its birth time in ns; 0 if the file system keeps none, so nobody can
    tell who made it."""

    device: int
    inode: int
    born: int


def identity(path: str) -> Identity | None:
    """Identify what lies at `path`, without following a link; None if nothing does."""
    try:
        status = os.lstat(path)
    except (OSError, ValueError):
        return None
    return Identity(status.st_dev, status.st_ino, _birth_time(path, status.st_ino))


def _birth_time(path: str, inode: int) -> int:
    """Return the birth time in ns; 0 if it is unknown, or if something else lies there by now."""
    import ctypes

    statx = getattr(_libc(), "statx", None)
    if statx is None:
        return 0
    buffer = ctypes.create_string_buffer(_STATX_BYTES)
    failed = statx(_AT_FDCWD, os.fsencode(path), _AT_SYMLINK_NOFOLLOW, ctypes.c_uint(_STATX_BTIME), buffer)
    (mask,) = struct.unpack_from("@I", buffer)
    (same,) = struct.unpack_from("@Q", buffer, _INODE)
    if failed or not mask & _STATX_BTIME or same != inode:
        return 0
    seconds, nanoseconds = struct.unpack_from("@qI", buffer, _BIRTH)
    return int(seconds * 10**9 + nanoseconds)


@cache
def _libc() -> "CDLL":
    from ctypes import CDLL

    return CDLL(None)


class OwnershipRecord:
    """The record of one Ferrule folder. Blocking; use it from one thread at a time."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._stamp: tuple[int, ...] | None = ()  # not read yet
        self._entries: Mapping[str, Identity] = {}
        self.problem: str | None = None
        """Why it cannot be read, a sentence for the user."""

    def owns(self, path: str, what: Identity) -> bool:
        """Tell whether a command of ours made exactly this, at this path."""
        return what.born > 0 and self._entries.get(path) == what

    def refresh(self) -> bool:
        """Read what others have added, and tell whether anything was new. A record that cannot be read counts as
        empty."""
        try:
            status = self._file.stat()
            stamp: tuple[int, ...] | None = (status.st_ino, status.st_size, status.st_mtime_ns)
        except OSError:
            stamp = None
        if stamp == self._stamp:
            return False
        self._stamp, self.problem, self._entries = stamp, None, {}
        try:
            self._entries = self._read()
        except Unreadable as error:
            self.problem = UNREADABLE.format(self._file, error)
        return True

    def add(self, entries: Mapping[str, Identity]) -> None:
        """Record these repositories. Raises OSError."""
        lines = "".join(_line(path, what) for path, what in entries.items())
        with self._locked():
            size = _append(self._file, lines.encode("ascii"))
        if size > LARGEST_RECORD // 2:
            self.prune()
        self.refresh()

    def prune(self) -> None:
        """Drop entries that are gone or no longer match, and the oldest if there are too many. Raises OSError.

        A record that cannot be read, or that another process is writing, stays as it is.
        """
        if not self._file.exists():
            return
        with self._locked() as alone, suppress(Unreadable):
            entries = self._read()
            alive = [_line(path, what) for path, what in entries.items() if identity(path) == what][-MAX_RECORDED:]
            while sum(map(len, alive)) > LARGEST_RECORD // 4:
                del alive[: len(alive) // 2 + 1]
            if alone and (len(alive) < len(entries) or self._file.stat().st_size > LARGEST_RECORD // 4):
                new = self._file.with_name(f"{self._file.name}.new")  # a fixed name: kills leave one file at most
                new.write_text("".join(alive), encoding="ascii")
                new.replace(self._file)

    def _read(self) -> dict[str, Identity]:
        """Read all entries. Raises `Unreadable`."""
        try:
            lines = read_file(self._file, LARGEST_RECORD).splitlines()
        except FileNotFoundError:
            return {}
        return dict(entry for line in lines if (entry := _entry(line)) is not None)

    @contextmanager
    def _locked(self) -> Iterator[bool]:
        """Try to lock a file beside the record, which gets replaced; yield whether that worked. A command can hold the
        lock of any file that it can read, so nobody waits long for it."""
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(f"{self._file}.lock", os.O_RDWR | os.O_CREAT | _SAFE_FLAGS, 0o600)
        try:
            yield lock_patiently(lock)
        finally:
            os.close(lock)


UNREADABLE: Final = (
    "the record of the repositories that commands made, {}, {}: they are taken for yours until you remove it"
)


def _append(file: Path, lines: bytes) -> int:
    """Append and return the file's new size. Raises OSError."""
    fd = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | _SAFE_FLAGS, 0o600)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "is no regular file", str(file))
        lines = b"\n" + lines  # ends a line that a crash cut short
        if os.write(fd, lines) < len(lines):  # one write, so that no other one lands in between
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(file))
        return status.st_size + len(lines)
    finally:
        os.close(fd)


def _line(path: str, what: Identity) -> str:
    return json.dumps([path, what.device, what.inode, what.born]) + "\n"


def _entry(line: bytes) -> tuple[str, Identity] | None:
    """Parse a line; None if it is no entry, or a crash cut it short."""
    try:
        path, *numbers = json.loads(line)
        device, inode, born = map(int, numbers)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None
    return (path, Identity(device, inode, born)) if isinstance(path, str) else None
