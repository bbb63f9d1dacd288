"""What tools that read files do not read: file systems of the kernel, which show what the agent's own process holds.

`/proc/self/environ` has the keys that commands must not see, `/proc/self/fd` the files that we have open. A command
that looks there sees itself, so it may.
"""

import os
from collections.abc import Iterator
from pathlib import Path

from ferrule.lookup import steps

_TYPES = """
    proc sysfs cgroup cgroup2 debugfs tracefs securityfs selinuxfs smackfs bpf configfs efivarfs pstore mqueue devpts
    fusectl binfmt_misc nsfs hugetlbfs rpc_pipefs autofs
"""
KERNEL_TYPES = frozenset(_TYPES.split())
"""Types of file systems that hold no files of people (Documentation/filesystems of the kernel)."""
MOUNTS = "/proc/self/mountinfo"


class KernelFileError(OSError):
    """The path leads to a file system of the kernel, or through one."""


def refuse_kernel_files(path: str, *, below: bool = False) -> None:
    """Raise `KernelFileError` unless every step of the absolute path, links followed, lies on an ordinary file system.

    `below`: what is under it will be read, too, so that none of these may be mounted there.
    """
    mounts = dict(_kernel_mounts())
    devices = set(mounts.values())
    for step in steps(path):
        try:
            device = os.lstat(step).st_dev
        except (OSError, ValueError):
            continue
        if device in devices:
            raise KernelFileError(f"{step} lies on a file system of the kernel, which is read by commands only")
    if below:
        real = os.path.realpath(path).rstrip("/")
        for mount in mounts:
            if mount.startswith(f"{real}/"):
                raise KernelFileError(f"it holds {mount}, a file system of the kernel: name a folder below it")


def _kernel_mounts() -> Iterator[tuple[str, int]]:
    """Mount point and device of each (proc(5), mountinfo)."""
    try:
        lines = Path(MOUNTS).read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:  # not Linux
        return
    for line in lines:
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        if after.split(" ")[0] in KERNEL_TYPES:
            major, minor = map(int, fields[2].split(":"))
            yield fields[4], os.makedev(major, minor)
