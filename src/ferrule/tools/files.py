"""Files as a tool sees them: text and bytes, on top of the layer that says what may be touched."""

import os

from ferrule.patch.files import Entry, FileLayer, Kind
from ferrule.protocol.errors import RespondToModel


class Files:
    """The files that a call may touch. Relative paths start at `cwd`. Errors are `RespondToModel`, naming the path."""

    __slots__ = ("cwd", "layer")

    def __init__(self, layer: FileLayer, cwd: str) -> None:
        self.layer = layer
        self.cwd = cwd

    def path(self, path: str) -> str:
        """The absolute path, `~` not expanded, links not resolved."""
        return os.path.normpath(os.path.join(self.cwd, path))

    def look(self, path: str) -> Entry:
        """What stands at the path, links followed."""
        return self.layer.look(self.path(path))

    async def read_bytes(self, path: str) -> bytes:
        """The whole content of a regular file. A FIFO, socket or device is refused, never opened."""
        absolute = self.path(path)
        entry = self.layer.look(absolute)
        if entry.kind is not Kind.FILE:
            raise RespondToModel(f"{path}: {_NOT_A_FILE[entry.kind]}")
        try:
            return self.layer.read(absolute)
        except OSError as error:
            raise RespondToModel(f"{path}: {error.strerror}") from error

    async def read_text(self, path: str) -> str:
        """The whole content as UTF-8; bytes that are not become U+FFFD."""
        return (await self.read_bytes(path)).decode(errors="replace")


_NOT_A_FILE = {
    Kind.MISSING: "no such file",
    Kind.DIRECTORY: "is a directory",
    Kind.OTHER: "is not a regular file (a FIFO, socket or device), not read",
}
