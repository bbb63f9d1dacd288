"""Reaching other processes."""
# ruff: noqa: PTH123, SIM115

import ctypes
import os
import signal
import struct

from .common import Scene, attack, raw, write


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
