"""The processes of one tree: found by descent, by session and group, and by a mark in their environment.

Descent is lost when a parent dies, session and group when a process creates its own; the mark survives both, unless a
program clears its environment.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

MARK_VARIABLE = "FERRULE_PROCESS"
COMMAND_CHARS = 80
"""Characters shown of a command line."""
_PF_FORKNOEXEC = 0x40
"""A flag in `/proc/PID/stat` (include/linux/sched.h)."""
_FLAGS = 5
_BUSY = (b"R", b"D")


class Process(msgspec.Struct, frozen=True):
    """One row of the process table. `started` (ticks since boot) distinguishes a reused pid."""

    pid: int
    parent: int
    group: int
    session: int
    started: int
    zombie: bool


def process_table() -> list[Process]:
    """Return every visible process."""
    return _read_proc() if sys.platform == "linux" else _read_ps()


def ticks_now() -> int:
    """Return the current time in the unit of `Process.started`."""
    if sys.platform != "linux":
        return 0
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


def command_of(pid: int) -> str:
    """Return a process's command line, shortened, or its name if it shows none; empty if it is gone."""
    line = _read(f"/proc/{pid}/cmdline").rstrip(b"\0").replace(b"\0", b" ") or _read(f"/proc/{pid}/comm").strip()
    text = line.decode("utf-8", "replace")
    return text if len(text) <= COMMAND_CHARS else text[: COMMAND_CHARS - 1] + "…"


def is_starting(pid: int) -> bool:
    """Return whether a process does not have its own name yet: it is busy between fork and exec, or inside exec, where
    the kernel has not laid out its command line. One that sleeps or has children is part of a script and keeps its
    parent's name."""
    stat = _read(f"/proc/{pid}/stat")
    if not stat:
        return False
    state, *numbers = stat[stat.rindex(b")") + 2 :].split()
    if state not in _BUSY:
        return False
    forked = int(numbers[_FLAGS]) & _PF_FORKNOEXEC
    return not _read(f"/proc/{pid}/cmdline") or (bool(forked) and not _read(f"/proc/{pid}/task/{pid}/children"))


class Tree:
    """A process and its descendants, watched from outside. `since` is `ticks_now()` from before its start."""

    def __init__(self, root: int, mark: str, since: int) -> None:
        self._root = root
        self._mark = f"{MARK_VARIABLE}={mark}\0".encode()
        self._since = since
        self._known: dict[int, int] = {}
        self.root_reaped = False

    def members(self) -> list[Process]:
        """Return the living processes of the tree, and reap its zombies that this process adopted."""
        table = {process.pid: process for process in process_table()}
        # While a group or a session has a member, the kernel does not reuse its number.
        number_reused = self.root_reaped and self._root in table
        self._known = {pid: started for pid, started in self._known.items() if _same(table.get(pid), started)}
        inside = set(self._known)
        for process in table.values():
            if (
                (process.pid == self._root and not self.root_reaped)
                or (self._root in (process.group, process.session) and not number_reused)
                or (process.pid not in inside and self._is_marked(process))
            ):
                inside.add(process.pid)
        self._add_descendants(inside, table)
        self._known = {pid: table[pid].started for pid in inside}
        self._reap_adopted(table)
        return [table[pid] for pid in inside if not table[pid].zombie]

    def signal(self, number: int) -> list[Process]:
        """Send a signal to every member that may be signalled; return those.

        The root's group gets it at once, the others after their parents: a shell that sees its child die first would
        go on to its next command.
        """
        members = sorted(self.members(), key=lambda process: (process.started, process.pid))
        group = [process for process in members if process.group == self._root]
        reached = group if group and _sent(os.killpg, self._root, number) else []
        rest = (process for process in members if process not in reached)
        return [*reached, *(process for process in rest if _sent(os.kill, process.pid, number))]

    def group_alive(self) -> bool:
        """Return whether the root's group still has a member. One system call."""
        try:
            os.killpg(self._root, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True

    def _is_marked(self, process: Process) -> bool:
        young = process.started >= self._since and not process.zombie
        return young and self._mark in _read(f"/proc/{process.pid}/environ")

    @staticmethod
    def _add_descendants(inside: set[int], table: dict[int, Process]) -> None:
        children: dict[int, list[int]] = {}
        for process in table.values():
            children.setdefault(process.parent, []).append(process.pid)
        waiting = list(inside)
        while waiting:
            for pid in children.get(waiting.pop(), ()):
                if pid not in inside:
                    inside.add(pid)
                    waiting.append(pid)

    def _reap_adopted(self, table: dict[int, Process]) -> None:
        for pid in self._known:
            if pid != self._root and table[pid].zombie and table[pid].parent == os.getpid():
                with suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)


def _same(process: Process | None, started: int) -> bool:
    return process is not None and process.started == started


def _sent(send: Callable[[int, int], None], target: int, number: int) -> bool:
    try:
        send(target, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:  # it exited meanwhile, or belongs to another user
        return b""


def _read_proc() -> list[Process]:
    table = []
    for name in os.listdir("/proc"):
        if name.isdigit() and (stat := _read(f"/proc/{name}/stat")):
            # The second field is the program name in parentheses, which may itself contain blanks and parentheses.
            fields = stat[stat.rindex(b")") + 2 :].split()
            parent, group, session = int(fields[1]), int(fields[2]), int(fields[3])
            table.append(Process(int(name), parent, group, session, int(fields[19]), fields[0] in b"ZX"))
    return table


def _read_ps() -> list[Process]:
    listing = subprocess.run(
        ["/bin/ps", "-A", "-o", "pid=,ppid=,pgid=,stat="], capture_output=True, text=True, check=True
    ).stdout
    rows = (line.split() for line in listing.splitlines())
    return [Process(int(pid), int(parent), int(group), 0, 0, "Z" in stat) for pid, parent, group, stat in rows]
