"""Watch what a container uses, where the kernel does not bound it: memory without control groups, and disk space.

Part of the holder (`mother.py`): standard library only.
"""
# ruff: noqa: PTH123 - `pathlib` is not imported

import os
import time

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
MEMORY_LINES = (b"RssAnon:", b"RssShmem:")
SHARE_LINES = (b"Pss_Anon:", b"Pss_Shmem:")


class Watch:
    """The limits of one container. `memory_bytes` is 0 where control groups bound the memory."""

    def __init__(self, memory_bytes: int, disk_bytes: int, folders: list[bytes]) -> None:
        self.memory_bytes, self.disk_bytes, self.folders = memory_bytes, disk_bytes, folders
        self.most = (disk_bytes, MOST_ENTRIES)
        self.next_look = 0.0

    def too_large(self, inits: list[int]) -> int | None:
        """Return the largest process if all of them together use too much memory."""
        if not self.memory_bytes:
            return None
        sizes = {pid: memory_of(pid) for init in inits for pid in descendants(init)}
        if sum(sizes.values()) <= self.memory_bytes:
            return None
        # Pages that forks still share were counted for each of them. Counting them once takes longer.
        sizes = {pid: share_of(pid, size) for pid, size in sizes.items()}
        if sum(sizes.values()) <= self.memory_bytes:
            return None
        return max(sizes, key=lambda pid: sizes[pid])

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


def memory_of(pid: int) -> int:
    """Return the bytes that would be free if the process ended."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            return sum(int(line.split()[1]) * KIBIBYTE for line in file if line.startswith(MEMORY_LINES))
    except (OSError, ValueError):
        return 0


def share_of(pid: int, size: int) -> int:
    """Return the bytes of a process, each page divided among those that share it; `size` if the kernel does not say."""
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb") as file:
            return sum(int(line.split()[1]) * KIBIBYTE for line in file if line.startswith(SHARE_LINES))
    except (OSError, ValueError):
        return size


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
