"""Build the file system that commands see: roots, a private `/dev`, protected paths, covered sockets.

Part of the zygote: standard library only.
"""

import errno
import os

from . import kernel
from .kernel import StepError
from .socket_search import SocketSearch, named_sockets, read_all

DEVICES = (b"/dev/null", b"/dev/zero", b"/dev/full", b"/dev/random", b"/dev/urandom", b"/dev/tty")
# A process with kernel uid 0 may write here whatever its capabilities are.
KERNEL_KNOBS = (b"/proc/sys", b"/proc/sysrq-trigger", b"/proc/irq", b"/proc/bus", b"/proc/fs", b"/proc/acpi")
TELLING = (
    b"keys", b"key-users", b"scsi", b"asound", b"acpi", b"timer_list", b"sched_debug", b"latency_stats", b"cmdline",
)  # fmt: skip
"""In `/proc`: of the host's users and hardware, and how its kernel was started."""
MAX_TERMINALS = 256
"""Of the machine's 4096 (`kernel.pty.max`), which all mounts of devpts share."""
VANISHED = (errno.ENOENT, errno.ENOTDIR, errno.ESTALE)
ATTEMPTS = 50
"""Tries to cover a path that comes and goes: a loop that removes and makes a folder rarely wins this often."""
EMPTY_DIR, SOCKET_COVER, SCRATCH = b"/dev/.empty", b"/dev/.nosock", b"/dev/.scratch"


def cover(covers: list[tuple[str, bytes, bytes]]) -> None:
    """Protect paths of the writable roots, in order; what is protected already stays so.

    `read`: read-only as it is; skipped when it is gone. `empty`: an empty read-only directory over a placeholder.
    `link`: a read-only file with this content over a symbolic link; without content, the file that it leads to. `pin`:
    cannot be renamed, stays writable. `open`: writable inside of what is read-only.
    """
    for kind, path, content in covers:
        cover_steadily(kind, path, content)


def cover_steadily(kind: str, path: bytes, content: bytes) -> None:
    """Cover a path that other programs may remove or replace meanwhile. It is an error if the path stays and cannot be
    covered; it is none if the path is gone, or closed to us and so to the command."""
    for attempt in range(ATTEMPTS):
        try:
            return cover_one(kind, path, content)
        except (OSError, StepError) as error:
            number = error.number if isinstance(error, StepError) else error.errno
            if kind != "empty" and not os.path.lexists(path):
                return None
            if attempt == ATTEMPTS - 1 and (kind == "empty" or number not in VANISHED):
                raise
    return None


def cover_one(kind: str, path: bytes, content: bytes) -> None:
    if kind == "pin":
        pin(path)
    elif kind == "open":
        if kernel.is_read_only(path):
            kernel.bind(path, path, cleared=kernel.ATTR_RDONLY)
    elif kernel.is_read_only(path):
        return
    elif kind == "read":
        kernel.bind(path, path, kernel.ATTR_RDONLY)
    elif kind == "empty":
        kernel.bind(EMPTY_DIR, path, kernel.ATTR_RDONLY)
    else:
        cover_link(path, content)


pinned: set[tuple[bytes, int, int]] = set()


def pin(path: bytes) -> None:
    """Make a folder a mount point, which cannot be renamed. Later inits inherit `pinned` along with the mounts."""
    status = os.lstat(path)
    if (path, status.st_dev, status.st_ino) not in pinned:
        kernel.bind(path, path)
        pinned.add((path, status.st_dev, status.st_ino))


def cover_link(path: bytes, content: bytes) -> None:
    if content:
        cover_with_text(path, content)
    else:
        kernel.bind(os.path.realpath(path), path, kernel.ATTR_RDONLY)


def cover_with_text(path: bytes, content: bytes) -> None:
    os.close(show_text(path, content))


def show_text(path: bytes, content: bytes) -> int:
    """Show a file with this content at a path, which commands cannot change. Returns a descriptor that can."""
    kernel.mount(b"tmpfs", SCRATCH, b"tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV)
    file = SCRATCH + b"/text"
    fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o444)
    os.write(fd, content)
    kernel.bind(file, path, kernel.ATTR_RDONLY)
    kernel.unmount(SCRATCH)
    return fd


class HostSockets:
    """Covers the host's named sockets. The table stays the host's, because it is opened before leaving its network.

    With `below`, only those in these folders: others have their names elsewhere.
    """

    def __init__(self, fixed: list[bytes], below: tuple[bytes, ...] = ()) -> None:
        self.fixed = fixed
        self.below = below
        self.table = os.open("/proc/self/net/unix", os.O_RDONLY | os.O_CLOEXEC)
        self.seen = b""
        self.complete = False

    def cover(self) -> bool:
        """Cover sockets that are not covered yet. False if the place of some socket cannot be told from its name."""
        os.lseek(self.table, 0, os.SEEK_SET)
        table = read_all(self.table)
        if table != self.seen:
            self.seen = table
            names, self.complete = named_sockets(table)
            for path in (*self.fixed, *names):
                if self.below and not path.startswith(self.below):
                    continue
                self.complete = cover_socket(path) and self.complete
        return self.complete

    def cover_present(self, search: SocketSearch) -> None:
        """Cover all socket files before the first command runs: each is somebody else's, even if the table has another
        name for it (it was renamed after it was bound) or none (it belongs to another network namespace)."""
        paths = search.found()
        if paths is None:
            raise StepError(0, "the search for sockets did not end")
        for path in paths:
            self.complete = cover_socket(path) and self.complete


def cover_socket(path: bytes) -> bool:
    """Cover a socket. False if it is still there, uncovered."""
    try:
        kind = os.lstat(path).st_mode & 0o170000
        if kind == 0o140000:
            kernel.bind(SOCKET_COVER, path)
        elif kind == 0o040000 and os.listdir(path):
            kernel.bind(EMPTY_DIR, path, kernel.ATTR_RDONLY)
    except OSError:
        return True  # gone, or in a folder that the command cannot enter either
    except StepError:
        return not os.path.lexists(path)
    return True


def build_tree(roots: list[bytes]) -> None:
    """Make the whole disk read-only except the roots, with a private `/dev`."""
    # Private, not slave: a slave would receive the host's later mounts, writable.
    kernel.mount(None, b"/", None, kernel.MS_REC | kernel.MS_PRIVATE)
    # Cloned before the disk becomes read-only, so that only submounts that were read-only already stay so.
    trees = [(root, kernel.clone_tree(root)) for root in roots]
    kernel.set_attributes(kernel.ATTR_RDONLY | kernel.ATTR_NOSUID, path=b"/")
    for root, tree in trees:
        kernel.set_attributes(kernel.ATTR_NOSUID | kernel.ATTR_NODEV, tree)
        kernel.attach(tree, root)
    build_dev(device_trees())


def device_trees() -> list[tuple[bytes, int]]:
    """Clone the host's devices that commands may use."""
    return [(path, kernel.clone_tree(path)) for path in DEVICES if os.path.exists(path)]


def build_dev(devices: list[tuple[bytes, int]], shared_memory: bytes = b"mode=1777") -> None:
    kernel.mount(b"tmpfs", b"/dev", b"tmpfs", kernel.MS_NOSUID, b"mode=755")
    for path, tree in devices:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o666))
        kernel.attach(tree, path)
    for name in (b"/dev/pts", b"/dev/shm", SCRATCH):
        os.mkdir(name, 0o755)
    os.mkdir(EMPTY_DIR, 0o555)
    os.close(os.open(SOCKET_COVER, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o400))
    # Without `gid=5`: the kernel would refuse, because the group of terminals is not mapped.
    options = b"newinstance,ptmxmode=0666,mode=620,max=%d" % MAX_TERMINALS
    kernel.mount(b"devpts", b"/dev/pts", b"devpts", kernel.MS_NOSUID | kernel.MS_NOEXEC, options)
    os.symlink(b"pts/ptmx", b"/dev/ptmx")
    os.symlink(b"/proc/self/fd", b"/dev/fd")
    for number, name in enumerate((b"stdin", b"stdout", b"stderr")):
        os.symlink(b"fd/%d" % number, b"/dev/" + name)
    kernel.set_attributes(kernel.ATTR_RDONLY, path=b"/dev", recursive=False)
    kernel.mount(b"tmpfs", b"/dev/shm", b"tmpfs", kernel.MS_NOSUID | kernel.MS_NODEV, shared_memory)


def cover_kernel_knobs() -> None:
    for path in KERNEL_KNOBS:
        if os.path.exists(path):
            kernel.bind(path, path, kernel.ATTR_RDONLY)


def closed_kernel_files(root: bool) -> list[tuple[bytes, bool]]:
    """List what in `/proc` tells of others, and what the kernel shows only to root, if that is who we are: a kernel uid
    0 can read it without any capability. Each with whether it is a folder."""
    found = []
    with os.scandir(b"/proc") as entries:
        for entry in entries:
            if entry.name.isdigit() or entry.is_symlink():
                continue
            if entry.name in TELLING or (root and not entry.stat().st_mode & 0o004):
                found.append((b"/proc/" + entry.name, entry.is_dir()))
    return found


def hide(paths: list[tuple[bytes, bool]]) -> None:
    for path, is_folder in paths:
        kernel.bind(EMPTY_DIR if is_folder else b"/dev/null", path, kernel.ATTR_RDONLY)
