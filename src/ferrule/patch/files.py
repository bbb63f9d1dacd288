"""The file operations of a patch, as a protocol, and the plain implementation."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from io import FileIO
from typing import NamedTuple, Protocol

NEW_FILE_MODE = 0o666
"""Before the umask, as open(2) callers usually ask for."""

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_UNNAMED = os.O_WRONLY | os.O_CLOEXEC | getattr(os, "O_TMPFILE", 0)
_NO_UNNAMED = frozenset({errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL, errno.ENOENT})
"""How file systems and old kernels refuse a file without a name. ENOENT: so does a folder that is gone."""
_NO_NAME = ("", ".", "..")
_LABELS = frozenset({"security.selinux"})
"""Extended attributes that the kernel sets on a new file."""


class Kind(StrEnum):
    """The kind of file at a path once links are followed. A dangling link is `missing`."""

    MISSING = "missing"
    FILE = "file"
    DIRECTORY = "directory"
    OTHER = "other"


class Entry(NamedTuple):
    """The result of `FileLayer.look`. Two equal entries mean that nobody touched the file in between.

    `name` is the absolute path with every link resolved except the last component's own: what an unlink removes.
    `real` has that resolved too: what a write changes, also for a missing file (where it would be created); the two
    differ exactly when the path is itself a link. `identity` is (device, inode), None when missing; `mode` the
    permission bits; `links` the number of hard links. `in_place`: replacing the file by a rename would lose something
    (other hard links, another owner or group, extended attributes). `writable`: the caller may write it; True when
    missing.
    """

    name: str
    real: str
    kind: Kind
    identity: tuple[int, int] | None = None
    mode: int = 0
    links: int = 0
    size: int = 0
    modified_ns: int = 0
    in_place: bool = False
    writable: bool = True


class FileLayer(Protocol):
    """Where a patch reads and writes. Synchronous, bytes only.

    Every path is an absolute `str` (file names that are not UTF-8 by surrogateescape) and may hold `..` and links; the
    layer resolves them as the kernel does. Every method raises `OSError` and nothing else, with `errno` set; a layer
    that confines refuses with `PermissionError`, also when a link or `..` leads outside. A method that raised has
    changed nothing, except `rewrite`. No method leaves a descriptor open.
    """

    @property
    def shown(self) -> tuple[str, ...] | None:
        """Real paths of the folders that can be read; None: everything can."""
        ...

    def look(self, path: str) -> Entry:
        """Inspect a path, links followed. A missing file or parent is an entry of kind `missing`, not an error."""
        ...

    def read(self, path: str) -> bytes:
        """Return the whole content of a regular file, links followed."""
        ...

    def create(self, path: str, data: bytes, mode: int | None = None) -> None:
        """Write a new regular file completely, or leave nothing behind. `FileExistsError` if the name is taken, by a
        dangling link too: the last component is not followed. `mode` None: 0666 less the umask; else exactly these
        permission bits, whatever the umask. The content is never readable by more than the final mode allows."""
        ...

    def rename(self, source: str, target: str) -> None:
        """rename(2): atomic, replaces a file at `target`, follows neither last component (a link is moved itself)."""
        ...

    def link(self, source: str, target: str) -> None:
        """link(2): a second name for a regular file; last components not followed. May be refused by the file system
        (`OSError`); the engine then makes a copy."""
        ...

    def rewrite(self, path: str, data: bytes) -> None:
        """Replace the content of an existing regular file, same inode, links followed. The only method that may leave
        a partial write when it raises."""
        ...

    def unlink(self, path: str) -> None:
        """Remove a name that is not a directory; a link is removed itself."""
        ...

    def make_parents(self, path: str) -> tuple[str, ...]:
        """Create the missing directories above `path` (0777 less the umask) and return those created, outermost
        first. Raises `NotADirectoryError` whose `filename` is the component that is no directory; removes what it
        had created when a later one fails."""
        ...

    def rmdir(self, path: str) -> None:
        """Remove an empty directory."""
        ...


class PlainFiles:
    """The file system as seen by this process. `fsync` makes each written file and rename durable before returning."""

    def __init__(self, *, fsync: bool = False, shown: tuple[str, ...] | None = None) -> None:
        self._fsync = fsync
        self.shown = shown

    def look(self, path: str) -> Entry:
        """See `FileLayer.look`."""
        folder, last = os.path.split(path)
        if last in _NO_NAME:
            name = real = os.path.realpath(path)
        else:
            name = os.path.join(os.path.realpath(folder), last)
            real = os.path.realpath(name) if os.path.islink(name) else name
        try:
            found = os.stat(real)
        except (FileNotFoundError, NotADirectoryError):
            return Entry(name, real, Kind.MISSING)
        return Entry(
            name=name,
            real=real,
            kind=_kind(found.st_mode),
            identity=(found.st_dev, found.st_ino),
            mode=stat.S_IMODE(found.st_mode),
            links=found.st_nlink,
            size=found.st_size,
            modified_ns=found.st_mtime_ns,
            in_place=found.st_nlink > 1 or _is_anothers(found) or _has_attributes(real),
            writable=os.access(real, os.W_OK),
        )

    def read(self, path: str) -> bytes:
        """See `FileLayer.read`."""
        with FileIO(path) as file:
            return file.readall()

    def create(self, path: str, data: bytes, mode: int | None = None) -> None:
        """See `FileLayer.create`."""
        with self.at(path) as (name, folder):
            if not self._create_unnamed(name, folder, data, mode):
                self._create_named(name, folder, data, mode)
        if self._fsync:
            _sync_folder(os.path.dirname(path))

    def _create_unnamed(self, name: str, folder: int | None, data: bytes, mode: int | None) -> bool:
        """Give the file its name once it is whole, so that a kill leaves no half of it; return False where the system
        cannot."""
        if not hasattr(os, "O_TMPFILE"):
            return False
        try:
            fd = os.open(os.path.dirname(name) or ".", _UNNAMED, _open_mode(mode), dir_fd=folder)
        except OSError as error:
            if error.errno in _NO_UNNAMED:
                return False
            raise
        try:
            self._fill(fd, data, mode)
            os.link(f"/proc/self/fd/{fd}", name, src_dir_fd=fd, dst_dir_fd=folder, follow_symlinks=True)
        except FileNotFoundError:  # no /proc
            return False
        finally:
            os.close(fd)
        return True

    def _create_named(self, name: str, folder: int | None, data: bytes, mode: int | None) -> None:
        fd = os.open(name, _NEW, _open_mode(mode), dir_fd=folder)
        try:
            try:
                self._fill(fd, data, mode)
            finally:
                os.close(fd)
        except OSError:
            os.unlink(name, dir_fd=folder)
            raise

    def rename(self, source: str, target: str) -> None:
        """See `FileLayer.rename`."""
        with self.at(source) as (old, old_folder), self.at(target) as (new, new_folder):
            os.rename(old, new, src_dir_fd=old_folder, dst_dir_fd=new_folder)
        if self._fsync:
            for folder in {os.path.dirname(source), os.path.dirname(target)}:
                _sync_folder(folder)

    def link(self, source: str, target: str) -> None:
        """See `FileLayer.link`."""
        with self.at(source) as (old, old_folder), self.at(target) as (new, new_folder):
            os.link(old, new, src_dir_fd=old_folder, dst_dir_fd=new_folder, follow_symlinks=False)

    def rewrite(self, path: str, data: bytes) -> None:
        """See `FileLayer.rewrite`."""
        with self.at(os.path.realpath(path)) as (name, folder):
            fd = os.open(name, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            try:
                self._fill(fd, data)
            finally:
                os.close(fd)

    def unlink(self, path: str) -> None:
        """See `FileLayer.unlink`."""
        with self.at(path) as (name, folder):
            os.unlink(name, dir_fd=folder)

    def make_parents(self, path: str) -> tuple[str, ...]:
        """See `FileLayer.make_parents`."""
        missing: list[str] = []
        folder = os.path.dirname(path)
        while not os.path.isdir(folder):
            if os.path.lexists(folder):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), folder)
            missing.append(folder)
            folder = os.path.dirname(folder)
        created: list[str] = []
        try:
            for folder in reversed(missing):
                with self.at(folder) as (name, above):
                    os.mkdir(name, dir_fd=above)
                created.append(folder)
        except OSError:
            for folder in reversed(created):
                self.rmdir(folder)
            raise
        return tuple(created)

    def rmdir(self, path: str) -> None:
        """See `FileLayer.rmdir`."""
        with self.at(path) as (name, folder):
            os.rmdir(name, dir_fd=folder)

    @contextmanager
    def at(self, path: str) -> Iterator[tuple[str, int | None]]:
        """Yield how to name `path` in a system call that changes it: a name, and the descriptor of its folder.

        A layer that confines overrides only this method. The last component is not followed.
        """
        yield path, None

    def _fill(self, fd: int, data: bytes, mode: int | None = None) -> None:
        """Write the content; give the file exactly these permission bits."""
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view) :]
        if mode is not None and mode != stat.S_IMODE(os.fstat(fd).st_mode):
            os.fchmod(fd, mode)
        if self._fsync:
            os.fsync(fd)


def _open_mode(mode: int | None) -> int:
    return NEW_FILE_MODE if mode is None else mode & 0o777


def _kind(mode: int) -> Kind:
    if stat.S_ISREG(mode):
        return Kind.FILE
    return Kind.DIRECTORY if stat.S_ISDIR(mode) else Kind.OTHER


def _is_anothers(found: os.stat_result) -> bool:
    return found.st_uid != os.geteuid() or found.st_gid != os.getegid()


def _has_attributes(path: str) -> bool:
    if not hasattr(os, "listxattr"):
        return False
    try:
        return not _LABELS.issuperset(os.listxattr(path))
    except OSError:
        return False


def _sync_folder(path: str) -> None:
    fd = os.open(path or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
