"""The seccomp filters, as bytes of classic BPF. Pure: what is refused, and the program that refuses it.

Two filters, because loading the long one costs half a millisecond: a zygote loads `base_filter` once and its inits
inherit it; `final_filter` holds what an init needs itself until it runs the command. Numbers: the kernel's
`syscall_64.tbl` (x86-64) and `asm-generic/unistd.h` (aarch64); from 424 on they are the same.
"""

import errno
import platform
import socket
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

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

# name: (x86-64, aarch64); None where a machine does not have the call.
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
# Where no namespace makes the disk read-only: Landlock has no right for owners and extended attributes.
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
_MACHINES: Final = ("x86_64", "aarch64")
_CLONE, _CLONE3, _IOCTL, _SOCKET, _SOCKETPAIR = (56, 220), (435, 435), (16, 29), (41, 198), (53, 199)


@dataclass(frozen=True, slots=True)
class Filters:
    """The programs of one policy, for this machine."""

    base: bytes
    final: bytes
    final_without_sockets: bytes
    single: bytes
    """Everything in one program, without named sockets."""
    single_for_open_disk: bytes
    """The same for where the disk is not read-only: changing owners and extended attributes is refused."""


def build_filters(inet: bool) -> Filters:
    """`inet`: IPv4 and IPv6 sockets may be made, because the network is private or allowed.

    Raises `LaunchError` on a machine that the tables do not know.
    """
    machine = platform.machine()
    if machine not in _MACHINES:
        raise LaunchError(f"there is no system call filter for {machine} machines")
    arm = _MACHINES.index(machine)
    refused = _numbers(_REFUSED, arm)
    mounting = _numbers(_MOUNTING, arm)
    owners = _numbers(_OWNERS_AND_ATTRIBUTES, arm)
    base = [*_architecture(arm), *_refuse(refused), *_terminal(arm), *_sockets(arm, inet), *_datagram_pairs(arm)]
    final = [*_refuse(mounting), *_clone(arm)]
    no_sockets = _no_named_sockets(arm)
    return Filters(
        base=_program(base),
        final=_program(final),
        final_without_sockets=_program([*no_sockets, *final]),
        single=_program([*base, *no_sockets, *final]),
        single_for_open_disk=_program([*base, *no_sockets, *_refuse(owners), *final]),
    )


_Instruction = tuple[int, int, int, int]


def _numbers(table: dict[str, tuple[int | None, int | None]], arm: int) -> list[int]:
    return sorted(number for row in table.values() if (number := row[arm]) is not None)


def _program(instructions: Iterable[_Instruction]) -> bytes:
    return b"".join(struct.pack("HBBI", *one) for one in [_load(_NUMBER), *instructions, _give(_ALLOW)])


def _load(offset: int) -> _Instruction:
    return (_LOAD, 0, 0, offset)


def _argument(index: int) -> _Instruction:
    """The low 32 bits of an argument; the kernel looks at no more of those that are checked here."""
    return _load(_ARGUMENTS + 8 * index)


def _give(action: int) -> _Instruction:
    return (_RETURN, 0, 0, action)


def _fail(number: int = errno.EPERM) -> _Instruction:
    return _give(_ERRNO | number)


def _when(test: int, value: int, then: list[_Instruction]) -> list[_Instruction]:
    """`then` if the accumulator passes the test; it is skipped otherwise."""
    return [(test, 0, len(then), value), *then]


def _unless(value: int, then: list[_Instruction]) -> list[_Instruction]:
    return [(_EQUAL, len(then), 0, value), *then]


def _call(number: int, then: list[_Instruction]) -> list[_Instruction]:
    """`then` for one system call; the accumulator holds the call's number before and after."""
    return _when(_EQUAL, number, [*then, _load(_NUMBER)])


def _refuse(numbers: Iterable[int]) -> list[_Instruction]:
    return [one for number in numbers for one in _when(_EQUAL, number, [_fail()])]


def _architecture(arm: int) -> list[_Instruction]:
    native = 0xC00000B7 if arm else 0xC000003E
    check = [_load(_ARCHITECTURE), *_unless(native, [_fail(errno.ENOSYS)]), _load(_NUMBER)]
    return check if arm else [*check, *_when(_AT_LEAST, _X32_BIT, [_fail(errno.ENOSYS)])]


def _terminal(arm: int) -> list[_Instruction]:
    typed = [*_when(_EQUAL, _TIOCSTI, [_fail()]), *_when(_EQUAL, _TIOCLINUX, [_fail()])]
    return _call(_IOCTL[arm], [_argument(1), *typed])


def _sockets(arm: int, inet: bool) -> list[_Instruction]:
    """`socket()`: the allowed families only; local ones not as datagrams, which can be sent anywhere at any time."""
    allowed = [socket.AF_INET, socket.AF_INET6] if inet else []
    local = [_argument(1), (_AND, 0, 0, _SOCKET_TYPE_MASK), *_when(_EQUAL, socket.SOCK_DGRAM, [_fail()])]
    families: list[_Instruction] = []
    for family in allowed:
        families += _when(_EQUAL, family, [_give(_ALLOW)])
    return _call(_SOCKET[arm], [_argument(0), *families, *_unless(socket.AF_UNIX, [_fail()]), *local])


def _datagram_pairs(arm: int) -> list[_Instruction]:
    """One end of a datagram pair could be sent to any address."""
    masked = [_argument(1), (_AND, 0, 0, _SOCKET_TYPE_MASK)]
    return _call(_SOCKETPAIR[arm], [*masked, *_when(_EQUAL, socket.SOCK_DGRAM, [_fail()])])


def _no_named_sockets(arm: int) -> list[_Instruction]:
    return _call(_SOCKET[arm], [_argument(0), *_when(_EQUAL, socket.AF_UNIX, [_fail()])])


def _clone(arm: int) -> list[_Instruction]:
    """New namespaces are refused; `clone3` does not exist, so that libc falls back to `clone`, which can be checked."""
    flags = [_argument(0), *_when(_ANY_BIT, _ANY_NEW_NAMESPACE, [_fail()])]
    return [*_when(_EQUAL, _CLONE3[arm], [_fail(errno.ENOSYS)]), *_call(_CLONE[arm], flags)]
