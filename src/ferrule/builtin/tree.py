"""Walk a directory tree as one sequence; each directory is read only when the walk enters it."""

import os
from collections.abc import Iterator
from typing import NamedTuple

from ferrule.kernel_files import Shown, Storage, open_stored, refuse_elsewhere

KERNEL = "a file system of the kernel"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


class Entry(NamedTuple):
    """`folder` is the path of what it stands in, relative to the root and empty there; `level` is 0 there. `label`
    tells its kind: `/` a directory, `@` a link, `?` neither that nor a file."""

    name: str
    folder: str
    level: int
    label: str

    @property
    def path(self) -> str:
        """The path relative to the root."""
        return f"{self.folder}/{self.name}" if self.folder else self.name


class Tree:
    """The entries down to `depth` levels, links not followed: in each directory by name (code points), what is in a
    directory directly after it. `hidden` false leaves out names that start with a dot.

    A directory below that cannot be read, or where the kernel shows what it knows, is one of `problems`; iterating
    raises `OSError` for the root alone.
    """

    def __init__(self, root: str, depth: int, *, hidden: bool = True, shown: Shown = None) -> None:
        """Nothing outside of the folders `shown` is read."""
        self._root = root
        self._depth = depth
        self._hidden = hidden
        self._shown = shown
        self._storage = Storage()
        self.problems: list[str] = []

    def __iter__(self) -> Iterator[Entry]:
        pending = [("", iter(self._entries("")))]
        while pending:
            folder, entries = pending[-1]
            level = len(pending) - 1
            for name, label in entries:
                entry = Entry(name, folder, level, label)
                yield entry
                if label == "/" and level + 1 < self._depth:
                    try:
                        pending.append((entry.path, iter(self._entries(entry.path))))
                    except OSError as error:
                        self.problems.append(f"{entry.path} ({error.strerror or KERNEL})")
                    else:
                        break
            else:
                pending.pop()

    def _entries(self, folder: str) -> list[tuple[str, str]]:
        descriptor = self._open(folder)
        try:
            with os.scandir(descriptor) as entries:
                found = [(entry.name, _label(entry)) for entry in entries if self._hidden or entry.name[0] != "."]
        finally:
            os.close(descriptor)
        found.sort()
        return found

    def _open(self, folder: str) -> int:
        if not folder:
            return open_stored(self._root, _FOLDER, shown=self._shown)
        descriptor = os.open(f"{self._root}/{folder}", _FOLDER | os.O_NOFOLLOW)
        try:
            self._storage.check(descriptor, folder)
            refuse_elsewhere(descriptor, self._shown)
        except OSError:
            os.close(descriptor)
            raise
        return descriptor


def _label(entry: "os.DirEntry[str]") -> str:
    if entry.is_file(follow_symlinks=False):  # first: most are
        return ""
    if entry.is_dir(follow_symlinks=False):
        return "/"
    return "@" if entry.is_symlink() else "?"
