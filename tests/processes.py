"""What tests ask of the machine's processes: who lives, whose children, how many descriptors are open."""

import asyncio
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ferrule.tools.tasks import IDLE_NAME

DEADLINE = 30.0
"""Seconds for what takes milliseconds, on a machine that is busy."""


def children() -> list[int]:
    """The child processes of this one, zombies too."""
    found: list[int] = []
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):  # another thread has ended since the listing
            found += map(int, (task / "children").read_text().split())
    return found


def children_of(pid: int) -> list[int]:
    """The children of a process, as its first thread has them; none if it is gone."""
    try:
        return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat[stat.rindex(")") + 2] not in "ZX"


def running(mark: str) -> list[int]:
    """The living processes with `mark` in their command line."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if mark.encode() in command and alive(int(entry.name)):
                found.append(int(entry.name))
    return found


class Held(NamedTuple):
    """What this process holds, each by what tells it from another of its kind."""

    children: frozenset[object]
    threads: frozenset[object]
    descriptors: frozenset[object]


def held() -> Held:
    threads = (thread for thread in threading.enumerate() if thread.name != IDLE_NAME)
    return Held(frozenset(children()), frozenset(threads), frozenset(_descriptors()))


def gained(before: Held) -> Held:
    """Return what this process holds and did not hold then. Servers that tests share may run on or end meanwhile."""
    return Held(*(has - had for had, has in zip(before, held(), strict=True)))


def _descriptors() -> list[tuple[int, str]]:
    if not Path("/proc/self/fd").exists():
        return []
    found = []
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # that of the listing itself
            found.append((int(name), os.readlink(f"/proc/self/fd/{name}")))
    return found


def eventually(condition: Callable[[], bool], seconds: float = DEADLINE) -> bool:
    """Ask again and again, blocking, until it is so or the time is over."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


async def until(condition: Callable[[], bool], seconds: float = DEADLINE) -> None:
    """Look again and again: of what other processes do there is no event to wait for. Fails after `seconds`."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110 - see above
            await asyncio.sleep(0.01)
