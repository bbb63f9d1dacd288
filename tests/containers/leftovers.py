"""What containers have on a machine: processes, mounts, control groups, descriptors, folders."""

import os
from pathlib import Path

import msgspec

from ferrule.kernel_files import mounts
from ferrule.sandbox.linux.cgroups import NAMES, Groups, find_groups


class Leftovers(msgspec.Struct, frozen=True):
    """Counts of what is there now; `memory` in KiB, of this process."""

    processes: int
    mounts: int
    groups: int
    descriptors: int
    folders: int
    memory: int

    @property
    def counts(self) -> tuple[int, ...]:
        """All that has to be as it was before."""
        return msgspec.structs.astuple(self)[:-1]


def leftovers(place: Path, roots: set[int]) -> Leftovers:
    """Count what is on the machine for the containers in a place. `roots`: processes whose descendants are ours, with
    those that have lost their parent but see the place."""
    groups = find_groups()
    folders = {folder for _, folder in groups.folders} if isinstance(groups, Groups) else set()
    return Leftovers(
        processes=len(ours(place, roots)),
        mounts=sum(str(place) in mount.source for mount in mounts()),
        groups=sum(len(list(Path(folder).glob(f"{NAMES}{pid}-*"))) for folder in folders for pid in roots),
        descriptors=len(os.listdir("/proc/self/fd")),
        folders=len(list(place.iterdir())) if place.exists() else 0,
        memory=memory(),
    )


def ours(place: Path, roots: set[int]) -> list[int]:
    """List the processes below the roots, and those that see the place mounted."""
    parents, found = _parents(), []
    for pid in parents:
        above = pid
        while above in parents and above not in roots:
            above = parents[above]
        if (above in roots and pid not in roots) or _sees(pid, place):
            found.append(pid)
    return found


def memory() -> int:
    """Return the memory of this process in KiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1])
    return 0


def _parents() -> dict[int, int]:
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            found[int(entry.name)] = int(fields[1])
    return found


def _sees(pid: int, place: Path) -> bool:
    try:
        return f"{place}/" in Path(f"/proc/{pid}/mountinfo").read_text()
    except OSError:
        return False
