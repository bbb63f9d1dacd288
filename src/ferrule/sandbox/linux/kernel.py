"""The zygote's system calls, through ctypes: mounts, Landlock, seccomp, capabilities. Standard library only.

System call numbers from 424 on are the same on every machine.
"""

import _socket
import ctypes
import fcntl
import os
import struct

AT_FDCWD, AT_EMPTY_PATH, AT_RECURSIVE, AT_SYMLINK_NOFOLLOW = -100, 0x1000, 0x8000, 0x100
OPEN_TREE, MOVE_MOUNT, MOUNT_SETATTR = 428, 429, 442
LANDLOCK_CREATE_RULESET, LANDLOCK_ADD_RULE, LANDLOCK_RESTRICT_SELF = 444, 445, 446
CLONE = {"x86_64": 56, "aarch64": 220}
CLONE_NEWNS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 1 << 17, 1 << 27, 1 << 28, 1 << 29, 1 << 30
CLONE_NEWCGROUP, CLONE_NEWUTS = 1 << 25, 1 << 26
LANDLOCK_RULE_PATH_BENEATH = 1
LANDLOCK_MAKE_DEVICES = 1 << 6 | 1 << 11  # character and block devices
LANDLOCK_WRITES = 1 << 1 | 0b1_1111_1111 << 4  # write a file; remove and make anything
LANDLOCK_RESOLVE_UNIX = 1 << 16
LANDLOCK_FILE = 1 << 1 | 1 << 14 | 1 << 15
# (version, right): refer, truncate, device ioctl, connect to a socket file that another domain made.
LANDLOCK_LATER_RIGHTS = ((2, 1 << 13), (3, 1 << 14), (5, 1 << 15), (9, LANDLOCK_RESOLVE_UNIX))
LANDLOCK_SOCKETS_SCOPE, LANDLOCK_SIGNALS_SCOPE = 1, 2  # abstract sockets and signals stay within the domain
OPEN_TREE_CLONE = 1
MOVE_MOUNT_F_EMPTY_PATH = 4
ATTR_RDONLY, ATTR_NOSUID, ATTR_NODEV, ATTR_IDMAP = 1, 2, 4, 1 << 20
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REC, MS_PRIVATE, MS_SLAVE = 2, 4, 8, 1 << 14, 1 << 18, 1 << 19
MNT_DETACH = 2
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_NAME, PR_SET_SECCOMP, PR_CAPBSET_DROP = 1, 4, 15, 22, 24
PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT = 36, 38, 47
SECCOMP_MODE_FILTER, PR_CAP_AMBIENT_CLEAR_ALL = 2, 4
TIOCSWINSZ, TIOCGPTN, TIOCSPTLCK = 0x5414, 0x80045430, 0x40045431
SIOCGIFFLAGS, SIOCSIFFLAGS, SIOCSIFADDR, IFF_UP = 0x8913, 0x8914, 0x8916, 1
SIGINT, SIGKILL, SIGUSR1, SIGTERM, SIGCHLD, SIGSTOP = 2, 9, 10, 15, 17, 19
ST_RDONLY = 1
CAPABILITY_VERSION = 0x20080522

USER_RESOURCES = (("max_inotify_instances", "max_user_instances"), ("max_inotify_watches", "max_user_watches"))
SHARE_OF_RESOURCES = 4
"""A container's part of what all programs of a user may have of them is this part of it."""

libc = ctypes.PyDLL(None, use_errno=True)  # PyDLL keeps the interpreter lock, which a raw clone needs
libc.syscall.restype = ctypes.c_long


class StepError(Exception):
    """A failed step of the confinement: errno, what was being done, on which path."""

    def __init__(self, number: int, what: str, path: bytes = b"") -> None:
        super().__init__(number, what, path)
        self.number, self.what, self.path = number, what, path


def checked(result: int, what: str, path: bytes = b"") -> int:
    if result < 0:
        raise StepError(ctypes.get_errno(), what, path)
    return result


def syscall(number: int, *arguments: int | bytes, what: str, path: bytes = b"") -> int:
    wide = (ctypes.c_long(argument) if isinstance(argument, int) else argument for argument in arguments)
    return checked(libc.syscall(ctypes.c_long(number), *wide), what, path)


def prctl(option: int, *arguments: int) -> int:
    wide = [ctypes.c_ulong(argument) for argument in (*arguments, 0, 0, 0, 0)[:4]]
    return checked(libc.prctl(option, *wide), f"prctl {option}")


def read_file(path: str) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, 4096)
    finally:
        os.close(fd)


def write_file(path: str, content: str) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, content.encode())
    finally:
        os.close(fd)


# Namespaces and mounts


def enter_namespaces(network: bool, more: int = 0, ids: tuple[int, int] | None = None) -> None:
    """Create user, mount, IPC and (unless the network is allowed) network namespaces, and `more`, and own them.

    User and group get the numbers `ids`; without, they keep theirs, so that `id`, `~` and git's ownership check work as
    usual.
    """
    enter_user(CLONE_NEWNS | CLONE_NEWIPC | (0 if network else CLONE_NEWNET) | more, ids)
    if not network:
        raise_loopback()


def enter_user(flags: int, ids: tuple[int, int] | None = None) -> None:
    """Create a user namespace, and those of `flags`, which it owns; user and group keep their numbers or get `ids`."""
    user, group = os.getuid(), os.getgid()
    inside = ids or (user, group)
    unshare(CLONE_NEWUSER | flags)
    write_file("/proc/self/setgroups", "deny")
    write_file("/proc/self/gid_map", f"{inside[1]} {group} 1")
    write_file("/proc/self/uid_map", f"{inside[0]} {user} 1")


def bound_resources() -> None:
    """Leave the rest of what the kernel counts for a user as a whole to other programs. Call it inside the namespaces;
    they hold for those of the user, too."""
    for name, whole in USER_RESOURCES:
        try:
            most = int(read_file(f"/proc/sys/fs/inotify/{whole}")) // SHARE_OF_RESOURCES
            write_file(f"/proc/sys/user/{name}", str(most))
        except (OSError, ValueError):
            continue  # a kernel without it


def unshare(flags: int) -> None:
    checked(libc.unshare(flags), "unshare")


def enter_user_namespace(fd: int) -> None:
    checked(libc.setns(fd, CLONE_NEWUSER), "setns")


def raise_loopback() -> None:
    (flags,) = struct.unpack_from("H", interface_request(SIOCGIFFLAGS, struct.pack("16sH22x", b"lo", 0)), 16)
    interface_request(SIOCSIFFLAGS, struct.pack("16sH22x", b"lo", flags | IFF_UP))


def interface_request(number: int, request: bytes) -> bytes:
    """Ask or tell the kernel about a network interface (netdevice(7))."""
    probe = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM | _socket.SOCK_CLOEXEC)
    try:
        return fcntl.ioctl(probe.fileno(), number, request)
    finally:
        probe.close()


def clone_process(namespaces: bool) -> int:
    """Fork; with `namespaces` the child is the first process of new PID and mount namespaces. Returns 0 in the
    child."""
    flags = SIGCHLD | (CLONE_NEWPID | CLONE_NEWNS if namespaces else 0)
    return syscall(CLONE[os.uname().machine], flags, 0, 0, 0, 0, what="clone")


def mount(source: bytes | None, target: bytes, kind: bytes | None, flags: int = 0, data: bytes | None = None) -> None:
    checked(libc.mount(source, target, kind, ctypes.c_ulong(flags), data), "mount", target)


def mount_overlay(lower: bytes, upper: bytes, work: bytes, target: bytes, options: bytes) -> None:
    """Mount a folder with a layer over it. By descriptors: paths may hold what parts options, and commands would see
    them. Raises `StepError`, `OSError`."""
    fds: list[int] = []
    try:
        fds.extend(os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC) for path in (lower, upper, work))
        layers = b",lowerdir=/proc/self/fd/%d,upperdir=/proc/self/fd/%d,workdir=/proc/self/fd/%d" % tuple(fds)
        mount(b"overlay", target, b"overlay", MS_NOSUID | MS_NODEV, options + layers)
    finally:
        for fd in fds:
            os.close(fd)


def clone_tree(path: bytes) -> int:
    flags = OPEN_TREE_CLONE | os.O_CLOEXEC | AT_RECURSIVE | AT_SYMLINK_NOFOLLOW
    return syscall(OPEN_TREE, AT_FDCWD, path, flags, what="open_tree", path=path)


def set_attributes(
    attributes: int,
    fd: int = AT_FDCWD,
    path: bytes = b"",
    recursive: bool = True,
    cleared: int = 0,
    namespace: int | None = None,
) -> None:
    """`namespace` is the user namespace through whose map the ids on disk are seen."""
    flags = (AT_RECURSIVE if recursive else 0) | (AT_EMPTY_PATH if not path else 0)
    ids = 0 if namespace is None else ATTR_IDMAP
    attr = struct.pack("QQQQ", attributes | ids, cleared, 0, namespace or 0)
    syscall(MOUNT_SETATTR, fd, path, flags, attr, len(attr), what="mount_setattr", path=path)


def attach(fd: int, path: bytes) -> None:
    """Mount a cloned tree. A link at `path` is not followed but covered itself."""
    try:
        syscall(MOVE_MOUNT, fd, b"", AT_FDCWD, path, MOVE_MOUNT_F_EMPTY_PATH, what="move_mount", path=path)
    finally:
        os.close(fd)


def bind(source: bytes, target: bytes, attributes: int = 0, cleared: int = 0) -> None:
    fd = clone_tree(source)
    if attributes or cleared:
        # Without recursion, so that read-only mounts below stay read-only.
        set_attributes(attributes, fd, recursive=not cleared, cleared=cleared)
    attach(fd, target)


def unmount(path: bytes) -> None:
    checked(libc.umount2(path, MNT_DETACH), "umount", path)


def change_root(path: bytes) -> None:
    """Make a mount the root, and let go of everything outside of it."""
    os.chdir(path)
    checked(libc.pivot_root(b".", b"."), "pivot_root", path)
    unmount(b".")  # the old root, which lies over the new one
    os.chdir("/")


def set_host_name(name: bytes) -> None:
    checked(libc.sethostname(name, ctypes.c_size_t(len(name))), "sethostname")


def take_name(name: bytes) -> None:
    """Show only this name to those who list processes: the command line holds paths of the host."""
    checked(libc.prctl(PR_SET_NAME, name, 0, 0, 0), "prctl")
    fd = os.open("/proc/self/stat", os.O_RDONLY | os.O_CLOEXEC)
    fields = os.read(fd, 4096).rpartition(b")")[2].split()
    os.close(fd)
    start, end = int(fields[45]), int(fields[46])  # arg_start and arg_end, see proc(5)
    if end - start > len(name):
        ctypes.memset(start, 0, end - start)
        ctypes.memmove(start, name, len(name))


def is_read_only(path: bytes) -> bool:
    fd = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        return bool(os.fstatvfs(fd).f_flag & ST_RDONLY)
    finally:
        os.close(fd)


# Landlock, seccomp, capabilities


def landlock_abi() -> int:
    """Return the version of Landlock that the kernel offers; 0 for none."""
    result: int = libc.syscall(ctypes.c_long(LANDLOCK_CREATE_RULESET), None, ctypes.c_long(0), ctypes.c_long(1))
    return max(result, 0)


def landlock_ruleset(roots: tuple[bytes, ...], devices: tuple[bytes, ...], sockets: bool = False) -> int | None:
    """Create a ruleset that allows writing only below the roots and to the devices; None if there is no Landlock.

    `sockets` allows connecting to local sockets of other commands, where namespaces leave no others.

    It does not handle reading and executing, so they stay unrestricted. Returns a descriptor.
    """
    abi = landlock_abi()
    if abi == 0:
        return None
    handled = LANDLOCK_WRITES
    for version, right in LANDLOCK_LATER_RIGHTS:
        if abi >= version:
            handled |= right
    if sockets:
        handled &= ~LANDLOCK_RESOLVE_UNIX
    scopes = LANDLOCK_SIGNALS_SCOPE | (0 if sockets else LANDLOCK_SOCKETS_SCOPE)
    attr = struct.pack("QQQ", handled, 0, scopes)[: 24 if abi >= 6 else 16 if abi >= 4 else 8]
    fd = syscall(LANDLOCK_CREATE_RULESET, attr, len(attr), 0, what="landlock_create_ruleset")
    below = handled & ~(LANDLOCK_MAKE_DEVICES | LANDLOCK_RESOLVE_UNIX)
    for path, rights in [*((root, below) for root in roots), *((device, LANDLOCK_FILE) for device in devices)]:
        try:
            parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        rule = struct.pack("=Qi", rights & handled, parent)
        syscall(LANDLOCK_ADD_RULE, fd, LANDLOCK_RULE_PATH_BENEATH, rule, 0, what="landlock_add_rule", path=path)
        os.close(parent)
    return fd


def landlock_restrict(ruleset: int) -> None:
    syscall(LANDLOCK_RESTRICT_SELF, ruleset, 0, what="landlock_restrict_self")


def load_filter(program: bytes) -> None:
    buffer = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer))
    checked(libc.prctl(PR_SET_SECCOMP, ctypes.c_ulong(SECCOMP_MODE_FILTER), header, 0, 0), "seccomp")


def drop_bounding_set(kept: tuple[int, ...] = ()) -> None:
    for capability in range(64):
        if capability not in kept and libc.prctl(PR_CAPBSET_DROP, ctypes.c_ulong(capability), 0, 0, 0) < 0:
            return


def keep_capabilities() -> None:
    """Read the capabilities and set them again, which changes nothing."""
    header, sets = struct.pack("Ii", CAPABILITY_VERSION, 0), ctypes.create_string_buffer(24)
    checked(libc.capget(header, sets), "capget")
    checked(libc.capset(header, sets), "capset")


def drop_capabilities(kept: tuple[int, ...] = ()) -> None:
    """Drop all but some of the first 32."""
    libc.prctl(PR_CAP_AMBIENT, ctypes.c_ulong(PR_CAP_AMBIENT_CLEAR_ALL), 0, 0, 0)
    mask = sum(1 << capability for capability in kept)
    checked(libc.capset(struct.pack("Ii", CAPABILITY_VERSION, 0), struct.pack("6I", mask, mask, 0, 0, 0, 0)), "capset")
