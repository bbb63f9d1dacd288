"""What this process holds of the machine: descriptors, processes, threads, mounts, files, memory. Linux only."""

import ctypes
import gc
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from ferrule.sandbox.plan import PROTECTED_NAMES
from ferrule.tools.tasks import IDLE_NAME

SETTLE_SECONDS = 15.0
"""What ends, ends within this time: a server thread closes sockets, the kernel takes namespaces apart."""
OUR_ROOMS = ("ferrule.session", "ferrule.process", "ferrule.sandbox", "ferrule.mcp", "ferrule.model")
"""Modules whose objects live no longer than their session."""

_SMALL_DISK = re.compile(r"\S*/ferrule-soak-[^/]+/session-")
_RECORD = re.compile("[0-9a-f]{15}")
"""The sandbox's record of placeholders: it stands while there are any. Its other files stay."""


@dataclass(frozen=True, slots=True)
class Process:
    """A living process or zombie."""

    pid: int
    parent: int
    state: str
    command: str
    cwd: str

    def __str__(self) -> str:
        return f"{self.pid} ({self.state}) {self.command[:150]} in {self.cwd or '?'}"


def processes(root: Path) -> list[Process]:
    """Our descendants, and whoever works below `root`, without ourselves."""
    every = [one for name in os.listdir("/proc") if name.isdigit() and (one := _process(int(name)))]
    family = {os.getpid()}
    while more := {one.pid for one in every if one.parent in family} - family:
        family |= more
    at_home = f"{root}/"
    return [one for one in every if one.pid != os.getpid() and (one.pid in family or f"{one.cwd}/".startswith(at_home))]


def _process(pid: int) -> Process | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
        command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return None
    name, fields = stat[stat.index("(") : stat.rindex(")") + 1], stat[stat.rindex(")") + 2 :].split()
    return Process(pid, int(fields[1]), fields[0], command or name, _link(f"/proc/{pid}/cwd"))


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""


def _descriptors() -> Counter[str]:
    """What is open, by kind: the number of a socket or pipe says nothing."""
    links = (_link(f"/proc/self/fd/{name}") for name in os.listdir("/proc/self/fd"))
    return Counter(link.partition(":[")[0] for link in links if link and not link.startswith("/proc/"))


def _threads() -> Counter[str]:
    """Threads by name, without the loop's executor, which keeps a bounded number, and those that wait for work and end
    soon."""
    names = (thread.name for thread in threading.enumerate())
    return Counter(name for name in names if not name.startswith("asyncio_") and name != IDLE_NAME)


def _objects() -> Counter[str]:
    gc.collect()
    kinds = (type(entry) for entry in gc.get_objects())
    names = (f"{kind.__module__}.{kind.__qualname__}" for kind in kinds)  # a module need not be a text
    return Counter(name for name in names if name.startswith(OUR_ROOMS))


def _files(root: Path) -> Counter[str]:
    """Everything below the temporary folder, and placeholders of the sandbox wherever a session works."""
    left = [str(path) for path in (root / "tmp").rglob("*")]
    guarded = (folder / name for folder in (Path("/tmp"), *root.iterdir()) for name in PROTECTED_NAMES)
    left += [str(path) for path in guarded if path.is_dir() and not _full(path)]
    left += [str(path) for path in root.glob("home/sandbox/*") if _RECORD.fullmatch(path.name)]
    return Counter(left)


def _full(folder: Path) -> bool:
    try:
        return bool(os.listdir(folder))
    except OSError:
        return False


def _mounts() -> Counter[str]:
    """All mounts, without the small disks of this soak, which are taken away last, and of others."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    places = (" ".join(line.split()[4:5] + line.split(" - ")[1].split()[:2]) for line in lines)
    return Counter(place for place in places if not _SMALL_DISK.match(place))


_COUNTERS: dict[str, Callable[[Path], Counter[str]]] = {
    "process": lambda root: Counter(str(process) for process in processes(root)),
    "file": _files,
    "mount": lambda root: _mounts(),
    "descriptor": lambda root: _descriptors(),
    "thread": lambda root: _threads(),
    "object": lambda root: _objects(),
}
ALL = tuple(_COUNTERS)
LASTING = ("process", "file", "mount")
"""What outlives this process, so that even the first session must not leave it."""


@dataclass(frozen=True, slots=True)
class Census:
    """One look at everything that is counted exactly."""

    counts: dict[str, Counter[str]]

    @classmethod
    def take(cls, root: Path, kinds: Sequence[str] = ALL) -> "Census":
        """Look now."""
        return cls({kind: _COUNTERS[kind](root) for kind in kinds})

    def leaks(self, before: "Census") -> list[str]:
        """What is more than before, a line each."""
        return [
            f"{kind} leaked: {number} x {name}"
            for kind, counter in self.counts.items()
            for name, number in sorted((counter - before.counts[kind]).items())
        ]


def settled_leaks(look: Callable[[], Census], before: Census, seconds: float = SETTLE_SECONDS) -> list[str]:
    """The leaks that stay although time was given. Blocks; call it off the loop."""
    deadline = time.monotonic() + seconds
    while leaks := look().leaks(before):
        if time.monotonic() > deadline:
            return leaks
        time.sleep(0.2)
    return []


def resident_bytes() -> int:
    """Memory of this process after what can be given back has been given back."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def growth_per_session(samples: list[tuple[int, int]]) -> float:
    """Bytes that each session of the later half left: from (sessions so far, resident bytes), the middle of the slopes
    between all pairs, which one outlier does not move."""
    half = samples[len(samples) // 2 :]
    slopes = sorted(
        (after[1] - before[1]) / (after[0] - before[0])
        for position, before in enumerate(half)
        for after in half[position + 1 :]
    )
    return slopes[len(slopes) // 2] if slopes else 0.0
