"""What this process holds of the machine: descriptors, processes, threads, mounts, files, memory. Linux only."""

import ctypes
import gc
import os
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ferrule.containers.place import RECORD, default_place
from ferrule.sandbox.linux.cgroups import NAMES, Groups, find_groups
from ferrule.sandbox.plan import PROTECTED_NAMES
from ferrule.tools.tasks import IDLE_NAME

SETTLE_SECONDS = 15.0
"""What ends, ends within this time: a server thread closes sockets, the kernel takes namespaces apart."""
OUR_ROOMS = ("ferrule.session", "ferrule.process", "ferrule.sandbox", "ferrule.mcp", "ferrule.model")
"""Modules whose objects live no longer than their session."""

_SMALL_DISK = re.compile(r"\S*/ferrule-soak-[^/]+/(session|batch)-")
HOME = "user/.ferrule"
"""FERRULE_HOME below the soak's folder."""
_LASTS = re.compile(r"(sessions|undo|gateway)(/|$)|unfinished$|sandbox(/(?![0-9a-f]{15}$)|$)")
"""What stays in it: conversations, which each round removes, what the gateway keeps, and what sandboxes make once; but
not their records of placeholders."""


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


def every_process() -> list[Process]:
    """All of the machine."""
    return [one for name in os.listdir("/proc") if name.isdigit() and (one := _process(int(name)))]


def families(every: Sequence[Process], heads: Set[int]) -> set[int]:
    """These processes with their descendants."""
    family = set(heads)
    while more := {one.pid for one in every if one.parent in family} - family:
        family |= more
    return family


def processes(root: Path, lasting: Set[int] = frozenset()) -> list[Process]:
    """Our descendants, and whoever works below `root` or sees our own /tmp, without ourselves and the families of
    `lasting`."""
    every = every_process()
    family, others = families(every, {os.getpid()}), families(every, lasting) | {os.getpid()}
    at_home, own_tmp = f"{root}/", own_temporary()
    return [
        one
        for one in every
        if one.pid not in others
        and (one.pid in family or f"{one.cwd}/".startswith(at_home) or (own_tmp and sees(one.pid, own_tmp)))
    ]


def sees(pid: int, name: str) -> bool:
    """Whether a process has a mount with this text in its line."""
    try:
        return name in Path(f"/proc/{pid}/mountinfo").read_text()
    except OSError:
        return False


@cache
def own_temporary() -> str | None:
    """The folder that stands for /tmp and /var/tmp here, as `scripts/soak` makes it: nobody else sees it."""
    found = re.search(r"\S+/ferrule-soak-\w+/tmp (?=/tmp )", Path("/proc/self/mountinfo").read_text())
    return found[0].strip().removesuffix("/tmp") if found else None


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
    """Everything in the temporary folders, and placeholders of the sandbox wherever a session works."""
    left = [str(path) for path in (root / "tmp").rglob("*")]
    if own_temporary():
        places = (path for folder in ("/tmp", "/var/tmp") for path in Path(folder).iterdir() if path != root)
        left += [str(one) for place in places for one in (place, *place.rglob("*")) if not _is_container(one)]
    guarded = (folder / name for folder in (Path("/tmp"), *root.iterdir()) for name in PROTECTED_NAMES)
    left += [str(path) for path in guarded if path.is_dir() and not _full(path)]
    place = default_place(str(root / HOME))
    left += [f"{one}" for one in place.glob(f"*/{RECORD}") if f"{root}/session-" in _text(one)]
    return Counter(left)


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _kept(root: Path) -> Counter[str]:
    """What FERRULE_HOME holds beside conversations and the gateway's store."""
    names = (str(path.relative_to(root / HOME)) for path in (root / HOME).rglob("*"))
    return Counter(name for name in names if not _LASTS.match(name))


def _full(folder: Path) -> bool:
    try:
        return bool(os.listdir(folder))
    except OSError:
        return False


def _is_container(path: Path) -> bool:
    """Whether it is a container's, which whoever runs it counts, or the folder of all."""
    return any(part.startswith("ferrule-0") for part in path.parts)


def _mounts() -> Counter[str]:
    """All mounts, without the small disks of this soak, which are taken away last, and of others."""
    lines = Path("/proc/self/mountinfo").read_text().splitlines()
    places = (" ".join(line.split()[4:5] + line.split(" - ")[1].split()[:2]) for line in lines)
    return Counter(place for place in places if not _SMALL_DISK.match(place))


def _groups() -> Counter[str]:
    """Control groups that this process has made for containers."""
    found = find_groups()
    folders = found.folders if isinstance(found, Groups) else ()
    return Counter(path.name for _, folder in folders for path in Path(folder).glob(f"{NAMES}{os.getpid()}-*"))


LASTING_PROGRAMS: set[int] = set()
"""Heads of the families that whoever started them counts."""

_COUNTERS: dict[str, Callable[[Path], Counter[str]]] = {
    "process": lambda root: Counter(str(process) for process in processes(root, LASTING_PROGRAMS)),
    "group": lambda root: _groups(),
    "file": _files,
    "kept file": _kept,
    "mount": lambda root: _mounts(),
    "descriptor": lambda root: _descriptors(),
    "thread": lambda root: _threads(),
    "object": lambda root: _objects(),
}
ALL = tuple(_COUNTERS)
LASTING = ("process", "file", "mount", "group")
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
