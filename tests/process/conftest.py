import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from ferrule.process.environment import child_environment
from ferrule.process.plain import PlainLauncher
from ferrule.protocol.environment_policy import ShellEnvironmentPolicy

DEADLINE = 10.0


def children() -> list[int]:
    """The child processes of this one, zombies too."""
    return [int(pid) for task in Path("/proc/self/task").iterdir() for pid in (task / "children").read_text().split()]


def alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat[stat.rindex(")") + 2] not in "ZX"


def open_fds() -> int:
    return len(os.listdir("/proc/self/fd"))


def eventually(condition: Callable[[], bool], seconds: float = DEADLINE) -> bool:
    """Ask again and again, blocking, until it is so or the time is over."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """No test leaves a child, a zombie or a thread."""
    threads = threading.active_count()
    yield
    assert children() == []
    assert eventually(lambda: threading.active_count() == threads)


@pytest.fixture
def launcher() -> PlainLauncher:
    return PlainLauncher()


@pytest.fixture
def env() -> Mapping[str, str]:
    return child_environment(ShellEnvironmentPolicy(), os.environ).variables
