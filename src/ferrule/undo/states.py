"""The state of a path: what stands there, and the content under its digest."""

import os
import stat
from typing import Literal, NamedTuple

import msgspec

MAX_FILE_BYTES = 8 * 1024 * 1024
"""Of one file whose content is kept: source files have a thousandth of it, and what is larger can be made again."""

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class State(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """What stands at a path, no link followed. `digest` is that of a file's content; a file that is too large or cannot
    be read has a `mark` instead, of its size, time and inode. A link's `mark` is its target."""

    kind: Literal["missing", "file", "link", "folder", "other"]
    mode: int = 0
    digest: str = ""
    mark: bytes = b""


MISSING = State("missing")


class Change(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """A change of a path. `doubt`: why it is not taken back, though nobody else has changed the path."""

    path: bytes
    before: State
    after: State
    doubt: str = ""


class Content(NamedTuple):
    """A state, and the content of a file with a digest."""

    state: State
    data: bytes | None = None


def digest_of(data: bytes) -> str:
    """Return the digest under which a content is kept."""
    from hashlib import sha256

    return sha256(data, usedforsecurity=False).hexdigest()


def capture(path: str, found: os.stat_result | None = None) -> Content:
    """Read what stands at a path; `found` is its lstat, if it is known. Raises nothing: what cannot be read has no
    digest, or is of another kind."""
    try:
        found = found or os.lstat(path)
        mode = stat.S_IMODE(found.st_mode)
        if stat.S_ISREG(found.st_mode):
            data = _read(path, found.st_size)
            if data is None:
                return Content(State("file", mode, "", b"%d %d %d" % (found.st_size, found.st_mtime_ns, found.st_ino)))
            return Content(State("file", mode, digest_of(data)), data)
        if stat.S_ISDIR(found.st_mode):
            return Content(State("folder", mode))
        if stat.S_ISLNK(found.st_mode):
            return Content(State("link", 0, "", os.readlink(os.fsencode(path))))
    except (FileNotFoundError, NotADirectoryError):
        return Content(MISSING)
    except OSError:
        pass
    return Content(State("other"))


def held(path: str, data: bytes) -> Content:
    """Return the state of a file as if this stood in it."""
    found = capture(path).state
    return Content(State("file", found.mode or 0o644, digest_of(data)), data)


def _read(path: str, size: int) -> bytes | None:
    """Return the content of a regular file; None for one that is too large or cannot be read."""
    if size > MAX_FILE_BYTES:
        return None
    try:
        descriptor = os.open(path, _READ)
    except OSError:
        return None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return None
        data = bytearray()
        while len(data) <= MAX_FILE_BYTES and (chunk := os.read(descriptor, max(size + 1, 4096))):
            data += chunk
        return bytes(data) if len(data) <= MAX_FILE_BYTES else None
    except OSError:
        return None
    finally:
        os.close(descriptor)
