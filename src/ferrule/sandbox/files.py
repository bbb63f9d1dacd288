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

from ferrule.kernel_files import open_stored, refuse_hidden
from ferrule.patch.files import Entry, PlainFiles
from ferrule.sandbox.boundary import PROTECTED, Boundary, boundary_of
from ferrule.sandbox.plan import ConfinementPlan, is_within

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class ConfinedFiles(PlainFiles):
    """A `FileLayer` that writes only inside the roots of `plan`, and raises `PermissionError` elsewhere.

    The roots are opened at once, so they stay the same folders; `boundary` is asked before each write. Close it.
    """

    def __init__(
        self,
        plan: ConfinementPlan,
        boundary: Callable[[], Boundary] | None = None,
        *,
        fsync: bool = False,
        shown: tuple[str, ...] | None = None,
    ) -> None:
        """`shown` are the folders that can be read, where not everything can."""
        super().__init__(fsync=fsync, shown=shown)
        self._boundary = boundary or (lambda: boundary_of(plan))
        self._plan = plan
        self._roots: list[tuple[str, int]] = []
        for root in plan.roots:  # outer ones first
            if not any(is_within(root.path, outer) for outer, _ in self._roots):
                self._roots.append((root.path, os.open(root.path, _FOLDER)))

    def look(self, path: str) -> Entry:
        """See `PlainFiles.look`."""
        refuse_hidden(os.path.realpath(path), self.shown)
        return super().look(path)

    def read(self, path: str) -> bytes:
        """See `PlainFiles.read`; refuses the kernel's own file systems."""
        with FileIO(open_stored(path, os.O_RDONLY | os.O_CLOEXEC, _refuse_folder, self.shown)) as file:
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
        if reason := self._refusal(os.path.join(folder, name)):
            raise _refused(reason, path)
        for root, fd in self._roots:
            if is_within(folder, root):
                last = _walk(fd, folder[len(root) :].strip("/"))
                try:
                    yield name, last
                finally:
                    os.close(last)
                return
        raise _refused(OUTSIDE, path)

    def _refusal(self, path: str) -> str | None:
        return self._boundary().refusal(path)


class ApprovedFiles(ConfinedFiles):
    """The files of a container's folders, also the protected ones, for what somebody has approved. Ferrule's own folder
    and what is not in the container stay closed."""

    def _refusal(self, path: str) -> str | None:
        plan = self._plan
        if not any(is_within(path, root.path) for root in plan.roots):
            return OUTSIDE
        return PROTECTED if any(is_within(path, kept) for kept in plan.read_only) else None


OUTSIDE = "outside of the folders that may be written"


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
