"""Reach the folders of an unpacked root, one step at a time. Links are followed as inside: never out of the root."""

import errno
import os
import stat
from collections.abc import Callable

from ferrule.containers.images.errors import ImageError, readable

OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FOLDER_MODE = 0o755
MAX_LINKS = 40
"""Links on the way to one file, as in the kernel."""
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
Path = tuple[bytes, ...]


class Folders:
    """The open folders from the root to the one used last: entries of an archive mostly stand beside each other."""

    def __init__(self, root: int) -> None:
        """`root` is an open folder, which stays the caller's."""
        self._names: list[bytes] = []
        self._open = [root]

    def close(self) -> None:
        """Close all but the root."""
        self._shorten(0)

    def real(self, path: Path) -> Path:
        """Return a path without links, for use with `at`. What is missing stays as it is.

        Nobody else changes the root meanwhile; if somebody does, `at` follows no link anyway. Raises `ImageError`.
        """
        done = [ours for ours, name in zip(self._names, path, strict=False) if ours == name]
        if tuple(done) != path[: len(done)]:
            done = []
        left = [*reversed(path[len(done) :])]
        links = 0
        while left:
            name = left.pop()
            if name == b"..":
                done = done[:-1]
            elif (target := self._link(done, name)) is None:
                done.append(name)
            else:
                links += 1
                if links > MAX_LINKS:
                    raise ImageError(f"a layer has an entry below {shown(path)}, where links go in a circle")
                done = [] if target.startswith(b"/") else done
                left += [part for part in reversed(target.split(b"/")) if part not in (b"", b".")]
        return tuple(done)

    def _link(self, above: list[bytes], name: bytes) -> bytes | None:
        """Return where a link leads; None for anything else."""
        try:
            return os.readlink(name, dir_fd=self.at(tuple(above), make=False))
        except (OSError, ImageError):
            return None

    def at(self, path: Path, *, make: bool) -> int:
        """Return the open folder, which stays ours. With `make` those that are missing are made.

        Raises `ImageError` for a link or a file on the way, and `FileNotFoundError`.
        """
        common = 0
        for ours, name in zip(self._names, path, strict=False):
            if ours != name:
                break
            common += 1
        self._shorten(common)
        for name in path[common:]:
            self._open.append(self._step(name, path, make))
            self._names.append(name)
        return self._open[-1]

    def forget(self, path: Path) -> None:
        """Let go of a folder that is going to be removed."""
        if tuple(self._names[: len(path)]) == path:
            self._shorten(len(path) - 1)

    def _step(self, name: bytes, path: Path, make: bool) -> int:
        above = self._open[-1]
        try:
            return os.open(name, OPEN, dir_fd=above)
        except FileNotFoundError:
            if not make:
                raise
            os.mkdir(name, FOLDER_MODE, dir_fd=above)
            os.chmod(name, FOLDER_MODE, dir_fd=above)  # whatever the umask
            return os.open(name, OPEN, dir_fd=above)
        except OSError as error:
            if error.errno not in (errno.ENOTDIR, errno.ELOOP):
                raise
            raise ImageError(_not_a_folder(name, above, path)) from error

    def _shorten(self, length: int) -> None:
        while len(self._names) > length:
            self._names.pop()
            os.close(self._open.pop())


def open_inside(root: os.PathLike[str], path: bytes) -> int:
    """Open a regular file of a root for reading, as it would be opened inside. Raises `OSError`, `ImageError`."""
    top = os.open(root, OPEN)
    folders = Folders(top)
    try:
        *above, name = folders.real(tuple(path.split(b"/")))
        fd = os.open(name, _READ, dir_fd=folders.at(tuple(above), make=False))
    finally:
        folders.close()
        os.close(top)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(errno.EINVAL, "no regular file")
    return fd


def _not_a_folder(name: bytes, above: int, path: Path) -> str:
    is_link = stat.S_ISLNK(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode)
    kind = "a link" if is_link else "no folder"
    return f"a layer has an entry below {shown(path)}, where {readable(name)} is {kind}: build the image anew"


def remove(name: bytes, folder: int, path: Path, gone: Callable[[Path], None]) -> None:
    """Remove a file, or a folder with all below it. `gone` learns each path. Links are not followed.

    All of it was made by us: folders can be written, and are no deeper than the layers' limit.
    """
    if stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode):
        inner = os.open(name, OPEN, dir_fd=folder)
        try:
            for child in names_in(inner):
                remove(child, inner, (*path, child), gone)
        finally:
            os.close(inner)
        os.rmdir(name, dir_fd=folder)
    else:
        os.unlink(name, dir_fd=folder)
    gone(path)


def names_in(folder: int) -> list[bytes]:
    """List an open folder; names need not be text."""
    return [os.fsencode(name) for name in os.listdir(folder)]


def shown(path: Path) -> str:
    """Return a path as errors name it."""
    return readable(b"/".join(path)) or "/"
