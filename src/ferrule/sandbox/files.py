"""Write files from the agent's own process, for patches and editors, only where a `ConfinementPlan` allows.

A path is resolved first, then walked from a root's descriptor, one component at a time, none of them a link. So a link
placed in between, or a replaced root, leads nowhere. Reading is not confined.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import FileIO

from ferrule.kernel_files import open_stored
from ferrule.patch.files import PlainFiles
from ferrule.sandbox.boundary import Boundary, boundary_of
from ferrule.sandbox.plan import ConfinementPlan, is_within

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class ConfinedFiles(PlainFiles):
    """A `FileLayer` that writes only inside the roots of `plan`, and raises `PermissionError` elsewhere.

    The roots are opened at once, so they stay the same folders; `boundary` is asked before each write. Close it.
    """

    def __init__(
        self, plan: ConfinementPlan, boundary: Callable[[], Boundary] | None = None, *, fsync: bool = False
    ) -> None:
        super().__init__(fsync=fsync)
        self._boundary = boundary or (lambda: boundary_of(plan))
        self._roots: list[tuple[str, int]] = []
        for root in plan.roots:  # outer ones first
            if not any(is_within(root.path, outer) for outer, _ in self._roots):
                self._roots.append((root.path, os.open(root.path, _FOLDER)))

    def read(self, path: str) -> bytes:
        """See `PlainFiles.read`; refuses the kernel's own file systems."""
        with FileIO(open_stored(path, os.O_RDONLY | os.O_CLOEXEC, _refuse_folder)) as file:
            return file.readall()

    def close(self) -> None:
        """Close the roots; every later write is refused."""
        roots, self._roots = self._roots, []
        for _, fd in roots:
            os.close(fd)

    @contextmanager
    def at(self, path: str) -> Iterator[tuple[str, int | None]]:
        """See `PlainFiles.at`; reaches the folder from its root without following a link."""
        above, name = os.path.split(path)
        folder = os.path.realpath(above)
        if reason := self._boundary().refusal(os.path.join(folder, name)):
            raise _refused(reason, path)
        for root, fd in self._roots:
            if is_within(folder, root):
                last = _walk(fd, folder[len(root) :].strip("/"))
                try:
                    yield name, last
                finally:
                    os.close(last)
                return
        raise _refused("outside of the folders that may be written", path)


def _refuse_folder(mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))


def _walk(root: int, below: str) -> int:
    """Open the folder `below` a root's descriptor."""
    current = os.dup(root)
    for part in filter(None, below.split("/")):
        try:
            following = os.open(part, _FOLDER, dir_fd=current)
        finally:
            os.close(current)
        current = following
    return current


def _refused(reason: str, path: str) -> PermissionError:
    return PermissionError(errno.EACCES, reason, path)
