"""Follow what is mounted in the writable roots: no watch of a folder reports a mount."""

import os
import select
from collections.abc import Sequence

from ferrule.kernel_files import MOUNTS, Mount, mounts
from ferrule.sandbox.plan import Root, is_within


class MountTable:
    """The mounts on, above and below some roots. Close it."""

    def __init__(self, roots: Sequence[Root]) -> None:
        self._roots = tuple(root.path for root in roots)
        self._mounts: tuple[Mount, ...] = ()
        try:
            self._fd = os.open(MOUNTS, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:  # not Linux: nobody can tell
            self._fd = -1
            return
        self._poll = select.poll()
        self._poll.register(self._fd, select.POLLPRI)  # "changed", see proc(5)
        self._mounts = self._read()

    def current(self) -> tuple[Mount, ...]:
        """Return the mounts as they are now; the table is read again only if the kernel says that it changed."""
        if self._fd >= 0 and self._poll.poll(0):
            self._mounts = self._read()
        return self._mounts

    def close(self) -> None:
        """Stop listening."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _read(self) -> tuple[Mount, ...]:
        return tuple(mount for mount in mounts() if any(_touches(mount.point, root) for root in self._roots))


def _touches(point: str, root: str) -> bool:
    return is_within(point, root) or is_within(root, point)
