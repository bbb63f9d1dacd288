"""Keep tools that read files away from file systems that store none but show the kernel's state.

`/proc/self/environ` contains the keys that commands must not see, `/proc/self/fd` leads to the files that we have open.
A command that looks there sees only itself, so it may.

A file must lie on a file system that stores files: one on a block device, or one of the known types that need none. So
a new type is refused until somebody has reviewed it. Each step of a path is opened before it is checked, and the file
that was checked is the one that is read, even if somebody changes the path meanwhile.
"""

import errno
import os
import re
import stat
import sys
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from ferrule.lookup import MAX_LINKS

_WITHOUT_DEVICE = """
    tmpfs ramfs rootfs devtmpfs zfs ubifs jffs2
    overlay overlayfs aufs unionfs shiftfs ecryptfs
    fuse virtiofs 9p vboxsf prl_fs vmhgfs hgfs drvfs lxfs wslfs
    nfs nfs4 cifs smb3 smbfs afs ceph coda lustre gpfs beegfs orangefs pvfs2 panfs wekafs
"""
STORING = frozenset(_WITHOUT_DEVICE.split())
"""Types of file systems that store files without a block device: in memory, over others, on a host or a server."""
TYPES = "/proc/filesystems"
"""A type that needs a block device has a line that begins with a tab, others with `nodev` (proc(5))."""
MOUNTS = "/proc/self/mountinfo"

_STEP = getattr(os, "O_PATH", 0) | os.O_NOFOLLOW | os.O_CLOEXEC
_ESCAPE = re.compile(rb"\\([0-7]{3})")


class KernelFileError(OSError):
    """The path leads to a file system that stores no files, or through a link on one."""


class Storage:
    """Tell which open files are stored ones, and remember their devices. Make one for each call."""

    def __init__(self) -> None:
        self._known: set[int] = set()

    def check(self, descriptor: int, path: str) -> None:
        """Raise `KernelFileError` unless the open file (also one opened with `O_PATH`) is a stored one."""
        device = os.fstat(descriptor).st_dev
        if sys.platform != "linux" or os.major(device) or device in self._known:  # 0: on no block device
            return
        kind = _type_of(descriptor, device)
        if kind is None and device != os.stat("/").st_dev:
            raise KernelFileError(f"{path} lies on a file system that {MOUNTS} does not list; commands can read it")
        if kind is not None and not _stores(kind):
            raise KernelFileError(
                f"{path} lies on a file system of the kernel ({kind}), or of a type that is not known to store files; "
                "commands can read it"
            )
        self._known.add(device)


Shown = tuple[str, ...] | None
"""Real paths of the folders outside of which nothing is read; None: everything may be."""
HIDDEN = "it is not among the folders that the container shows ({}): what else is there, only commands see"


def refuse_hidden(real: str, shown: Shown) -> None:
    """Raise `PermissionError` unless a real path lies in one of the folders."""
    if shown is not None and not any(real == folder or real.startswith(f"{folder}/") for folder in shown):
        raise PermissionError(errno.EACCES, HIDDEN.format(", ".join(shown)), real)


def open_stored(path: str, flags: int, check: Callable[[int], None] = lambda mode: None, shown: Shown = None) -> int:
    """Open the absolute path, following links. `check` receives the file's mode before it is opened, and raises
    `OSError` to refuse it. What is open must lie in the folders `shown`, however it was reached.

    Raises `OSError`: a `KernelFileError` if the file, or a link on the way, is not stored.
    """
    if sys.platform != "linux":
        check(os.stat(path).st_mode)
        return os.open(path, flags)
    found = _reach(path)
    try:
        refuse_elsewhere(found, shown)
        check(os.fstat(found).st_mode)
        return os.open(f"/proc/self/fd/{found}", flags)
    finally:
        os.close(found)


def refuse_elsewhere(descriptor: int, shown: Shown) -> None:
    """Raise `PermissionError` unless what is open lies in one of the folders. Linux only."""
    if shown is not None:
        refuse_hidden(os.readlink(f"/proc/self/fd/{descriptor}"), shown)


def refuse_kernel_files(path: str, *, below: bool = False) -> None:
    """Raise `OSError` for a path that `open_stored` would not open, whatever its kind.

    `below`: everything under it will be read, too, so no file system that stores no files may be mounted there.
    """
    if sys.platform != "linux":
        return
    os.close(_reach(path))
    if below:
        real = os.path.realpath(path).rstrip("/")
        for mount in mounts():
            if mount.point.startswith(f"{real}/") and not _stores(mount.kind):
                raise KernelFileError(f"it contains {mount.point}, a file system of the kernel: name a folder below it")


def _reach(path: str) -> int:
    """Open the path with `O_PATH`. A link is followed only if it is a stored one: `/proc/self/fd/5` and the like are
    made by the kernel."""
    if "\0" in path:
        raise OSError(errno.EINVAL, "it contains a NUL", path)
    storage, todo, links = Storage(), deque(path.split("/")), 0
    here = os.open("/", _STEP)
    try:
        while todo:
            name = todo.popleft()
            if name in ("", "."):
                continue
            step = os.open(name, _STEP, dir_fd=here)
            if not stat.S_ISLNK(os.fstat(step).st_mode):
                os.close(here)
                here = step
                continue
            target = _target(step, storage, path)
            links += 1
            if links > MAX_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
            todo.extendleft(reversed(target.split("/")))
            if target.startswith("/"):
                os.close(here)
                here = os.open("/", _STEP)
        storage.check(here, path)
    except OSError:
        os.close(here)
        raise
    return here


def _target(link: int, storage: Storage, path: str) -> str:
    """Return the target of an open link, and close it."""
    try:
        storage.check(link, path)
        return os.readlink("", dir_fd=link)
    finally:
        os.close(link)


class Mount(NamedTuple):
    """One line of mountinfo (proc(5)). `source` is the folder of the file system that is visible at `point`."""

    number: int
    device: int
    source: str
    point: str
    kind: str


def mounts(start: bytes = b"") -> Iterator[Mount]:
    """Yield the mounts whose line begins with `start`; a line begins with the mount's number. Linux only."""
    for line in _lines(MOUNTS):
        if not line.startswith(start):
            continue
        before, _, after = line.partition(b" - ")
        number, _, place, source, point, _ = before.split(b" ", 5)
        major, _, minor = place.partition(b":")
        device, kind = os.makedev(int(major), int(minor)), os.fsdecode(after.partition(b" ")[0])
        yield Mount(int(number), device, _unescaped(source), _unescaped(point), kind)


def _unescaped(path: bytes) -> str:
    if b"\\" in path:
        path = _ESCAPE.sub(lambda found: bytes([int(found[1], 8)]), path)
    return os.fsdecode(path)


def _type_of(descriptor: int, device: int) -> str | None:
    """Return the type of the file system, found by its mount, or by its device if there is no mount number (gVisor).
    None if it is not listed, as the root of a `chroot` is not."""
    told = [line.split() for line in _lines(f"/proc/self/fdinfo/{descriptor}")]
    starts = [words[1] + b" " for words in told if words[0] == b"mnt_id:"]
    starts.append(b"")
    for start in starts:
        for mount in mounts(start):
            if start or mount.device == device:
                return mount.kind
    return None


def _stores(kind: str) -> bool:
    return kind.partition(".")[0] in STORING or b"\t" + os.fsencode(kind) in _lines(TYPES)


def _lines(path: str) -> list[bytes]:
    """Read a file's lines; none if it cannot be read: then only our root and block devices are known."""
    try:
        return Path(path).read_bytes().splitlines()
    except OSError:
        return []
