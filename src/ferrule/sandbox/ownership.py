"""Which repositories our commands made: a record in Ferrule's folder, shared by all sessions and processes.

An entry is the path of a `.git` (or of a bare repository) with device, inode and birth time. Any difference makes it
somebody else's. Lines are JSON, appended under a lock of the file; what is gone is dropped when the record is opened.
"""

import fcntl
import json
import os
import secrets
import struct
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ctypes import CDLL

MAX_RECORDED = 5000
"""Entries that are kept, the newest: a program that makes repositories without end must not slow down every start."""
_AT_FDCWD, _AT_SYMLINK_NOFOLLOW, _STATX_BTIME = -100, 0x100, 0x800
# struct statx of statx(2): stx_mask comes first, stx_ino and stx_btime at these offsets.
_STATX_BYTES: Final = 256
_INODE, _BIRTH = 32, 80


@dataclass(frozen=True, slots=True)
class Identity:
    """A file or folder that cannot be taken for another. `born`: ns by the file system's clock; 0 where it keeps none,
    and then nobody can tell who made it."""

    device: int
    inode: int
    born: int


def identity(path: str) -> Identity | None:
    """What lies at `path`, a link itself; None if nothing does."""
    try:
        status = os.lstat(path)
    except (OSError, ValueError):
        return None
    return Identity(status.st_dev, status.st_ino, _birth_time(path, status.st_ino))


def _birth_time(path: str, inode: int) -> int:
    """0 if it cannot be told, or if something else lies there by now."""
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
    """The record of one Ferrule folder. Blocking; not for two threads at once."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._stamp: tuple[int, int, int] | None = None
        self._entries: Mapping[str, Identity] = {}

    def owns(self, path: str, what: Identity) -> bool:
        """Whether exactly this, at this place, was made by a command of ours."""
        return what.born > 0 and self._entries.get(path) == what

    def refresh(self) -> bool:
        """Read what others have added. Returns whether there was anything new."""
        try:
            status = self._file.stat()
            stamp = (status.st_ino, status.st_size, status.st_mtime_ns)
        except (FileNotFoundError, NotADirectoryError):
            stamp = None
        if stamp == self._stamp:
            return False
        self._stamp = stamp
        self._entries = self._read()
        return True

    def add(self, entries: Mapping[str, Identity]) -> None:
        """Record these. Raises OSError."""
        lines = "".join(_line(path, what) for path, what in entries.items())
        with self._locked():
            fd = os.open(self._file, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            with os.fdopen(fd, "w", encoding="ascii") as file:
                file.write(lines)
        self.refresh()

    def prune(self) -> None:
        """Drop what is gone or is another one by now. Raises OSError."""
        if not self._file.exists():
            return
        with self._locked():
            entries = self._read()
            alive = [(path, what) for path, what in entries.items() if identity(path) == what][-MAX_RECORDED:]
            if len(alive) < len(entries):
                new = self._file.with_name(f"{self._file.name}.{secrets.token_hex(4)}")
                new.write_text("".join(_line(path, what) for path, what in alive), encoding="ascii")
                new.replace(self._file)
        self.refresh()

    def _read(self) -> dict[str, Identity]:
        try:
            lines = self._file.read_bytes().splitlines()
        except (FileNotFoundError, NotADirectoryError):
            return {}
        return dict(entry for line in lines if (entry := _entry(line)) is not None)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Beside the record, which is replaced."""
        self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with self._file.with_name(f"{self._file.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield


def _line(path: str, what: Identity) -> str:
    return json.dumps([path, what.device, what.inode, what.born]) + "\n"


def _entry(line: bytes) -> tuple[str, Identity] | None:
    """None for a line that a crash tore."""
    try:
        path, *numbers = json.loads(line)
        device, inode, born = map(int, numbers)
    except (ValueError, TypeError):
        return None
    return (path, Identity(device, inode, born)) if isinstance(path, str) else None
