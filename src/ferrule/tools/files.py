"""Files for tools: text and bytes, on top of the layer that decides what may be touched."""

import errno
import os
import stat
from collections.abc import Iterable
from io import FileIO
from typing import TYPE_CHECKING

from ferrule.kernel_files import Shown, open_stored, refuse_hidden
from ferrule.patch.files import Entry, FileLayer, Kind
from ferrule.patch.paths import unexpanded
from ferrule.protocol.errors import RespondToModel
from ferrule.tools.buffers import Buffers, Opened, OpenedFiles, held_file, opened_at, save
from ferrule.tools.touched import Touched

if TYPE_CHECKING:
    from ferrule.patch.writer import Journal

NOTHING_OPENED: Opened = {}
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
"""Non-blocking: a regular file never blocks, and on macOS a FIFO can take its place after the check."""


class Files:
    """The files that a call may touch. Relative paths start at `cwd`. Errors are `RespondToModel`, naming the path.

    `touched`, where there is one, notes which paths calls have asked for; `journal` serves a patch against a kill;
    `buffers` are those of the user's editor, and `opened` what it holds and the disk does not.
    """

    __slots__ = ("buffers", "cwd", "journal", "layer", "opened", "seen", "touched")

    def __init__(
        self,
        layer: FileLayer,
        cwd: str,
        touched: Touched | None = None,
        *,
        journal: "Journal | None" = None,
        buffers: Buffers | None = None,
        opened: Opened = NOTHING_OPENED,
    ) -> None:
        self.layer: FileLayer = OpenedFiles(layer, opened) if opened else layer
        self.buffers = buffers
        self.opened = opened
        self.seen: tuple[str, ...] = ()
        """The absolute paths at which the editor was asked."""
        self.cwd = cwd
        self.touched = touched
        self.journal = journal

    def moved(self, cwd: str) -> "Files":
        """Return the same files for paths that start at another directory."""
        return Files(self.layer, cwd, self.touched, journal=self.journal, buffers=self.buffers)

    async def seeing(self, paths: Iterable[str]) -> "Files":
        """Return the same files with what the user's editor holds at these paths and has not saved."""
        if self.buffers is None:
            return self
        absolute = [os.path.normpath(os.path.join(self.cwd, path)) for path in paths]
        opened = await opened_at(absolute, self.buffers, self.layer)
        files = Files(self.layer, self.cwd, self.touched, journal=self.journal, buffers=self.buffers, opened=opened)
        files.seen = tuple(absolute)
        return files

    async def is_still_seen(self, layer: FileLayer) -> bool:
        """Whether the user's editor still holds what it held."""
        if self.buffers is None:
            return True
        return await opened_at(self.seen, self.buffers, layer) == self.opened

    async def save(self, written: Iterable[tuple[str, bytes]]) -> list[str]:
        """Tell the user's editor what was written; return what it did not take."""
        return [] if self.buffers is None else await save(written, self.buffers)

    def path(self, path: str) -> str:
        """Return the absolute path, links not resolved. Raises `RespondToModel` for one that only a shell would
        expand."""
        refusal = unexpanded(path, self.cwd)
        if refusal is not None:
            raise RespondToModel(refusal)
        absolute = os.path.normpath(os.path.join(self.cwd, path))
        if self.touched is not None:
            self.touched.add((absolute,))
        return absolute

    def shown_path(self, path: str) -> str:
        """Return the absolute path of what a tool reads. Raises `RespondToModel` also for one that is not shown."""
        absolute = self.path(path)
        try:
            refuse_hidden(os.path.realpath(absolute), self.shown)
        except OSError as error:
            raise RespondToModel(f"{path} cannot be read: {error.strerror}") from error
        return absolute

    @property
    def shown(self) -> Shown:
        """The folders that can be read, where not everything can."""
        return self.layer.shown

    def look(self, path: str) -> Entry:
        """Inspect the path, links followed."""
        return self.layer.look(self.path(path))

    def open(self, path: str) -> FileIO:
        """Open a regular file for reading in parts; links are followed. Close it.

        Raises `OSError` and nothing else: anything but a regular file is refused by its kind, and never opened.
        """
        absolute = self.path(path)
        if (held := self.opened.get(os.path.realpath(absolute))) is not None:
            return held_file(held)
        return FileIO(open_stored(absolute, _READ, lambda mode: _check_regular(mode, absolute), self.shown))

    async def read_bytes(self, path: str) -> bytes:
        """Return the whole content of a regular file. A FIFO, socket or device is refused, never opened."""
        absolute = self.shown_path(path)
        entry = self.layer.look(absolute)
        if entry.kind is not Kind.FILE:
            raise RespondToModel(f"{path}: {_NOT_A_FILE[entry.kind]}")
        try:
            with self.open(absolute) as file:
                return file.readall()
        except OSError as error:
            raise RespondToModel(f"{path}: {error.strerror or error}") from error

    async def read_text(self, path: str) -> str:
        """Return the whole content as UTF-8; invalid bytes become U+FFFD."""
        return (await self.read_bytes(path)).decode(errors="replace")


_NOT_A_FILE = {
    Kind.MISSING: "no such file",
    Kind.DIRECTORY: "is a directory",
    Kind.OTHER: "is not a regular file (a FIFO, socket or device), not read",
}

_SPECIAL = {
    stat.S_IFIFO: "a FIFO",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


def special_kind(mode: int) -> str | None:
    """Return the kind of a file that can block its reader forever ("a FIFO"), or None for files and directories."""
    return _SPECIAL.get(stat.S_IFMT(mode))


def _check_regular(mode: int, path: str) -> None:
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    special = special_kind(mode)
    if special is not None:
        raise OSError(f"it is {special}, not read")
