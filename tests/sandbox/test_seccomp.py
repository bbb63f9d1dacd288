"""The filters, run by a small interpreter of classic BPF: also for the machine that this is not."""

import errno
import os
import platform
import socket
import struct

import pytest

from ferrule.process.launcher import LaunchError
from ferrule.sandbox.linux.seccomp import OWN_PROCESS, Filters, build_filters

ALLOW = 0x7FFF0000
NATIVE = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}
SOCKET = {"x86_64": 41, "aarch64": 198}
SOCKETPAIR = {"x86_64": 53, "aarch64": 199}
IOCTL = {"x86_64": 16, "aarch64": 29}
CLONE = {"x86_64": 56, "aarch64": 220}


@pytest.fixture(params=list(NATIVE))
def machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(platform, "machine", lambda: request.param)
    return str(request.param)


def verdict(program: bytes, number: int, *arguments: int, arch: int) -> int | None:
    """The errno that a call gets; None if it is allowed."""
    data = struct.pack("<IIQ6Q", number, arch, 0, *(*arguments, 0, 0, 0, 0, 0, 0)[:6])
    instructions = list(struct.iter_unpack("<HBBI", program))
    position, accumulator = 0, 0
    while True:
        code, yes, no, value = instructions[position]
        position += 1
        if code == 0x20:
            (accumulator,) = struct.unpack_from("<I", data, value)
        elif code == 0x54:
            accumulator &= value
        elif code == 0x06:
            return None if value == ALLOW else value & 0xFFFF
        else:
            tests = {0x15: accumulator == value, 0x35: accumulator >= value, 0x45: bool(accumulator & value)}
            position += yes if tests[code] else no


def judge(filters: Filters, machine: str, number: int, *arguments: int, part: str = "single") -> int | None:
    return verdict(getattr(filters, part), number, *arguments, arch=NATIVE[machine])


def test_the_programs_are_short_and_end_in_allow(machine: str) -> None:
    filters = build_filters(inet=True)
    for program in (filters.base, filters.final, filters.final_without_sockets, filters.single):
        assert len(program) % 8 == 0 and len(program) // 8 < 600
        assert struct.unpack("<HBBI", program[-8:]) == (6, 0, 0, ALLOW)


def test_ordinary_calls_are_allowed(machine: str) -> None:
    filters = build_filters(inet=True)
    refused = [number for number in range(470) if judge(filters, machine, number) is not None]
    assert 40 < len(refused) < 80
    for name in ("read", "write", "openat", "execve", "exit_group"):
        number = {"read": (0, 63), "write": (1, 64), "openat": (257, 56), "execve": (59, 221), "exit_group": (231, 94)}
        assert judge(filters, machine, number[name][machine == "aarch64"]) is None


@pytest.mark.parametrize("number", [425, 426, 427, 428, 429, 430, 431, 432, 433, 438, 440, 442, 443, 447, 467])
def test_new_calls_are_refused_by_number(machine: str, number: int) -> None:
    assert judge(build_filters(inet=True), machine, number) == errno.EPERM


def test_other_architectures_do_not_exist(machine: str) -> None:
    filters = build_filters(inet=True)
    assert verdict(filters.base, 20, arch=0x40000003) == errno.ENOSYS
    if machine == "x86_64":
        assert judge(filters, machine, 0x40000000 + 39) == errno.ENOSYS


def test_sockets(machine: str) -> None:
    def make(family: int, kind: int, *, inet: bool = True, part: str = "base") -> int | None:
        flags = kind | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK
        return judge(build_filters(inet), machine, SOCKET[machine], family, flags, part=part)

    assert make(socket.AF_INET, socket.SOCK_STREAM) is None
    assert make(socket.AF_INET6, socket.SOCK_DGRAM) is None
    assert make(socket.AF_INET, socket.SOCK_STREAM, inet=False) == errno.EPERM
    assert make(socket.AF_UNIX, socket.SOCK_STREAM) is None
    assert make(socket.AF_UNIX, socket.SOCK_SEQPACKET) is None
    assert make(socket.AF_UNIX, socket.SOCK_DGRAM) == errno.EPERM
    assert make(socket.AF_UNIX, socket.SOCK_STREAM, part="final_without_sockets") == errno.EPERM
    assert make(socket.AF_INET, socket.SOCK_STREAM, part="final_without_sockets") is None
    assert make(socket.AF_UNIX, socket.SOCK_STREAM, part="single") == errno.EPERM
    for family in (17, 38, 40):  # packet, alg, vsock
        assert make(family, socket.SOCK_RAW) == errno.EPERM


def test_s11_only_connected_types_of_local_sockets(machine: str) -> None:
    filters = build_filters(inet=False)
    for number in (SOCKETPAIR[machine], SOCKET[machine]):
        for kind in range(16):
            for flags in (0, socket.SOCK_CLOEXEC, socket.SOCK_NONBLOCK):
                allowed = kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET)
                expected = None if allowed else errno.EPERM
                assert judge(filters, machine, number, socket.AF_UNIX, kind | flags, part="base") == expected


def test_n010_of_netlink_only_routes(machine: str) -> None:
    for part in ("base", "single", "single_for_open_disk"):
        for protocol in range(23):
            expected = None if protocol == 0 else errno.EPROTONOSUPPORT
            arguments = (socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, protocol)
            assert judge(build_filters(inet=True), machine, SOCKET[machine], *arguments, part=part) == expected


def numbers(machine: str, *pairs: tuple[int | None, int]) -> list[int]:
    return [number for pair in pairs if (number := pair[machine == "aarch64"]) is not None]


def test_s20_fcntl_knows_no_leases(machine: str) -> None:
    filters = build_filters(inet=False)
    (fcntl,) = numbers(machine, (72, 25))
    allowed = {n for n in range(3000) if judge(filters, machine, fcntl, 3, n, 0, part="base") is None}
    assert allowed == {*range(18), 36, 37, 38, *range(1025, 1039)}
    assert judge(filters, machine, fcntl, 3, 1024, 1, part="base") == errno.EINVAL


def test_s23_no_mode_with_set_id_bits(machine: str) -> None:
    filters = build_filters(inet=False)
    calls = [(pair, 1) for pair in ((90, None), (91, 52), (133, None), (85, None))]
    calls += [(pair, 2) for pair in ((268, 53), (452, 452), (259, 33))]
    tried = 0
    for pair, position in calls:
        for number in numbers(machine, pair):  # type: ignore[arg-type]
            tried += 1
            for mode, expected in ((0o4755, errno.EPERM), (0o2755, errno.EPERM), (0o1777, None), (0o755, None)):
                assert judge(filters, machine, number, *[3] * position, mode, part="base") == expected
    assert tried == (7 if machine == "x86_64" else 4)
    (openat,) = numbers(machine, (257, 56))
    for flags, mode, expected in (
        (0o100, 0o4755, errno.EPERM),
        (0o20200000, 0o2755, errno.EPERM),
        (0o100, 0o755, None),
        (0, 0o4755, None),  # no file is made, so nobody looks at the mode
        (0o200000, 0o4755, None),
    ):
        assert judge(filters, machine, openat, 3, 4, flags, mode, part="base") == expected
    assert judge(filters, machine, 437, part="base") == errno.ENOSYS


def test_n013_other_ids_are_a_missing_right(machine: str) -> None:
    filters = build_filters(inet=False)
    user, group, unchanged = os.getuid(), os.getgid(), 0xFFFFFFFF
    for number in numbers(machine, (105, 146)):
        assert judge(filters, machine, number, user) is None
        assert judge(filters, machine, number, user + 1) == errno.EPERM
    for number in numbers(machine, (119, 149)):
        assert judge(filters, machine, number, unchanged, group, unchanged) is None
        assert judge(filters, machine, number, unchanged, group, group + 1) == errno.EPERM
    for number in numbers(machine, (260, 54)):
        assert judge(filters, machine, number, 3, 4, user, unchanged, part="base") is None
        assert judge(filters, machine, number, 3, 4, user, group + 1, part="base") == errno.EPERM
        assert judge(filters, machine, number, 3, 4, user + 1, group, part="base") == errno.EPERM
        assert judge(filters, machine, number, 3, 4, user, group, part="single_for_open_disk") == errno.EPERM


def test_s13_without_namespaces_only_oneself(machine: str) -> None:
    filters = build_filters(inet=False)
    for number in numbers(machine, (302, 261), (142, 118), (144, 119), (203, 122), (314, 274)):
        assert judge(filters, machine, number, 0, part="single_for_open_disk") is None
        assert judge(filters, machine, number, OWN_PROCESS, part="single_for_open_disk") is None
        assert judge(filters, machine, number, 4711, part="single_for_open_disk") == errno.EPERM
        assert judge(filters, machine, number, 4711, part="single") is None
    for number, everybody in zip(numbers(machine, (141, 140), (251, 30)), (2, 3), strict=True):
        for kind in range(everybody):
            assert judge(filters, machine, number, kind, 0, part="single_for_open_disk") is None
            assert judge(filters, machine, number, kind, OWN_PROCESS, part="single_for_open_disk") is None
            assert judge(filters, machine, number, kind, 4711, part="single_for_open_disk") == errno.EPERM
        assert judge(filters, machine, number, everybody, 0, part="single_for_open_disk") == errno.EPERM
        assert judge(filters, machine, number, everybody, OWN_PROCESS, part="single_for_open_disk") == errno.EPERM
    assert filters.single_for_open_disk.count(OWN_PROCESS.to_bytes(4, "little")) == 7, "one for each of these calls"


def test_s14_without_namespaces_nothing_shared(machine: str) -> None:
    filters = build_filters(inet=False)
    shared = numbers(machine, (29, 194), (30, 196), (31, 195), (64, 190), (65, 193), (66, 191), (220, 192))
    shared += numbers(machine, (68, 186), (69, 189), (70, 188), (71, 187), (240, 180), (241, 181))
    for number in shared:
        assert judge(filters, machine, number, 1, part="single_for_open_disk") == errno.EPERM
        assert judge(filters, machine, number, 1, part="single") is None


def test_terminals_are_judged_by_the_low_half(machine: str) -> None:
    filters = build_filters(inet=True)
    for request in (0x5412, 0x1_0000_5412, 0x541C):
        assert judge(filters, machine, IOCTL[machine], 0, request) == errno.EPERM
    assert judge(filters, machine, IOCTL[machine], 0, 0x5401) is None


def test_clone(machine: str) -> None:
    filters = build_filters(inet=True)
    assert judge(filters, machine, CLONE[machine], 0x11) is None
    assert judge(filters, machine, CLONE[machine], 0x3D0F00) is None  # a thread
    for flag in (0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000):
        assert judge(filters, machine, CLONE[machine], flag | 0x11) == errno.EPERM
        assert judge(filters, machine, CLONE[machine], flag | 0x11, part="base") is None  # the zygote's own
    assert judge(filters, machine, 435) == errno.ENOSYS


def test_an_unknown_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    with pytest.raises(LaunchError, match="riscv64"):
        build_filters(inet=True)
