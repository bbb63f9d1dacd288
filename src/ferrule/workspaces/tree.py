"""Read a folder that a task has written, without leaving it: no link is followed, nothing but a file is opened."""

import errno
import os
import re
import stat
from collections.abc import Iterator
from typing import IO

from ferrule.workspaces.source import WorkspaceError

_PLACE = getattr(os, "O_PATH", os.O_RDONLY) | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_GONE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
"""The path is not there, or is something else by now."""

_GITS = re.compile(rb"(?:^|\\)(?:\.git|git~1)[. ]*(?:[\\:]|\Z)", re.IGNORECASE)
"""Its folder, as Windows may spell it, too: git refuses that everywhere (`is_ntfs_dotgit`)."""
_MODULES = re.compile(rb"(?:^|\\)(?:\.gitmodules|gitmod~[1-4]|gi7eba~[1-9])[. ]*(?:[\\:]|\Z)", re.IGNORECASE)
"""What it refuses as a link (`is_ntfs_dotgitmodules`)."""

Found = tuple[bytes, os.stat_result]


class Tree:
    """A folder that has been opened. Paths are relative to it, in bytes, since names need not be text."""

    def __init__(self, top: str | os.PathLike[str]) -> None:
        """Raises `OSError`."""
        self._top = os.open(top, _FOLDER)

    def close(self) -> None:
        """Close it."""
        os.close(self._top)

    def __enter__(self) -> "Tree":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def names(self, path: bytes) -> list[Found]:
        """Return what is in a folder: each name with its lstat; nothing if there is no folder any more. Raises
        `WorkspaceError`."""
        folder = self._reach(path, _FOLDER)
        if folder is None:
            return []
        try:
            with os.scandir(folder) as entries:
                return [(os.fsencode(entry.name), found) for entry in entries if (found := _lstat(entry))]
        finally:
            os.close(folder)

    def file(self, path: bytes) -> IO[bytes] | None:
        """Open a regular file; None if there is none any more. Raises `WorkspaceError`."""
        descriptor = self._reach(path, _FILE)
        if descriptor is None:
            return None
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            return None
        return os.fdopen(descriptor, "rb")

    def link(self, path: bytes) -> bytes | None:
        """Return the target of a link; None if there is none any more."""
        above, _, name = path.rpartition(b"/")
        folder = self._reach(above, _FOLDER)
        if folder is None:
            return None
        try:
            return os.readlink(name, dir_fd=folder)
        except OSError:
            return None
        finally:
            os.close(folder)

    def _reach(self, path: bytes, flags: int) -> int | None:
        """Open a path, one step after the other; None if it is gone."""
        *above, name = path.split(b"/") if path else [b"."]
        here = os.dup(self._top)
        try:
            for step in above:
                here = _replaced(here, _opened(step, here, _FOLDER))
            return _opened(name, here, flags)
        except OSError as error:
            if error.errno in _GONE:
                return None
            raise WorkspaceError(f"{shown(path)} cannot be read: {error.strerror}") from error
        finally:
            os.close(here)


def walk(tree: Tree) -> Iterator[Found]:
    """Yield what is below a tree, but for folders and whatever git calls its own."""
    pending = [b""]
    while pending:
        path = pending.pop()
        for name, found in tree.names(path):
            if is_gits(name, found.st_mode):
                continue
            if stat.S_ISDIR(found.st_mode):
                pending.append(joined(path, name))
            else:
                yield joined(path, name), found


def is_gits(name: bytes, mode: int = 0) -> bool:
    """Tell whether git takes no file of this name and mode, however it is spelled: one such file, and it takes none of
    a patch (`verify_path` in git's read-cache.c)."""
    return bool(_GITS.search(name) or (stat.S_ISLNK(mode) and _MODULES.search(name)))


def joined(path: bytes, name: bytes) -> bytes:
    """Return the path of a name in a folder."""
    return path + b"/" + name if path else name


def folders_of(path: bytes) -> Iterator[bytes]:
    """Yield the folders above a path, the innermost first."""
    while path := path.rpartition(b"/")[0]:
        yield path


def shown(path: bytes) -> str:
    """Return a path as errors name it."""
    return repr(os.fsdecode(path)) if not path.isascii() or not path.decode().isprintable() else path.decode()


def _opened(name: bytes, folder: int, flags: int) -> int:
    """Open an entry of a folder. What the task has closed is opened again: it is its own copy."""
    try:
        return os.open(name, flags, dir_fd=folder)
    except PermissionError:
        place = os.open(name, _PLACE, dir_fd=folder)
    try:
        found = os.fstat(place).st_mode
        if not stat.S_ISREG(found) and not stat.S_ISDIR(found):
            raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))
        os.chmod(f"/proc/self/fd/{place}", stat.S_IMODE(found) | stat.S_IRWXU & ~(stat.S_ISREG(found) and 0o100))
        return os.open(name, flags, dir_fd=folder)
    finally:
        os.close(place)


def _replaced(old: int, new: int) -> int:
    os.close(old)
    return new


def _lstat(entry: "os.DirEntry[str]") -> os.stat_result | None:
    try:
        return entry.stat(follow_symlinks=False)
    except OSError:
        return None
