"""Look at the processes of `/proc`, and signal them. Standard library only."""
# ruff: noqa: PTH123 - `pathlib` is not imported

import os

PF_FORKNOEXEC = 0x40
"""A flag in `/proc/PID/stat` (include/linux/sched.h)."""


def signal_quietly(kill, pid: int, number: int) -> bool:  # type: ignore[no-untyped-def]  # `Callable` is in `typing`
    """Send a signal; False if nobody is there."""
    try:
        kill(pid, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def reap(flags: int) -> None:
    try:
        while os.waitpid(-1, flags)[0]:
            pass
    except ChildProcessError:
        pass


def name_of(pid: int) -> bytes:
    """Return the name of a living process; empty for others."""
    name, state, _ = status_of(pid)
    return b"" if state == b"Z" else name


def is_starting(pid: int) -> bool:
    """Tell whether a running process is between fork and exec, or inside exec, where it has no command line yet."""
    _, state, flags = status_of(pid)
    if state not in (b"R", b"D"):
        return False
    return not has_command_line(pid) or (bool(flags & PF_FORKNOEXEC) and not children(pid))


def has_command_line(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read(1) != b""
    except OSError:
        return True


def status_of(pid: int) -> tuple[bytes, bytes, int]:
    """Return name, state and flags of a process; empty if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            name, _, rest = file.read().partition(b"(")[2].rpartition(b")")
    except OSError:
        return b"", b"", 0
    fields = rest.split()
    return name, fields[0], int(fields[6])


def children(pid: int) -> list[int]:
    try:
        with open(f"/proc/{pid}/task/{pid}/children", "rb") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def descendants(pid: int) -> list[int]:
    found = children(pid)
    return found + [below for child in found for below in descendants(child)]
