"""Terminals, inherited descriptors, locks and floods of processes."""
# ruff: noqa: PTH123, SIM105

import ctypes
import errno
import fcntl
import os
import signal
import termios

from .common import Scene, attack, call, libc


@attack
def inherited_descriptors(s: Scene) -> str:
    """B137: nothing but the three streams."""
    own = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            own.add((int(name), os.readlink(f"/proc/self/fd/{name}")))
        except OSError:
            pass  # the descriptor of the listing itself
    more = {fd: place for fd, place in own if fd > 2}
    return f"OPEN {more}" if more else "none"


@attack
def open_host_terminal(s: Scene) -> str:
    os.close(os.open(s["host_pty"], os.O_RDWR | os.O_NOCTTY))
    return "OPEN"


@attack
def tiocsti(s: Scene) -> str:
    fd = os.open(s.get("own_tty", "/dev/ptmx"), os.O_RDWR | os.O_NOCTTY)
    fcntl.ioctl(fd, termios.TIOCSTI, b"x")
    return "OPEN"


@attack
def tiocsti_high_bits(s: Scene) -> str:
    fd = os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY)
    byte = ctypes.create_string_buffer(b"x")
    return call(libc.ioctl(fd, ctypes.c_ulong(0x1_0000_0000 | termios.TIOCSTI), byte))


@attack
def lock_for_reading(s: Scene) -> str:
    """Known to be possible: a lock on a file that can be read."""
    with open(s["victim"]) as file:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return "OPEN"


@attack
def fork_bomb(s: Scene) -> str:
    if not s["process_bound"]:
        return "not tried"
    pids = []
    try:
        for _ in range(s["process_bound"] + 100):
            pid = os.fork()
            if pid == 0:
                signal.pause()
            pids.append(pid)
    except OSError as error:
        return errno.errorcode[error.errno or 0]
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        for pid in pids:
            os.waitpid(pid, 0)
    return "OPEN"
