"""Copies of folders: of a root that a container may change, where nothing can be laid over it, and others.

Where the file system shares blocks (Btrfs, XFS) it costs only the names.
"""

import errno
import fcntl
import os
import stat
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

from ferrule.containers.images.errors import explained
from ferrule.containers.images.folders import OPEN, names_in
from ferrule.containers.images.streams import BLOCK
from ferrule.containers.removal import remove_tree
from ferrule.stdio import write_all

FICLONE = 0x40049409
"""Share the blocks of another file (ioctl_ficlone(2))."""
DEEPEST = 250
"""Folders in each other: every one on the way is open twice, and the system allows few open files."""
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_SHARING = (errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.EINVAL, errno.ENOSYS)


class Way(StrEnum):
    """How a root was made writable."""

    OVERLAY = "overlay"
    REFLINK = "reflink"
    COPY = "copy"


def copy_root(source: Path, target: Path) -> Way:
    """Copy a root to a new folder; return the way that worked. Devices, pipes and sockets are left out.

    Blocking: it takes a while. Raises `ImageError`; then no copy is left.
    """
    with explained(source):
        return copy_tree(source, target)


def copy_tree(
    source: Path,
    target: Path,
    way: Way = Way.REFLINK,
    *,
    keep_owners: bool = True,
    without: tuple[int, int] | None = None,
    check: Callable[[], None] = lambda: None,
) -> Way:
    """Copy a folder to a new one, this way if it can be; return the way that worked. Devices, pipes and sockets are
    left out, what is removed meanwhile, and `without`, the device and inode of a folder.

    Blocking; `check` is called for each file, and ends it by what it raises. Raises `OSError`, with the path that
    cannot be copied, and `Changing` for a file that somebody writes. Then no copy is left.
    """
    target.mkdir(mode=0o700)
    try:
        old, new = os.open(source, OPEN), os.open(target, OPEN)
        copy = _Copy(way, new, keep_owners, without, check)
        try:
            copy.fill(old, new)
            _settle(old, new, keep_owners)
        finally:
            os.close(old)
            os.close(new)
        return copy.way
    except BaseException:
        remove_tree(target)
        raise


class Changing(OSError):
    """A file is written while it is copied."""


class _Copy:
    """Copies folders that have been opened. Hard links stay what they are."""

    def __init__(
        self, way: Way, root: int, keep_owners: bool, without: tuple[int, int] | None, check: Callable[[], None]
    ) -> None:
        self.way = way
        self._root = root
        self._keep_owners = keep_owners
        self._without = without
        self._check = check
        self._first: dict[tuple[int, int], bytes] = {}
        """Where the first copy of each file with several names is, by the original's number."""

    def fill(self, old: int, new: int, path: bytes = b"") -> None:
        for name in names_in(old):
            self._check()
            try:
                self._entry(name, old, new, path)
            except OSError as error:
                if not isinstance(error.filename, str):  # no path yet, but a name in some folder
                    error.filename = os.fsdecode(path + name)
                if not isinstance(error, FileNotFoundError) or _is_there(name, old):
                    raise

    def _entry(self, name: bytes, old: int, new: int, path: bytes) -> None:
        found = os.stat(name, dir_fd=old, follow_symlinks=False)
        number = found.st_dev, found.st_ino
        if number == self._without:
            return
        if stat.S_ISDIR(found.st_mode):
            self._folder(name, old, new, path)
        elif stat.S_ISLNK(found.st_mode):
            self._link(name, old, new, found)
        elif not stat.S_ISREG(found.st_mode):
            return
        elif first := self._first.get(number):
            os.link(first, name, src_dir_fd=self._root, dst_dir_fd=new, follow_symlinks=False)
        else:
            self._file(name, old, new)
            if found.st_nlink > 1:
                self._first[number] = path + name

    def _link(self, name: bytes, old: int, new: int, found: os.stat_result) -> None:
        os.symlink(os.readlink(name, dir_fd=old), name, dir_fd=new)
        if self._keep_owners:
            os.chown(name, found.st_uid, found.st_gid, dir_fd=new, follow_symlinks=False)
        os.utime(name, ns=(found.st_atime_ns, found.st_mtime_ns), dir_fd=new, follow_symlinks=False)

    def _folder(self, name: bytes, old: int, new: int, path: bytes) -> None:
        if path.count(b"/") >= DEEPEST:
            raise OSError(errno.ENAMETOOLONG, f"more than {DEEPEST} folders lie in each other there")
        os.mkdir(name, 0o700, dir_fd=new)
        inner_old, inner_new = os.open(name, OPEN, dir_fd=old), os.open(name, OPEN, dir_fd=new)
        try:
            self.fill(inner_old, inner_new, path + name + b"/")
            _settle(inner_old, inner_new, self._keep_owners)
        finally:
            os.close(inner_old)
            os.close(inner_new)

    def _file(self, name: bytes, old: int, new: int) -> None:
        source = os.open(name, _READ, dir_fd=old)
        try:
            target = os.open(name, _NEW, 0o600, dir_fd=new)
            try:
                before = os.fstat(source)
                self._content(source, target, before.st_size)
                _settle(source, target, self._keep_owners)
                after = os.fstat(source)
            finally:
                os.close(target)
        finally:
            os.close(source)
        if (before.st_size, before.st_mtime_ns) != (after.st_size, after.st_mtime_ns):
            raise Changing(errno.EBUSY, "it is being written")

    def _content(self, source: int, target: int, size: int) -> None:
        if self.way is Way.REFLINK:
            try:
                fcntl.ioctl(target, FICLONE, source)
            except OSError as error:
                if error.errno not in _NO_SHARING:
                    raise
                self.way = Way.COPY
            else:
                return
        _copy_pieces(source, target, size)


def _is_there(name: bytes, folder: int) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _copy_pieces(source: int, target: int, size: int) -> None:
    """Copy what is no hole."""
    at = 0
    while at < size:
        try:
            at = os.lseek(source, at, os.SEEK_DATA)
        except OSError as error:
            if error.errno != errno.ENXIO:  # nothing but a hole is left
                raise
            break
        end = os.lseek(source, at, os.SEEK_HOLE)
        os.lseek(source, at, os.SEEK_SET)
        os.lseek(target, at, os.SEEK_SET)
        while at < end and (piece := os.read(source, min(BLOCK, end - at))):
            write_all(target, piece)
            at += len(piece)
    os.ftruncate(target, size)


def _settle(old: int, new: int, keep_owners: bool) -> None:
    """Give a copy the owner, mode, attributes and times of the original."""
    found = os.fstat(old)
    if keep_owners and (found.st_uid, found.st_gid) != (os.geteuid(), os.getegid()):
        os.fchown(new, found.st_uid, found.st_gid)
    os.fchmod(new, stat.S_IMODE(found.st_mode))
    for name in os.listxattr(old):
        if name.startswith("user."):
            os.setxattr(new, name, os.getxattr(old, name))
    os.utime(new, ns=(found.st_atime_ns, found.st_mtime_ns))
