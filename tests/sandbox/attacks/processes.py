"""Reaching other processes."""
# ruff: noqa: PTH123, SIM115

import ctypes
import os
import resource
import signal
import struct

from .common import X86, Scene, attack, call, libc, raw, write


@attack
def proc_root_victim(s: Scene) -> str:
    return write(f"/proc/{s['victim_pid']}/root{s['out']}/viaproc")


@attack
def proc_root_init(s: Scene) -> str:
    return write(f"/proc/1/root{s['out']}/viaproc1")


@attack
def proc_cwd_init(s: Scene) -> str:
    return write(f"/proc/1/cwd/../{os.path.basename(s['out'])}/viacwd")


@attack
def proc_mem_victim(s: Scene) -> str:
    with open(f"/proc/{s['victim_pid']}/mem", "r+b"):
        return "OPEN"


@attack
def proc_mem_init(s: Scene) -> str:
    with open("/proc/1/mem", "r+b"):
        return "OPEN"


@attack
def proc_fd_init(s: Scene) -> str:
    names = os.listdir("/proc/1/fd")
    return f"OPEN {[os.readlink(f'/proc/1/fd/{name}') for name in names]}"


@attack
def proc_environ_victim(s: Scene) -> str:
    """B137: what other processes have in their environment."""
    return "OPEN" if b"SECRET" in open(f"/proc/{s['victim_pid']}/environ", "rb").read() else "other"


@attack
def proc_environ_agent(s: Scene) -> str:
    return "OPEN" if b"SECRET" in open(f"/proc/{s['agent_pid']}/environ", "rb").read() else "other"


@attack
def environ_of_any(s: Scene) -> str:
    """Whatever is visible, nothing visible may hold the secret."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                content = open(f"/proc/{name}/environ", "rb").read()
            except OSError:
                continue
            if b"SECRET" in content:
                return "OPEN"
    return "none"


@attack
def ptrace_victim(s: Scene) -> str:
    raw("ptrace", 16, s["victim_pid"], 0, 0)
    return "OPEN"


@attack
def vm_readv_victim(s: Scene) -> str:
    buffer = ctypes.create_string_buffer(8)
    local = struct.pack("PN", ctypes.addressof(buffer), 8)
    raw("process_vm_readv", s["victim_pid"], local, 1, local, 1, 0)
    return "OPEN"


@attack
def kill_victim(s: Scene) -> str:
    os.kill(s["victim_pid"], signal.SIGTERM)
    return "OPEN"


@attack
def kill_agent(s: Scene) -> str:
    os.kill(s["agent_pid"], 0)
    return "OPEN"


@attack
def kill_init(s: Scene) -> str:
    """The kernel ignores it, or the domain does not reach it."""
    os.kill(1, signal.SIGKILL)
    return "ignored"


@attack
def pidfd_victim(s: Scene) -> str:
    fd = os.pidfd_open(s["victim_pid"])
    signal.pidfd_send_signal(fd, signal.SIGTERM)
    return "OPEN"


@attack
def s13_limit_victim(s: Scene) -> str:
    resource.prlimit(s["victim_pid"], resource.RLIMIT_CORE, (0, 0))
    return "OPEN"


@attack
def s13_renice_victim(s: Scene) -> str:
    os.setpriority(os.PRIO_PROCESS, s["victim_pid"], 5)
    return "OPEN"


@attack
def s13_renice_user(s: Scene) -> str:
    """Harmless here, where the namespace bounds it; the victim's priority tells."""
    os.setpriority(os.PRIO_USER, os.getuid(), os.getpriority(os.PRIO_PROCESS, 0))
    return "own namespace"


@attack
def s13_pin_victim(s: Scene) -> str:
    os.sched_setaffinity(s["victim_pid"], {0})
    return "OPEN"


@attack
def s13_batch_victim(s: Scene) -> str:
    os.sched_setscheduler(s["victim_pid"], os.SCHED_BATCH, os.sched_param(0))
    return "OPEN"


@attack
def s13_attributes_of_victim(s: Scene) -> str:
    raw(314 if X86 else 274, s["victim_pid"], struct.pack("IIQiIQQQ", 48, 3, 0, 5, 0, 0, 0, 0), 0)
    return "OPEN"


@attack
def s13_ioprio_of_victim(s: Scene) -> str:
    raw(251 if X86 else 30, 1, s["victim_pid"], 3 << 13)
    return "OPEN"


@attack
def s14_shared_memory(s: Scene) -> str:
    libc.shmat.restype = ctypes.c_void_p
    address = libc.shmat(s["shared_segment"], None, 0)
    if address == ctypes.c_void_p(-1).value:
        return call(-1)
    ctypes.memmove(address, b"pwned", 5)
    return "OPEN"


@attack
def s14_semaphore(s: Scene) -> str:
    return call(libc.semctl(s["semaphore"], 0, 16, 7))


@attack
def s14_message_queue(s: Scene) -> str:
    return call(libc.msgctl(s["message_queue"], 0, None))


@attack
def s14_posix_queue(s: Scene) -> str:
    return call(ctypes.CDLL("librt.so.1", use_errno=True).mq_open(s["posix_queue"].encode(), os.O_RDWR))


@attack
def n013_other_user(s: Scene) -> str:
    os.setuid(os.getuid() + 1)
    return "OPEN"
