"""What a killed process left half done in the user's folders, and how the next one puts it right.

A patch notes in a file of its own, in Ferrule's home, which names it uses for a moment and which files it rewrites in
place. The file is locked as long as its process lives, and goes when the patch is done: one that stands there unlocked
tells of a kill.
"""

import filecmp
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import msgspec

from ferrule.locks import try_lock

FOLDER = "unfinished"
"""In Ferrule's home."""

_REWRITE = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class _Note(msgspec.Struct, frozen=True, omit_defaults=True):
    """A file of ours at `path`, perhaps an `original` that was put aside; with contents, a file that is being
    rewritten. No path: the patch was applied. Paths are bytes: a name need not be UTF-8."""

    path: bytes = b""
    original: bytes | None = None
    before: bytes | None = None
    after: bytes | None = None


class PatchJournal:
    """See `ferrule.patch.writer.Journal`. For one patch at a time."""

    def __init__(self, home: str) -> None:
        self._folder = Path(home, FOLDER)
        self._path: Path | None = None
        self._fd: int | None = None

    def beside(self, path: str, original: str | None = None) -> None:
        """Note a file of ours."""
        self._add(_Note(os.fsencode(path), None if original is None else os.fsencode(original)))

    def rewriting(self, path: str, before: bytes, after: bytes) -> None:
        """Note a file that is rewritten."""
        self._add(_Note(os.fsencode(path), before=before, after=after))

    def applied(self) -> None:
        """Note the end of the changes, if anything was noted."""
        if self._fd is not None:
            self._add(_Note())

    def ended(self) -> None:
        """Forget all notes."""
        if self._path is not None and self._fd is not None:
            with suppress(OSError):
                self._path.unlink()
            os.close(self._fd)
        self._path = self._fd = None

    def _add(self, note: _Note) -> None:
        with suppress(OSError):  # a patch is worth more than its journal
            fd = self._begun()
            os.write(fd, msgspec.json.encode(note) + b"\n")

    def _begun(self) -> int:
        """Return the descriptor of the notes: a new file where there are none yet."""
        if self._fd is None:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._path = self._folder / secrets.token_hex(8)
            self._fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try_lock(self._fd)
        return self._fd


def put_right(home: str) -> list[str]:
    """Put right what killed processes left half done. Return what the user has to be told."""
    told: list[str] = []
    with suppress(OSError):
        for name in os.listdir(Path(home, FOLDER)):
            with suppress(OSError):
                told += _put_right(Path(home, FOLDER, name))
    return told


def _put_right(journal: Path) -> list[str]:
    fd = os.open(journal, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if not try_lock(fd):
            return []  # its process lives
        notes = list(_notes(journal.read_bytes()))
        applied = any(not note.path for note in notes)
        told = [text for note in reversed(notes) if note.path and (text := _undo(note, applied)) is not None]
        journal.unlink()
        return told
    finally:
        os.close(fd)


def _notes(data: bytes) -> Iterator[_Note]:
    """Read the notes. A torn one is the last, and what it tells of was not begun."""
    for line in data.splitlines():
        with suppress(msgspec.DecodeError):
            yield msgspec.json.decode(line, type=_Note)


def _undo(note: _Note, applied: bool) -> str | None:
    path, original = os.fsdecode(note.path), note.original
    if note.before is not None and note.after is not None:
        return None if applied else _restore(path, note.before, note.after)
    with suppress(FileNotFoundError):
        if original is not None and not applied:
            return _give_back(path, os.fsdecode(original))
        os.unlink(path)
    return None


def _give_back(aside: str, original: str) -> str | None:
    """Give a file that was put aside its name again, unless somebody has made another one there since: then it stays,
    for it may be the only copy."""
    if not os.path.lexists(original):
        os.rename(aside, original)
        return None
    if _is_regular(aside) and _is_regular(original) and filecmp.cmp(aside, original, shallow=False):
        os.unlink(aside)
        return None
    return f"a patch that was killed had put {original} aside, and another file is there now; the former one is {aside}"


def _is_regular(path: str) -> bool:
    return stat.S_ISREG(os.lstat(path).st_mode)


def _restore(path: str, before: bytes, after: bytes) -> str | None:
    """Give a file its former content if what stands there is the beginning of what was being written. A link that
    somebody put there since is not followed."""
    if os.path.realpath(path) != path or not _is_regular(path):
        return None
    with os.fdopen(os.open(path, _REWRITE), "r+b", buffering=0) as file:
        found = file.read(max(len(before), len(after)) + 1)
        if found in (before, after) or not (after.startswith(found) or before.startswith(found)):
            return None
        file.truncate(0)
        file.seek(0)
        view = memoryview(before)
        while view:
            view = view[file.write(view) :]
    return f"{path} was half written when an earlier session was killed; it is again what it was before that patch"
