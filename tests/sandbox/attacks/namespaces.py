"""Mounting and new namespaces."""

import ctypes
import os
import signal
import struct

from .common import Scene, attack, call, child, libc, raw


@attack
def mount_tmpfs(s: Scene) -> str:
    return call(libc.mount(b"t", s["ws"].encode(), b"tmpfs", 0, None))


@attack
def remount_writable(s: Scene) -> str:
    return call(libc.mount(None, b"/", None, ctypes.c_ulong(32 | 4096), None))


@attack
def bind_over(s: Scene) -> str:
    return call(libc.mount(s["ws"].encode(), s["out"].encode(), None, ctypes.c_ulong(4096), None))


@attack
def new_mount_api(s: Scene) -> str:
    raw(430, b"tmpfs", 0)
    return "OPEN"


@attack
def mount_setattr_writable(s: Scene) -> str:
    raw(442, -100, b"/", 0x8000, struct.pack("QQQQ", 0, 1, 0, 0), 32)
    return "OPEN"


@attack
def umount_git(s: Scene) -> str:
    return call(libc.umount2((s["ws"] + "/.git").encode(), 2))


@attack
def change_root(s: Scene) -> str:
    return call(libc.chroot(s["ws"].encode()))


@attack
def unshare_user(s: Scene) -> str:
    return child(lambda: call(libc.unshare(0x10000000)))


@attack
def unshare_mount(s: Scene) -> str:
    return child(lambda: call(libc.unshare(0x20000)))


@attack
def clone_user(s: Scene) -> str:
    def clone() -> None:
        pid = raw("clone", 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0)
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)

    return child(clone)


@attack
def clone3_user(s: Scene) -> str:
    def clone() -> None:
        pid = raw(435, struct.pack("8Q", 0x10000000, 0, 0, 0, signal.SIGCHLD, 0, 0, 0), 64)
        if pid == 0:
            os._exit(0)
        os.waitpid(pid, 0)

    return child(clone)


@attack
def join_host_namespace(s: Scene) -> str:
    fd = os.open(f"/proc/{s['victim_pid']}/ns/mnt", os.O_RDONLY)
    raw("setns", fd, 0)
    return "OPEN"
