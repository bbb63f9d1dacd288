"""Build the seccomp filters as bytes of classic BPF. Pure.

There are two, because loading the long one takes half a millisecond: a zygote loads `base` once and its inits inherit
it; `final` refuses the calls that an init itself needs until it runs the command. Numbers come from the kernel's
`syscall_64.tbl` (x86-64) and `asm-generic/unistd.h` (aarch64); from 424 on they are the same.
"""

import errno
import os
import platform
import socket
import stat
import struct
from collections.abc import Iterable
from typing import Final

import msgspec

from ferrule.process.launcher import LaunchError

_ALLOW: Final = 0x7FFF0000
_ERRNO: Final = 0x00050000
_LOAD, _AND, _RETURN = 0x20, 0x54, 0x06
_EQUAL, _AT_LEAST, _ANY_BIT = 0x15, 0x35, 0x45
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_X32_BIT = 0x40000000
_ANY_NEW_NAMESPACE = 0x7E020080  # mount, cgroup, uts, ipc, user, pid, net; time
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_SOCKET_TYPE_MASK = 0xF
_NETLINK_ROUTE = 0
_SET_ID_BITS = stat.S_ISUID | stat.S_ISGID
_MAKES_A_FILE = os.O_CREAT | 0o20000000  # the second is the bit that O_TMPFILE adds to O_DIRECTORY
_UNCHANGED = 0xFFFFFFFF  # -1 for an owner: leave it
# Ranges of fcntl commands that are allowed: descriptors, locks, one's own signals; open file description locks; the
# Linux-specific ones except leases, which make others wait. Newer ones are refused until somebody has reviewed them.
_FCNTL_COMMANDS = ((0, 17), (36, 38), (1025, 1038))

# name: (x86-64, aarch64); None if a machine lacks the call.
_REFUSED: Final[dict[str, tuple[int | None, int | None]]] = {
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "process_madvise": (440, 440),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "kexec_load": (246, 104),
    "kexec_file_load": (320, 294),
    "create_module": (174, None),
    "init_module": (175, 105),
    "delete_module": (176, 106),
    "finit_module": (313, 273),
    "setns": (308, 268),
    "unshare": (272, 97),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "acct": (163, 89),
    "swapon": (167, 224),
    "swapoff": (168, 225),
    "reboot": (169, 142),
    "settimeofday": (164, 170),
    "clock_settime": (227, 112),
    "clock_adjtime": (305, 266),
    "adjtimex": (159, 171),
    "iopl": (172, None),
    "ioperm": (173, None),
    "syslog": (103, 116),
    "vhangup": (153, 58),
    "memfd_secret": (447, 447),
    "fanotify_init": (300, 262),
    "lookup_dcookie": (212, 18),
    "move_pages": (279, 239),
    "migrate_pages": (256, 238),
    "uselib": (134, None),
    "modify_ldt": (154, None),
}
_MOUNTING: Final[dict[str, tuple[int | None, int | None]]] = {
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "open_tree_attr": (467, 467),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
}
# Without namespaces nothing else protects these: Landlock has no right for owners and extended attributes.
_OWNERS_AND_ATTRIBUTES: Final[dict[str, tuple[int | None, int | None]]] = {
    "chown": (92, None),
    "fchown": (93, 55),
    "lchown": (94, None),
    "fchownat": (260, 54),
    "setxattr": (188, 5),
    "lsetxattr": (189, 6),
    "fsetxattr": (190, 7),
    "removexattr": (197, 14),
    "lremovexattr": (198, 15),
    "fremovexattr": (199, 16),
    "setxattrat": (463, 463),
    "removexattrat": (466, 466),
}
# Without an IPC namespace: other programs' objects, found by numbers that can be guessed.
_SHARED_OBJECTS: Final[dict[str, tuple[int | None, int | None]]] = {
    "shmget": (29, 194),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "semget": (64, 190),
    "semop": (65, 193),
    "semctl": (66, 191),
    "semtimedop": (220, 192),
    "msgget": (68, 186),
    "msgsnd": (69, 189),
    "msgrcv": (70, 188),
    "msgctl": (71, 187),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
}
# Without a PID namespace: the first argument names a process, or the caller if it is 0.
_ACTS_ON_A_PROCESS: Final[dict[str, tuple[int | None, int | None]]] = {
    "prlimit64": (302, 261),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
}
# Memory that no process's size shows.
_HIDDEN_MEMORY: Final[dict[str, tuple[int | None, int | None]]] = {"memfd_create": (319, 279)}
_FALLOCATE: Final = (285, 47)
_PUNCH_HOLE = 3  # FALLOC_FL_KEEP_SIZE and FALLOC_FL_PUNCH_HOLE: frees space
# (call, the kind that means all processes of a user): the first argument is the kind, the second the process or group.
_PRIORITIES: Final = (((141, 140), 2), ((251, 30), 3))  # setpriority, ioprio_set
# (call, arguments that name users, arguments that name groups)
_IDENTITIES: Final = (
    ((105, 146), (0,), ()),  # setuid
    ((106, 144), (), (0,)),  # setgid
    ((113, 145), (0, 1), ()),  # setreuid
    ((114, 143), (), (0, 1)),  # setregid
    ((117, 147), (0, 1, 2), ()),  # setresuid
    ((119, 149), (), (0, 1, 2)),  # setresgid
    ((92, None), (1,), (2,)),  # chown
    ((93, 55), (1,), (2,)),  # fchown
    ((94, None), (1,), (2,)),  # lchown
    ((260, 54), (2,), (3,)),  # fchownat
)
# (call, the argument that holds the mode)
_MODES: Final = (
    ((90, None), 1),  # chmod
    ((91, 52), 1),  # fchmod
    ((268, 53), 2),  # fchmodat
    ((452, 452), 2),  # fchmodat2
    ((85, None), 1),  # creat
    ((133, None), 1),  # mknod
    ((259, 33), 2),  # mknodat
)
_OPENS: Final = (((257, 56), 2), ((2, None), 1))  # openat, open: the argument that holds the flags; the mode follows
_OPENAT2, _FCNTL = (437, 437), (72, 25)
_MACHINES: Final = ("x86_64", "aarch64")
OWN_PROCESS: Final = 0x7EADBEEF
"""Stands in a filter for the process that loads it, which writes its number in this place. No process can have it."""
_CLONE, _CLONE3, _IOCTL, _SOCKET, _SOCKETPAIR = (56, 220), (435, 435), (16, 29), (41, 198), (53, 199)


class Filters(msgspec.Struct, frozen=True):
    """The filter programs of one policy, for this machine."""

    base: bytes
    final: bytes
    final_without_sockets: bytes
    single: bytes
    """Both filters in one program, and no named sockets."""
    single_for_open_disk: bytes
    """The same for use without namespaces: it also refuses changes of owners and extended attributes, acting on other
    processes, and their shared memory and queues."""


def build_filters(
    inet: bool,
    user: int | None = None,
    group: int | None = None,
    *,
    any_ids: bool = False,
    watched_disk: bool = False,
    watched_memory: bool = False,
) -> Filters:
    """Build the filters. `inet` allows IPv4 and IPv6 sockets, because the network is private or allowed. `user` and
    `group` are what commands have inside; ours by default; `any_ids`: they may take others, as far as the kernel lets
    them. `watched_disk`: commands take space no faster than they write; `watched_memory`: they have none but what
    their processes' sizes show.

    Raises `LaunchError` on a machine that the tables do not cover.
    """
    machine = platform.machine()
    if machine not in _MACHINES:
        raise LaunchError(f"there is no system call filter for {machine} machines")
    arm = _MACHINES.index(machine)
    refused = _numbers(_REFUSED, arm)
    mounting = _numbers(_MOUNTING, arm)
    exposed = [*_numbers(_OWNERS_AND_ATTRIBUTES, arm), *_numbers(_SHARED_OBJECTS, arm)]
    files = [*_opens(arm), *_fcntl(arm), *_modes(arm)]  # first, because they are called most often
    base = [*_architecture(arm), *files, *_refuse(refused), *_terminal(arm), *_sockets(arm, inet), *_pairs(arm)]
    if not any_ids:
        base += _identities(arm, os.getuid() if user is None else user, os.getgid() if group is None else group)
    base += _unreserved(arm) if watched_disk else []
    base += _refuse(_numbers(_HIDDEN_MEMORY, arm), errno.ENOSYS) if watched_memory else []
    final = [*_refuse(mounting), *_clone(arm)]
    no_sockets = _no_named_sockets(arm)
    return Filters(
        base=_program(base),
        final=_program(final),
        final_without_sockets=_program([*no_sockets, *final]),
        single=_program([*base, *no_sockets, *final]),
        single_for_open_disk=_program([*base, *no_sockets, *_refuse(exposed), *_only_oneself(arm), *final]),
    )


_Instruction = tuple[int, int, int, int]


def _numbers(table: dict[str, tuple[int | None, int | None]], arm: int) -> list[int]:
    return sorted(number for row in table.values() if (number := row[arm]) is not None)


def _program(instructions: Iterable[_Instruction]) -> bytes:
    return b"".join(struct.pack("HBBI", *one) for one in [_load(_NUMBER), *instructions, _give(_ALLOW)])


def _load(offset: int) -> _Instruction:
    return (_LOAD, 0, 0, offset)


def _argument(index: int) -> _Instruction:
    """Load the low 32 bits of an argument; of those checked here the kernel uses no more."""
    return _load(_ARGUMENTS + 8 * index)


def _give(action: int) -> _Instruction:
    return (_RETURN, 0, 0, action)


def _fail(number: int = errno.EPERM) -> _Instruction:
    return _give(_ERRNO | number)


def _when(test: int, value: int, then: list[_Instruction]) -> list[_Instruction]:
    """Run `then` only if the accumulator passes the test."""
    return [(test, 0, len(then), value), *then]


def _unless(value: int, then: list[_Instruction]) -> list[_Instruction]:
    return [(_EQUAL, len(then), 0, value), *then]


def _unless_one_of(values: tuple[int, ...], then: list[_Instruction]) -> list[_Instruction]:
    left = len(values)
    return [*((_EQUAL, len(then) + left - 1 - at, 0, value) for at, value in enumerate(values)), *then]


def _unless_at_least(value: int, then: list[_Instruction]) -> list[_Instruction]:
    return [(_AT_LEAST, len(then), 0, value), *then]


def _call_if_there(number: int | None, then: list[_Instruction]) -> list[_Instruction]:
    return [] if number is None else _call(number, then)


def _call(number: int, then: list[_Instruction]) -> list[_Instruction]:
    """Run `then` for one system call; the accumulator holds the call's number before and after."""
    return _when(_EQUAL, number, [*then, _load(_NUMBER)])


def _refuse(numbers: Iterable[int], reason: int = errno.EPERM) -> list[_Instruction]:
    return [one for number in numbers for one in _when(_EQUAL, number, [_fail(reason)])]


def _unreserved(arm: int) -> list[_Instruction]:
    """Refuse to reserve space, as some file systems do: one call would take terabytes. Programs write instead."""
    return _call(_FALLOCATE[arm], [_argument(1), *_unless(_PUNCH_HOLE, [_fail(errno.EOPNOTSUPP)])])


def _architecture(arm: int) -> list[_Instruction]:
    native = 0xC00000B7 if arm else 0xC000003E
    check = [_load(_ARCHITECTURE), *_unless(native, [_fail(errno.ENOSYS)]), _load(_NUMBER)]
    return check if arm else [*check, *_when(_AT_LEAST, _X32_BIT, [_fail(errno.ENOSYS)])]


def _terminal(arm: int) -> list[_Instruction]:
    typed = [*_when(_EQUAL, _TIOCSTI, [_fail()]), *_when(_EQUAL, _TIOCLINUX, [_fail()])]
    return _call(_IOCTL[arm], [_argument(1), *typed])


def _sockets(arm: int, inet: bool) -> list[_Instruction]:
    """Allow `socket()` only for some families, and local sockets only as streams and sequenced packets.

    Anybody may ask netlink for routes; changing them takes a capability that no command has. Others, such as that for
    audits, look as on a kernel without them: PAM goes on then, but not after EPERM.
    """
    allowed = [socket.AF_INET, socket.AF_INET6] if inet else []
    families: list[_Instruction] = []
    for family in allowed:
        families += _when(_EQUAL, family, [_give(_ALLOW)])
    routes = [_argument(2), *_unless(_NETLINK_ROUTE, [_fail(errno.EPROTONOSUPPORT)]), _give(_ALLOW)]
    netlink = _when(_EQUAL, socket.AF_NETLINK, routes)
    local = [*_unless(socket.AF_UNIX, [_fail()]), *_connected_types()]
    return _call(_SOCKET[arm], [_argument(0), *families, *netlink, *local])


def _pairs(arm: int) -> list[_Instruction]:
    """Refuse datagram pairs: either end can send to any address."""
    return _call(_SOCKETPAIR[arm], _connected_types())


def _connected_types() -> list[_Instruction]:
    """Refuse other types of local sockets, which can send to any path at any time. The kernel turns SOCK_RAW into a
    datagram socket, too."""
    masked = [_argument(1), (_AND, 0, 0, _SOCKET_TYPE_MASK)]
    return [*masked, *_unless_one_of((socket.SOCK_STREAM, socket.SOCK_SEQPACKET), [_fail()])]


def _opens(arm: int) -> list[_Instruction]:
    """Check the modes of new files. `openat2` has its mode in memory, where no filter can look: it is reported as
    missing, and its callers have a fallback."""
    program = _when(_EQUAL, _OPENAT2[arm], [_fail(errno.ENOSYS)])
    for numbers, flags in _OPENS:
        new_file = _when(_ANY_BIT, _MAKES_A_FILE, _no_set_id(flags + 1))
        program += _call_if_there(numbers[arm], [_argument(flags), *new_file, _give(_ALLOW)])
    return program


def _modes(arm: int) -> list[_Instruction]:
    return [one for numbers, mode in _MODES for one in _call_if_there(numbers[arm], _no_set_id(mode))]


def _no_set_id(mode: int) -> list[_Instruction]:
    """Refuse set-ID bits. They have no effect inside, but other users of the machine would run the file with this
    user's rights."""
    return [_argument(mode), *_when(_ANY_BIT, _SET_ID_BITS, [_fail()])]


def _fcntl(arm: int) -> list[_Instruction]:
    known: list[_Instruction] = []
    for first, last in _FCNTL_COMMANDS:
        known += _when(_AT_LEAST, first, _unless_at_least(last + 1, [_give(_ALLOW)]))
    return _call(_FCNTL[arm], [_argument(1), *known, _fail(errno.EINVAL)])


def _identities(arm: int, user: int, group: int) -> list[_Instruction]:
    """Refuse other ids with EPERM, as programs expect; the kernel would say EINVAL, because only one id is mapped."""
    program: list[_Instruction] = []
    for numbers, users, groups in _IDENTITIES:
        checks: list[_Instruction] = []
        for own, arguments in ((user, users), (group, groups)):
            for argument in arguments:
                checks += [_argument(argument), *_unless_one_of((own, _UNCHANGED), [_fail()])]
        program += _call_if_there(numbers[arm], checks)
    return program


def _only_oneself(arm: int) -> list[_Instruction]:
    """Allow acting on the caller, and on the command's first process (`$$` of its shell) and that one's group."""
    unless_own = _unless_one_of((0, OWN_PROCESS), [_fail()])
    itself = [_argument(0), *unless_own]
    program = [one for number in _numbers(_ACTS_ON_A_PROCESS, arm) for one in _call(number, itself)]
    for numbers, everybody in _PRIORITIES:
        checks = [_argument(0), *_when(_EQUAL, everybody, [_fail()]), _argument(1), *unless_own]
        program += _call(numbers[arm], checks)
    return program


def _no_named_sockets(arm: int) -> list[_Instruction]:
    return _call(_SOCKET[arm], [_argument(0), *_when(_EQUAL, socket.AF_UNIX, [_fail()])])


def _clone(arm: int) -> list[_Instruction]:
    """Refuse new namespaces. `clone3` is reported as missing, so that libc falls back to `clone`, whose flags a filter
    can check."""
    flags = [_argument(0), *_when(_ANY_BIT, _ANY_NEW_NAMESPACE, [_fail()])]
    return [*_when(_EQUAL, _CLONE3[arm], [_fail(errno.ENOSYS)]), *_call(_CLONE[arm], flags)]
