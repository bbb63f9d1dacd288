"""A writable root made from an image, which itself stays as it is: laid over it, or copied.

An overlay costs nothing and is taken wherever the kernel lets users mount one (Linux 5.11). Else the root is copied;
where the file system shares blocks (Btrfs, XFS) that costs only the names.
"""

import errno
import fcntl
import os
import stat
import subprocess
import sys
import tempfile
from enum import StrEnum
from pathlib import Path

import msgspec

from ferrule.containers.images.errors import explained
from ferrule.containers.images.folders import OPEN, names_in
from ferrule.containers.images.store import Image
from ferrule.containers.images.streams import BLOCK, write_all
from ferrule.containers.removal import remove_tree

FICLONE = 0x40049409
"""Share the blocks of another file (ioctl_ficlone(2))."""
PROBE_SECONDS = 20
"""A probe takes some 30 ms; on a busy machine a new process may wait for seconds."""
PROBE = """
import os, sys
sys.path.insert(0, sys.argv[1])
os.chdir(sys.argv[2])
from linux import kernel
kernel.enter_namespaces(network=True)
for name in ("lower", "upper", "work", "merged"):
    os.mkdir(name)
for name in ("kept", "gone"):
    open("lower/" + name, "x").close()
kernel.mount(b"overlay", b"merged", b"overlay", 0, b"lowerdir=lower,upperdir=upper,workdir=work,userxattr")
os.unlink("merged/gone")
os.rename("merged/kept", "merged/moved")
sys.exit(os.listdir("merged") != ["moved"])
"""
"""Removing leaves a device of number 0 in the upper folder, which not every kernel lets users make."""
_SANDBOX = Path(__file__).parents[2] / "sandbox"
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NO_SHARING = (errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.EINVAL, errno.ENOSYS)


class Way(StrEnum):
    """How a root was made writable."""

    OVERLAY = "overlay"
    REFLINK = "reflink"
    COPY = "copy"


class WritableRoot(msgspec.Struct, frozen=True, kw_only=True):
    """A root that a container may change.

    With the way `overlay`, `base` is the image's own root, and an overlay of it with `upper` and `work`, mounted with
    `userxattr` in the container's namespaces, is the root. Else `base` is a copy: the root itself.
    """

    way: Way
    base: Path
    upper: Path | None = None
    work: Path | None = None


def make_writable(image: Image, folder: Path, way: Way | None = None) -> WritableRoot:
    """Make a writable root in `folder`, in the best way there is, or in the given one (a reflink may become a copy).

    Hold the image (`Images.hold`) as long as the root is used. `containers.removal.remove_tree(folder)` removes it
    once nothing is mounted. Blocking: a copy takes a while. Raises `ImageError`; then no copy is left.
    """
    upper, work, root = (folder / name for name in ("upper", "work", "root"))
    with explained(folder):
        if way is None:
            way = Way.OVERLAY if overlay_works(folder) else Way.REFLINK
        if way is Way.OVERLAY:
            upper.mkdir()
            upper.chmod(stat.S_IMODE(image.root.stat().st_mode))
            work.mkdir(mode=0o700)
            return WritableRoot(way=way, base=image.root, upper=upper, work=work)
        try:
            return WritableRoot(way=_copy_root(image.root, root, way), base=root)
        except BaseException:
            remove_tree(root)
            raise


def overlay_works(folder: Path) -> bool:
    """Tell whether users can mount overlays whose changes lie in this folder's file system. Tried once for each."""
    device = folder.stat().st_dev
    if device not in _tried:
        _tried[device] = _try_overlay(folder)
    return _tried[device]


_tried: dict[int, bool] = {}


def _try_overlay(folder: Path) -> bool:
    place = Path(tempfile.mkdtemp(prefix=".probe-", dir=folder))
    try:
        words = [sys.executable, "-I", "-S", "-c", PROBE, str(_SANDBOX), str(place)]
        return subprocess.run(words, capture_output=True, timeout=PROBE_SECONDS, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False
    finally:
        remove_tree(place)


def _copy_root(source: Path, target: Path, way: Way) -> Way:
    """Copy a root; return the way that worked."""
    target.mkdir(mode=0o700)
    old, new = os.open(source, OPEN), os.open(target, OPEN)
    copy = _Copy(way, new)
    try:
        copy.fill(old, new)
        _settle(old, new)
    finally:
        os.close(old)
        os.close(new)
    return copy.way


class _Copy:
    """Copies folders that have been opened. Hard links stay what they are."""

    def __init__(self, way: Way, root: int) -> None:
        self.way = way
        self._root = root
        self._first: dict[int, bytes] = {}
        """Where the first copy of each file with several names is, by the original's number."""

    def fill(self, old: int, new: int, path: bytes = b"") -> None:
        for name in names_in(old):
            found = os.stat(name, dir_fd=old, follow_symlinks=False)
            if stat.S_ISDIR(found.st_mode):
                self._folder(name, old, new, path)
            elif stat.S_ISLNK(found.st_mode):
                os.symlink(os.readlink(name, dir_fd=old), name, dir_fd=new)
                os.chown(name, found.st_uid, found.st_gid, dir_fd=new, follow_symlinks=False)
                times = (found.st_atime_ns, found.st_mtime_ns)
                os.utime(name, ns=times, dir_fd=new, follow_symlinks=False)
            elif first := self._first.get(found.st_ino):
                os.link(first, name, src_dir_fd=self._root, dst_dir_fd=new, follow_symlinks=False)
            else:
                self._file(name, old, new, found.st_size)
                if found.st_nlink > 1:
                    self._first[found.st_ino] = path + name

    def _folder(self, name: bytes, old: int, new: int, path: bytes) -> None:
        os.mkdir(name, 0o700, dir_fd=new)
        inner_old, inner_new = os.open(name, OPEN, dir_fd=old), os.open(name, OPEN, dir_fd=new)
        try:
            self.fill(inner_old, inner_new, path + name + b"/")
            _settle(inner_old, inner_new)
        finally:
            os.close(inner_old)
            os.close(inner_new)

    def _file(self, name: bytes, old: int, new: int, size: int) -> None:
        source = os.open(name, _READ, dir_fd=old)
        target = os.open(name, _NEW, 0o600, dir_fd=new)
        try:
            self._content(source, target, size)
            _settle(source, target)
        finally:
            os.close(source)
            os.close(target)

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


def _settle(old: int, new: int) -> None:
    """Give a copy the owner, mode, attributes and times of the original."""
    found = os.fstat(old)
    if (found.st_uid, found.st_gid) != (os.geteuid(), os.getegid()):
        os.fchown(new, found.st_uid, found.st_gid)
    os.fchmod(new, stat.S_IMODE(found.st_mode))
    for name in os.listxattr(old):
        if name.startswith("user."):
            os.setxattr(new, name, os.getxattr(old, name))
    os.utime(new, ns=(found.st_atime_ns, found.st_mtime_ns))
