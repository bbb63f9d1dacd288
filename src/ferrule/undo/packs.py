"""The contents of a snapshot, many in one file: to make a file for each would cost more than all the rest."""

import os
import secrets
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from ferrule.undo.states import digest_of

FILE_MODE = 0o600
MOST_PACKS = 64
"""Files of one store: each snapshot that finds something new adds one. Beyond that all is written anew."""
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class Place(NamedTuple):
    """Where a content stands."""

    pack: str
    offset: int
    size: int


class Packs:
    """The packs in one folder."""

    __slots__ = ("folder",)

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(self, digest: str, place: Place | None) -> bytes | None:
        """Return a content; None if it is not there, or not whole."""
        if place is None:
            return None
        try:
            with (self.folder / place.pack).open("rb") as file:
                data = os.pread(file.fileno(), place.size, place.offset)
        except OSError:
            return None
        return data if digest_of(data) == digest else None

    def sizes(self) -> dict[str, int]:
        """Return the packs that stand, with their sizes."""
        try:
            return {entry.name: entry.stat().st_size for entry in os.scandir(self.folder)}
        except FileNotFoundError:
            return {}

    def keep_only(self, packs: set[str]) -> None:
        """Drop all others."""
        for name in self.sizes().keys() - packs:
            (self.folder / name).unlink(missing_ok=True)


class NewPack:
    """A pack that is being written; it has no file before the first content."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._name = secrets.token_hex(8)
        self._descriptor: int | None = None
        self._end = 0

    def add(self, data: bytes) -> Place:
        """Append a content. Raises `OSError`."""
        if self._descriptor is None:
            self._descriptor = os.open(self._folder / self._name, _NEW, FILE_MODE)
        view = memoryview(data)
        while view:
            view = view[os.write(self._descriptor, view) :]
        place = Place(self._name, self._end, len(data))
        self._end += len(data)
        return place

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
