"""Level 3: no namespaces, so protected paths cannot be covered. They are remembered before a command and compared after
it: what was changed or removed is put back, what was added is moved to quarantine, and all is reported."""

import os
import secrets
import shutil
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

MAX_FILES = 500
"""Protected files that are remembered before each command, which waits for that."""
LARGEST_FILE = 1 << 20
"""Bytes; a larger file is compared by size and change time only and cannot be put back."""
NAMED_PATHS = 5
"""Paths that a report names; the others are counted."""
GIT_PARTS = ("config", "config.worktree", "hooks", "info")
"""What git runs or reads orders from; objects and references are data."""


@dataclass(slots=True)
class Snapshot:
    """The protected files below `paths` as they are now: mode and content, or the target of a link."""

    paths: tuple[str, ...]
    files: dict[str, tuple[int, bytes]] = field(default_factory=dict)
    tops: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Device and inode of each path that exists."""

    @classmethod
    def take(cls, protected: Iterable[str]) -> "Snapshot":
        """`protected`: the paths of the protected names, existing or not. Blocking."""
        snapshot = cls(tuple(dict.fromkeys(protected)))
        snapshot.files = {path: _content(path) for path in _files(snapshot.paths)}
        snapshot.tops = {path: identity for path in snapshot.paths if (identity := _identity(path))}
        return snapshot

    def restore(self, quarantine: Path) -> tuple[str, ...]:
        """Undo what has changed since. Returns a sentence for what was moved and one for what was put back. Blocks."""
        place = quarantine / secrets.token_hex(6)
        back = [path for path, identity in self.tops.items() if _bring_home(path, identity, place)]
        added = [path for path in _files(self.paths) if path not in self.files]
        for path in added:
            _move_away(path, place)
        for path, (mode, content) in self.files.items():
            if _content(path) != (mode, content):
                _put_back(path, mode, content, place)
                back.append(path)
        reports = []
        if added:
            reports.append(f"Moved to {place}, because commands may not add it: {_named(added)}.")
        if back:
            reports.append(f"Put back, because commands may not change it: {_named(back)}.")
        return tuple(reports)


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _bring_home(path: str, identity: tuple[int, int], place: Path) -> bool:
    """Undo a renaming of a whole folder within its parent."""
    if _identity(path) == identity or not os.path.isdir(os.path.dirname(path)):
        return False
    with os.scandir(os.path.dirname(path)) as entries:
        moved = next((entry.path for entry in entries if _identity(entry.path) == identity), None)
    if moved is None:
        return False
    if os.path.lexists(path):
        _move_away(path, place)
    os.rename(moved, path)
    return True


def _named(paths: list[str]) -> str:
    more = f" and {len(paths) - NAMED_PATHS} more" if len(paths) > NAMED_PATHS else ""
    return ", ".join(paths[:NAMED_PATHS]) + more


def _files(paths: Iterable[str]) -> Iterator[str]:
    seen = 0
    for top in paths:
        parts = [f"{top}/{part}" for part in GIT_PARTS] if top.endswith(".git") and _is_folder(top) else [top]
        for part in parts:
            for path in _below(part):
                seen += 1
                if seen > MAX_FILES:
                    return
                yield path


def _below(path: str) -> Iterator[str]:
    if not _is_folder(path):
        if os.path.lexists(path):
            yield path
        return
    for folder, folders, names in os.walk(path):
        for name in (*names, *(name for name in folders if os.path.islink(os.path.join(folder, name)))):
            yield os.path.join(folder, name)


def _is_folder(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


def _content(path: str) -> tuple[int, bytes]:
    try:
        status = os.lstat(path)
        if stat.S_ISLNK(status.st_mode):
            return status.st_mode, os.fsencode(os.readlink(path))
        if not stat.S_ISREG(status.st_mode) or status.st_size > LARGEST_FILE:
            return status.st_mode, f"{status.st_size} {status.st_ctime_ns}".encode()
        return status.st_mode, Path(path).read_bytes()
    except OSError as error:
        return 0, str(error.errno).encode()


def _move_away(path: str, place: Path) -> None:
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    shutil.move(path, place / f"{len(os.listdir(place))}-{os.path.basename(path)}")


def _put_back(path: str, mode: int, content: bytes, place: Path) -> None:
    if os.path.lexists(path):
        _move_away(path, place)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if stat.S_ISLNK(mode):
        os.symlink(os.fsdecode(content), path)
    elif stat.S_ISREG(mode):
        Path(path).write_bytes(content)
        os.chmod(path, stat.S_IMODE(mode))
