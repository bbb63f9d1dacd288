"""Interfaces of the kernel that reach further than files."""

import ctypes
import errno
import mmap
import os
import struct

from .common import X86, Scene, attack, raw, write


@attack
def io_uring(s: Scene) -> str:
    raw(425, 1, ctypes.create_string_buffer(256))
    return "OPEN"


@attack
def keyctl(s: Scene) -> str:
    raw("keyctl", 0, -3, 0)
    return "OPEN"


@attack
def add_key(s: Scene) -> str:
    raw("add_key", b"user", b"evil", b"x", 1, -4)
    return "OPEN"


@attack
def bpf(s: Scene) -> str:
    raw("bpf", 0, bytes(64), 64)
    return "OPEN"


@attack
def userfaultfd(s: Scene) -> str:
    raw("userfaultfd", 1)
    return "OPEN"


@attack
def perf_open(s: Scene) -> str:
    raw("perf_event_open", struct.pack("II", 1, 112) + bytes(104), 0, -1, -1, 0)
    return "OPEN"


@attack
def open_handle(s: Scene) -> str:
    raw("open_by_handle_at", -100, struct.pack("Ii", 8, 1) + bytes(8), 0)
    return "OPEN"


@attack
def load_module(s: Scene) -> str:
    raw("init_module", b"", 0, b"")
    return "OPEN"


@attack
def kernel_log(s: Scene) -> str:
    raw("syslog", 3, ctypes.create_string_buffer(16), 16)
    return "OPEN"


@attack
def set_clock(s: Scene) -> str:
    raw("clock_settime", 0, struct.pack("qq", 0, 0))
    return "OPEN"


@attack
def i386_entry(s: Scene) -> str:
    """`int 0x80` reaches the other system call table: getpid is 20 there and must not work."""
    if not X86:
        return "not tried"
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(b"\x53\xb8\x14\x00\x00\x00\xcd\x80\x48\x98\x5b\xc3")
    function = ctypes.CFUNCTYPE(ctypes.c_long)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
    result = function()
    return "OPEN" if result > 0 else errno.errorcode.get(-result, str(result))


@attack
def x32_entry(s: Scene) -> str:
    if not X86:
        return "not tried"
    raw(0x40000000 + 39)
    return "OPEN"


@attack
def core_pattern(s: Scene) -> str:
    fd = os.open("/proc/sys/kernel/core_pattern", os.O_WRONLY)
    os.close(fd)
    return "OPEN"


@attack
def pid_max(s: Scene) -> str:
    return write("/proc/sys/kernel/pid_max", "100000")


@attack
def sysrq(s: Scene) -> str:
    os.close(os.open("/proc/sysrq-trigger", os.O_WRONLY))
    return "OPEN"


@attack
def cgroup_write(s: Scene) -> str:
    os.mkdir("/sys/fs/cgroup/ferrule-escape")
    return "OPEN"


@attack
def block_device(s: Scene) -> str:
    for name in ("vda", "sda", "nvme0n1"):
        if os.path.exists(f"/dev/{name}"):
            os.close(os.open(f"/dev/{name}", os.O_RDONLY))
            return "OPEN"
    return "none"


@attack
def make_device(s: Scene) -> str:
    os.mknod(s["ws"] + "/blk", 0o060600, os.makedev(254, 0))
    return "OPEN"


@attack
def write_dev(s: Scene) -> str:
    return write("/dev/evil")


@attack
def write_over_covers(s: Scene) -> str:
    return write("/dev/.scratch/x")


@attack
def fill_socket_cover(s: Scene) -> str:
    os.chmod("/dev/.nosock", 0o666)
    return "OPEN"


@attack
def shared_memory_leaks(s: Scene) -> str:
    """A file in /dev/shm is private; the test looks for it on the host."""
    write("/dev/shm/" + s["shared_memory"])
    return "private"
