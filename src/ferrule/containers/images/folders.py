"""Reach the folders of a root that is being unpacked, one step at a time and never through a link."""

import errno
import os
import stat
from collections.abc import Callable

from ferrule.containers.images.errors import ImageError

OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FOLDER_MODE = 0o755
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


def _not_a_folder(name: bytes, above: int, path: Path) -> str:
    is_link = stat.S_ISLNK(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode)
    kind = "a link" if is_link else "no folder"
    return f"a layer has an entry below {shown(path)}, where {os.fsdecode(name)} is {kind}: flatten the image"


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
    return os.fsdecode(b"/".join(path)) or "/"
