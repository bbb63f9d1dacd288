"""Files that somebody edits meanwhile: what stands in an editor, perhaps not saved yet, counts before what is on disk.

A tool that reads or edits such a file sees the editor's text, and the editor is told what was written. What may be
written, and whether it must be asked, is decided as always: the file on disk is written first, by the same rules.
"""

import os
from collections.abc import Iterable, Mapping
from io import FileIO
from tempfile import TemporaryFile
from typing import Protocol

from ferrule.patch.files import NEW_FILE_MODE, Entry, FileLayer, Kind
from ferrule.protocol.errors import RespondToModel

_BOM = "\ufeff"


class Buffers(Protocol):
    """An editor. Paths are absolute."""

    async def read(self, path: str) -> str | None:
        """Return the text that stands in the editor; None where it cannot tell."""
        ...

    async def write(self, path: str, text: str) -> str:
        """Let the editor show and save this text; return why it did not, empty if it did."""
        ...


Opened = Mapping[str, bytes]
"""What editors hold and the disk does not, by real paths."""


class OpenedFiles:
    """A `FileLayer` in which what an editor holds stands in place of what is on disk."""

    def __init__(self, layer: FileLayer, opened: Opened) -> None:
        self._layer = layer
        self._opened = opened
        self.shown = layer.shown
        self.create, self.rename, self.link, self.rewrite = layer.create, layer.rename, layer.link, layer.rewrite
        self.unlink, self.make_parents, self.rmdir = layer.unlink, layer.make_parents, layer.rmdir

    def look(self, path: str) -> Entry:
        """See `FileLayer.look`. A file that only an editor has is there."""
        entry = self._layer.look(path)
        held = self._opened.get(entry.real)
        if held is None:
            return entry
        if entry.kind is Kind.MISSING:
            return entry._replace(kind=Kind.FILE, identity=(0, 0), mode=NEW_FILE_MODE & 0o644, size=len(held))
        return entry._replace(size=len(held))

    def read(self, path: str) -> bytes:
        """See `FileLayer.read`."""
        held = self._opened.get(os.path.realpath(path))
        return self._layer.read(path) if held is None else held


async def opened_at(paths: Iterable[str], buffers: Buffers, layer: FileLayer) -> Opened:
    """Return what an editor holds at these absolute paths that differs from the disk."""
    opened: dict[str, bytes] = {}
    for path in dict.fromkeys(paths):
        try:
            entry = layer.look(path)
            saved = layer.read(path) if entry.kind is Kind.FILE else None
        except (OSError, ValueError, RespondToModel):
            continue  # what may not be read is not asked for
        if entry.kind not in (Kind.FILE, Kind.MISSING) or (text := await buffers.read(path)) is None:
            continue
        if (held := _as_on_disk(text, saved)) is not None:
            opened[entry.real] = held
    return opened


def _as_on_disk(text: str, saved: bytes | None) -> bytes | None:
    """Return an editor's text as it would be saved; None where that is what is saved, or the file is no UTF-8."""
    try:
        held = text.encode()
        before = None if saved is None else saved.decode()
    except UnicodeError:
        return None
    if before is None:
        return held
    if _plain(text) == _plain(before):
        return None
    if "\r\n" in before and "\r" not in text:  # editors hold lines, and know how the file ends them
        held = text.replace("\n", "\r\n").encode()
    return _BOM.encode() + held if before.startswith(_BOM) and not text.startswith(_BOM) else held


def _plain(text: str) -> str:
    return text.removeprefix(_BOM).replace("\r\n", "\n")


def held_file(data: bytes) -> FileIO:
    """Return a file to read that holds this; it has no name."""
    file = TemporaryFile(buffering=0)  # noqa: SIM115 - whoever reads it closes it
    file.write(data)
    file.seek(0)
    assert isinstance(file, FileIO)
    return file


async def save(written: Iterable[tuple[str, bytes]], buffers: Buffers) -> list[str]:
    """Tell an editor what stands now at these absolute paths; return what it did not take, with the reason."""
    failed: list[str] = []
    for path, data in written:
        try:
            text = data.decode()
        except UnicodeError:
            continue  # only text goes to an editor
        if reason := await buffers.write(path, text):
            failed.append(f"the editor did not take what was written to {path}: {reason}")
    return failed
