"""Follow what is mounted in the writable roots: no watch of a folder reports a mount."""

import os
import select
import threading
from collections.abc import Sequence
from functools import cache

from ferrule.kernel_files import MOUNTS, Mount, mounts
from ferrule.sandbox.plan import Root, is_within


class RootMounts:
    """The mounts on, above and below some roots."""

    def __init__(self, roots: Sequence[Root]) -> None:
        self._roots = tuple(root.path for root in roots)
        self._all: tuple[Mount, ...] = ()
        self._mounts: tuple[Mount, ...] = ()

    def current(self) -> tuple[Mount, ...]:
        """Return the mounts as they are now."""
        found = all_mounts()
        if found is not self._all:
            self._all = found
            self._mounts = tuple(mount for mount in found if any(_touches(mount.point, root) for root in self._roots))
        return self._mounts


def all_mounts() -> tuple[Mount, ...]:
    """Return everything that this process sees mounted; the same object until the kernel reports a change."""
    return _table(os.getpid()).current()


class _Table:
    """The table of one process: the kernel reports a change once to each open file, which a fork would share."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._changes = select.poll()
        self._mounts: tuple[Mount, ...] = ()
        try:
            self._changes.register(os.open(MOUNTS, os.O_RDONLY | os.O_CLOEXEC), select.POLLPRI)  # see proc(5)
        except OSError:  # not Linux: nobody can tell
            return
        self._mounts = tuple(mounts())

    def current(self) -> tuple[Mount, ...]:
        with self._lock:
            if self._changes.poll(0):
                self._mounts = tuple(mounts())
            return self._mounts


@cache
def _table(process: int) -> _Table:
    return _Table()


def _touches(point: str, root: str) -> bool:
    return is_within(point, root) or is_within(root, point)
