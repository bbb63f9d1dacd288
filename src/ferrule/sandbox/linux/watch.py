"""Watch what a container uses, where the kernel does not bound it: memory without control groups, and disk space.

Part of the holder (`mother.py`): standard library only.
"""
# ruff: noqa: PTH123 - `pathlib` is not imported

import os
import time

from . import kernel
from .processes import descendants

TICK = 200
"""Milliseconds between two looks at the memory while commands run."""
DISK_SECONDS = 1.0
"""Between two looks at the disk."""
DISK_SHARE = 20
"""A look at the disk is followed by a pause of so many times its own length."""
MOST_ENTRIES = 1_000_000
"""Files and folders of one container: more fill the table of inodes, which all users of the disk share."""
SECTOR = 512
KIBIBYTE = 1024
IPC_RMID = 0


class Watch:
    """The limits of one container. `grouped`: a control group bounds the memory."""

    def __init__(self, memory_bytes: int, grouped: bool, disk_bytes: int, folders: list[bytes]) -> None:
        self.memory_bytes, self.grouped, self.disk_bytes, self.folders = memory_bytes, grouped, disk_bytes, folders
        self.most = (disk_bytes, MOST_ENTRIES)
        self.next_look = 0.0

    def too_large(self, inits: list[int]) -> int | None:
        """Return the largest process if all of them together use too much memory."""
        if self.grouped:
            return None
        sizes = {pid: memory_of(pid) for init in inits for pid in descendants(init)}
        if self.fits(sizes):
            return None
        # Pages that forks still share were counted for each of them. Counting them once takes longer.
        sizes = {pid: share_of(pid, size) for pid, size in sizes.items()}
        return None if self.fits(sizes) or not sizes else max(sizes, key=lambda pid: sum(sizes[pid]))

    def fits(self, sizes: dict[int, tuple[int, int]]) -> bool:
        """Tell whether processes of these sizes may go on. Of shared memory the larger account counts: what they have
        touched, or what System V segments hold."""
        shared = sum(size for _, size in sizes.values())
        held = sum(size for _, size, _ in segments())
        return sum(size for size, _ in sizes.values()) + max(shared, held) <= self.memory_bytes

    def disk_used_up(self) -> bool:
        """Tell whether the files have grown beyond the limit, or further beyond it since the last time. A command that
        removes some may run."""
        if time.monotonic() < self.next_look:
            return False
        before = time.process_time()
        used = disk_use(self.folders)
        spent = time.process_time() - before  # on a busy machine the clock would tell of others' work
        self.next_look = time.monotonic() + max(DISK_SECONDS, spent * DISK_SHARE)
        over = any(part > bound for part, bound in zip(used, self.most, strict=True))
        self.most = (max(used[0], self.disk_bytes), max(used[1], MOST_ENTRIES))
        return over


def end_segments(bound: int) -> None:
    """Remove the System V segments that no process has any more if they hold more than `bound`: they stay when their
    makers go, and nothing could be ended for them."""
    left = [(number, size) for number, size, users in segments() if not users]
    if sum(size for _, size in left) > bound:
        for number, _ in left:
            kernel.libc.shmctl(number, IPC_RMID, None)


def memory_of(pid: int) -> tuple[int, int]:
    """Return the bytes that would be free if the process ended: its own, and those that it may share."""
    return bytes_in(f"/proc/{pid}/status", b"RssAnon:", b"RssShmem:") or (0, 0)


def share_of(pid: int, size: tuple[int, int]) -> tuple[int, int]:
    """Return the bytes of a process, each page divided among those that share it; `size` if the kernel does not say."""
    return bytes_in(f"/proc/{pid}/smaps_rollup", b"Pss_Anon:", b"Pss_Shmem:") or size


def bytes_in(path: str, *names: bytes) -> tuple[int, int] | None:
    found = dict.fromkeys(names, 0)
    try:
        with open(path, "rb") as file:
            for line in file:
                if line.startswith(names):
                    name, number = line.split()[:2]
                    found[name] = int(number) * KIBIBYTE
    except (OSError, ValueError):
        return None
    own, shared = found.values()
    return own, shared


def segments() -> list[tuple[int, int, int]]:
    """List the System V segments of shared memory: number, bytes that they hold, processes that have them."""
    try:
        with open("/proc/sysvipc/shm", "rb") as file:
            rows = [line.split() for line in file][1:]
    except OSError:
        return []  # a kernel without them
    return [(int(row[1]), int(row[14]) + int(row[15]), int(row[6])) for row in rows]


def disk_use(folders: list[bytes]) -> tuple[int, int]:
    """Return the bytes on disk and the number of entries below some folders. What lies too deep to be counted counts as
    too much."""
    used = entries = 0
    paths = list(folders)
    while paths and entries <= MOST_ENTRIES:
        path = paths.pop()
        try:
            with os.scandir(path) as found:
                for entry in found:
                    entries += 1
                    if entry.is_dir(follow_symlinks=False):
                        paths.append(entry.path)
                    status = entry.stat(follow_symlinks=False)
                    used += status.st_blocks * SECTOR // max(status.st_nlink, 1)
        except FileNotFoundError:
            continue  # removed meanwhile
        except OSError:
            return used, MOST_ENTRIES + 1
    return used, entries
