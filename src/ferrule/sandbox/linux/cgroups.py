"""Control groups: limits on memory, processes and processors that hold for all processes of a container together.

Version 2 where a folder above ours is delegated to us (a systemd user session), or version 1 as root. What works is
found out by doing it.
"""

import os
import re
import secrets
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path

import msgspec

from ferrule.kernel_files import Mount, mounts
from ferrule.locks import take_in_time, wait_in_time
from ferrule.sandbox.plan import is_within

NAMES = "ferrule-"
"""How the folders of our groups begin."""
_NAME = re.compile(rf"{NAMES}(\d+)-(\d+)-[0-9a-f]{{12}}")
"""The process that made a group, and when that was started."""
CONTROLLERS = ("memory", "pids", "cpu")
NEEDED = ("memory", "pids")
"""Without these a group is of no use."""
CPU_PERIOD = 100_000
"""Microseconds (Documentation/admin-guide/cgroup-v2.rst)."""
REMOVAL_SECONDS = 5.0
"""A killed process takes milliseconds to go, on a busy machine more."""
OLD_SECONDS = 60.0
"""A group that is empty for so long is not just being made."""
_OWN_GROUPS = "/proc/self/cgroup"
_PROBE_BYTES = 64 << 20
_PROBE = "echo 0 >&0 && cat /proc/self/cgroup"
_PROBE_SECONDS = 10


class Groups(msgspec.Struct, frozen=True):
    """Where groups can be made: a folder, in version 1 one for each controller."""

    version: int
    folders: tuple[tuple[str, str], ...]

    @property
    def title(self) -> str:
        return f"control groups, version {self.version}"


class Group:
    """A group for one start of a container. Its name says whose it is, for whoever finds it later."""

    def __init__(self, groups: Groups, cpus: float | None = None) -> None:
        name = f"{NAMES}{os.getpid()}-{_started(os.getpid())}-{secrets.token_hex(6)}"
        self._groups = groups
        self._cpus = cpus
        self._paths = {kind: Path(folder, name) for kind, folder in groups.folders if cpus or kind in NEEDED}

    def make(self, *, memory_bytes: int, max_processes: int) -> None:
        """Create it with these limits. Raises OSError."""
        for path in self.paths():
            path.mkdir()
        second = self._groups.version > 1
        memory, processes = (self._paths[kind] for kind in NEEDED)
        _write(memory / ("memory.max" if second else "memory.limit_in_bytes"), memory_bytes)
        with suppress(OSError):  # without swap there is nothing to limit
            _write(
                memory / ("memory.swap.max" if second else "memory.memsw.limit_in_bytes"), 0 if second else memory_bytes
            )
        _write(processes / "pids.max", max_processes)
        if self._cpus:
            quota = f"{self._cpus * CPU_PERIOD:.0f}"
            name, value = ("cpu.max", f"{quota} {CPU_PERIOD}") if second else ("cpu.cfs_quota_us", quota)
            _write(self._paths["cpu"] / name, value)

    def entrances(self, stack: ExitStack) -> list[int]:
        """Open the files by which a process enters; the stack closes them."""
        found = []
        for path in self.paths():
            found.append(os.open(path / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC))
            stack.callback(os.close, found[-1])
        return found

    def killed(self) -> int:
        """Count the processes that were ended because the memory was used up."""
        name = "memory.events" if self._groups.version > 1 else "memory.oom_control"
        with suppress(OSError):
            for line in (self._paths["memory"] / name).read_text().splitlines():
                if line.startswith("oom_kill "):
                    return int(line.split()[1])
        return 0

    def paths(self) -> list[Path]:
        """Return its folders, each once."""
        return sorted(set(self._paths.values()))

    async def remove(self) -> None:
        """Remove it once its last process is gone; a dying one stays in it for a moment."""
        await take_in_time(self.removed, REMOVAL_SECONDS)

    def removed(self) -> bool:
        """Remove it if no process is in it; return whether it is gone."""
        return not [path for path in self.paths() if not _removed(path)]


def remove_unheld(groups: Groups) -> bool:
    """Remove the groups of ours whose maker is gone: those of a killed predecessor. Returns False if there is one whose
    last process is still dying."""
    left = False
    for folder in sorted({folder for _, folder in groups.folders}):
        with suppress(OSError):
            for path in Path(folder).glob(f"{NAMES}*"):
                name = _NAME.fullmatch(path.name)
                if name is None:
                    continue  # somebody else's
                if _started(name[1]) != name[2]:
                    left |= not _removed(path)
                elif time.time() - path.stat().st_mtime > OLD_SECONDS:
                    _removed(path)
    return not left


@cache
def find_groups() -> Groups | str:
    """Return where groups can be made on this machine, or why they cannot. Blocking; tries it once."""
    reasons = []
    for groups in _candidates():
        try:
            _try(groups)
        except (OSError, subprocess.SubprocessError) as error:
            reasons.append(f"version {groups.version}: {getattr(error, 'strerror', None) or error}")
        else:
            return groups
    return "; ".join(dict.fromkeys(reasons)) or "no folder of them is ours, with limits on memory and processes"


def _try(groups: Groups) -> None:
    group = Group(groups, cpus=1)
    try:
        group.make(memory_bytes=_PROBE_BYTES, max_processes=10)
        for path in group.paths():
            fd = os.open(path / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)
            try:
                _enter(fd, path.name)
            finally:
                os.close(fd)
    finally:
        wait_in_time(group.removed, REMOVAL_SECONDS)


def _enter(fd: int, name: str) -> None:
    """Let a throw-away process enter the group of this name."""
    done = subprocess.run(
        ["/bin/sh", "-c", _PROBE], stdin=fd, capture_output=True, timeout=_PROBE_SECONDS, check=False, text=True
    )
    if name not in done.stdout:
        raise OSError(0, f"a process cannot enter a group ({done.stderr.strip() or 'it stayed where it was'})")


def _candidates() -> Iterator[Groups]:
    own = dict(_own())
    places = _mounted()
    if "" in own and "cgroup2" in places:
        top = Path(places["cgroup2"].point)
        here = _ours(places["cgroup2"], own[""])
        for folder in (here, *here.parents):
            if folder != top and top not in folder.parents:
                break
            if set(NEEDED) <= _words(folder / "cgroup.subtree_control"):
                yield Groups(2, tuple((kind, str(folder)) for kind in CONTROLLERS))
    if all(kind in own and kind in places for kind in CONTROLLERS):
        yield Groups(1, tuple((kind, str(_ours(places[kind], own[kind]))) for kind in CONTROLLERS))


def _own() -> Iterator[tuple[str, str]]:
    with suppress(OSError):
        for line in Path(_OWN_GROUPS).read_text().splitlines():
            _, kinds, path = line.split(":", 2)
            for kind in kinds.split(","):
                yield kind, path


def _mounted() -> dict[str, Mount]:
    """Return the mount of each controller of version 1, and of `cgroup2`."""
    found: dict[str, Mount] = {}
    for mount in mounts():
        if mount.kind == "cgroup2":
            found.setdefault("cgroup2", mount)
        elif mount.kind == "cgroup":
            for kind in os.path.basename(mount.point).split(","):
                found.setdefault(kind, mount)
    return found


def _ours(mount: Mount, path: str) -> Path:
    """Return our own group's folder, below a mount that may show only a part of all groups."""
    return Path(mount.point, os.path.relpath(path, mount.source) if is_within(path, mount.source) else path[1:])


def _words(path: Path) -> set[str]:
    try:
        return set(path.read_text().split())
    except OSError:
        return set()


def _started(pid: int | str) -> str:
    """Return when a process started, in the kernel's ticks, since its number may soon be another's; empty if there is
    none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return ""


def _write(path: Path, value: int | str) -> None:
    path.write_text(str(value))


def _removed(path: Path) -> bool:
    try:
        path.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
