"""What every attack needs. Standard library only, like all of this folder: it runs inside, under any Python."""
# ruff: noqa: PTH123, BLE001

import ctypes
import errno
import os
from collections.abc import Callable
from typing import Any

libc = ctypes.CDLL(None, use_errno=True)
X86 = os.uname().machine == "x86_64"
NUMBERS = {  # x86-64, aarch64
    "clone": (56, 220), "mount": (165, 40), "ptrace": (101, 117), "keyctl": (250, 219), "bpf": (321, 280),
    "userfaultfd": (323, 282), "perf_event_open": (298, 241), "open_by_handle_at": (304, 265), "execveat": (322, 281),
    "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "unshare": (272, 97), "setns": (308, 268),
    "chroot": (161, 51), "pivot_root": (155, 41), "kexec_load": (246, 104), "init_module": (175, 105),
    "syslog": (103, 116), "add_key": (248, 217), "clock_settime": (227, 112),
}  # fmt: skip
Scene = dict[str, Any]
ATTACKS: dict[str, Callable[[Scene], str]] = {}


def attack(function: Callable[[Scene], str]) -> Callable[[Scene], str]:
    ATTACKS[function.__name__] = function
    return function


def raw(name: str | int, *arguments: int | bytes | ctypes.Array[ctypes.c_char]) -> int:
    number = NUMBERS[name][0 if X86 else 1] if isinstance(name, str) else name
    result = libc.syscall(ctypes.c_long(number), *(ctypes.c_long(a) if isinstance(a, int) else a for a in arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(result)


def call(result: int) -> str:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return "OPEN"


def write(path: str, text: str = "pwned") -> str:
    with open(path, "w") as file:
        file.write(text)
    return "OPEN"


def child(function: Callable[[], str | None]) -> str:
    """Run in a fork, so that success leaves the other attacks alone."""
    read, wrote = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            outcome = function() or "OPEN"
        except OSError as error:
            outcome = errno.errorcode.get(error.errno or 0, str(error))
        except BaseException as error:
            outcome = type(error).__name__
        os.write(wrote, str(outcome).encode())
        os._exit(0)
    os.close(wrote)
    with os.fdopen(read) as file:
        outcome = file.read()
    os.waitpid(pid, 0)
    return outcome
