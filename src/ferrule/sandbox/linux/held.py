"""Watch protected paths at level 3, where no namespace makes them read-only. They are held open from the start of the
session and compared with their state then; changes are reported, and nothing is written."""

import errno
import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Final

import msgspec

from ferrule.git.layout import is_bare_shape

MAX_PATHS = 200
"""Protected paths held open: each takes a descriptor, of which a process often has only 1,024."""
MAX_FILES = 2000
"""Files compared below one protected path after each command, which waits for that."""
MAX_DEPTH = 20
"""Nested folders below one protected path, each open while it is compared."""
LARGEST_FILE = 1 << 20
"""Bytes read of a file to tell whether it changed; a larger file counts as changed whenever it was written."""
GIT_PARTS: Final = ("hooks", "config", "config.worktree", "commondir", "info", "worktrees", "modules")
"""The parts that git runs or takes settings from, hooks first; objects and references are data."""
BOUND_REACHED = (
    "{what}, so a change of them would go unseen at this sandbox level and no command is started; use -s read-only, or "
    "a machine with user namespaces"
)
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC


class _State(msgspec.Struct, frozen=True):
    """The state of a file. An unchanged `stamp` (inode, change time) means that it need not be read again."""

    stamp: tuple[int, int]
    mode: int
    digest: bytes

    def is_like(self, other: "_State | None") -> bool:
        return other is not None and (self.mode, self.digest) == (other.mode, other.digest)


class _Held(msgspec.Struct):
    """One protected path. `fd` is open on what lay there when it was first seen; -1 if nothing did."""

    path: str
    fd: int
    first: dict[str, _State] = msgspec.field(default_factory=dict)
    seen: dict[str, _State] = msgspec.field(default_factory=dict)
    was_away: bool = False


class _BoundReached(Exception):
    """A bound was reached; the text fills in `BOUND_REACHED`."""


class HeldPaths:
    """The protected paths of one session. Blocking; use it from one thread at a time, and close it."""

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}
        self.full: str | None = None
        """Why no command may start, in one sentence; None if commands may."""

    def hold(self, paths: Iterable[str]) -> None:
        """Hold these paths, too, as they are now."""
        for path in paths:
            if path in self._held:
                continue
            try:
                if len(self._held) >= MAX_PATHS:
                    raise _BoundReached(f"there are more than {MAX_PATHS} protected paths")
                held = _Held(path, _open(path))
            except _BoundReached as error:
                self.full = BOUND_REACHED.format(what=error)
                return
            held.first = held.seen = self._states(held)
            self._held[path] = held

    def adopt(self) -> None:
        """Accept what changed since the last look as the user's and as the new first state. Call it while no command
        runs."""
        for path in list(self._held):
            held = self._held[path]
            if _is_away(held) and not held.was_away:
                self._let_go(path)
                self.hold([path])
                continue
            now = self._states(held)
            for name in _differing(held.seen, now):
                _put(held.first, name, now.get(name))
            held.seen = now

    def changes(self, own: Iterable[str] = (), settled: int | None = None) -> tuple[str, ...]:
        """Return the paths that changed since the last look. `own` are paths that commands may create where nothing
        was.

        A file that changed after `settled`, a time in ns, is read again although its time stamp is known.
        """
        found: list[str] = []
        for path in own:
            if path in self._held and self._held[path].fd < 0:
                self._let_go(path)
        for held in self._held.values():
            away, now = _is_away(held), self._states(held, settled)
            found += [_path(held, name) for name in _differing(held.seen, now)]
            if away and not held.was_away:
                found.append(_where(held))
            held.seen, held.was_away = now, away
        return tuple(found)

    def all_changes(self, settled: int | None = None) -> tuple[str, ...]:
        """Return the paths that are not as they were at first, apart from changes by the user."""
        found: list[str] = []
        for held in self._held.values():
            found += [_path(held, name) for name in _differing(held.first, self._states(held, settled))]
            if _is_away(held):
                found.append(_where(held))
        return tuple(found)

    def close(self) -> None:
        """Close everything."""
        for path in list(self._held):
            self._let_go(path)

    def _let_go(self, path: str) -> None:
        held = self._held.pop(path)
        if held.fd >= 0:
            os.close(held.fd)

    def _states(self, held: _Held, settled: int | None = None) -> dict[str, _State]:
        states: dict[str, _State] = {}
        try:
            for name, folder, entry in _files(held):
                known = held.seen.get(name)
                if known is not None and settled is not None and known.stamp[1] >= settled:
                    known = None
                state = _state(folder, entry, known)
                if state is not None:
                    states[name] = state
        except _BoundReached as error:
            self.full = BOUND_REACHED.format(what=f"{held.path} {error}")
        return states


def _open(path: str) -> int:
    """Open a path; -1 if nothing is there, or nothing that we, and so a command, may read. Raises `_BoundReached`."""
    for flags in (_FOLDER, _FILE, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC):
        try:
            return os.open(path, flags)
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise _BoundReached("no file descriptor is left for the protected paths") from error
    return -1


def _is_away(held: _Held) -> bool:
    """Tell whether something else, or nothing, lies at the path by now."""
    try:
        now = os.lstat(held.path)
    except OSError:
        return held.fd >= 0
    if held.fd < 0:
        return True
    then = os.fstat(held.fd)
    return (now.st_dev, now.st_ino) != (then.st_dev, then.st_ino)


def _path(held: _Held, name: str) -> str:
    return f"{held.path}/{name}" if name else held.path


def _where(held: _Held) -> str:
    if held.fd < 0:
        return f"{held.path} (new)"
    place = os.readlink(f"/proc/self/fd/{held.fd}")
    return f"{held.path} (removed)" if place.endswith(" (deleted)") else f"{held.path} (moved to {place})"


def _files(held: _Held) -> Iterator[tuple[str, int, str]]:
    """Yield each file below a path: its relative name, and the folder's descriptor and name by which to open it. Raises
    `_BoundReached`."""
    if held.fd < 0:
        return
    names = _names(held.fd)
    if names is None:
        yield "", held.fd, ""
        return
    git = held.path.endswith("/.git") or is_bare_shape(names)
    left = count(MAX_FILES, -1)
    for name in _parts(names, git):
        yield from _below(held.fd, name, name, git, left)


def _names(folder: int) -> list[str] | None:
    """List a folder; None for anything else, and for a folder closed to us and so to commands."""
    try:
        return os.listdir(folder)
    except OSError:
        return None


def _parts(names: list[str], git: bool) -> list[str]:
    """Return the names in a folder that matter: in a git directory, those that decide what git runs."""
    return [name for name in GIT_PARTS if name in names] if git and "HEAD" in names else names


def _below(folder: int, name: str, label: str, git: bool, left: Iterator[int]) -> Iterator[tuple[str, int, str]]:
    if next(left) <= 0:
        raise _BoundReached(f"holds more than {MAX_FILES} protected files")
    if label.count("/") >= MAX_DEPTH:
        raise _BoundReached(f"holds more than {MAX_DEPTH} folders in folders")
    try:
        fd = os.open(name, _FOLDER, dir_fd=folder)
    except OSError:  # not a folder, closed to us, or gone
        yield label, folder, name
        return
    try:
        for entry in _parts(_names(fd) or [], git):
            yield from _below(fd, entry, f"{label}/{entry}", git, left)
    finally:
        os.close(fd)


def _state(folder: int, name: str, known: _State | None) -> _State | None:
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False) if name else os.fstat(folder)
        stamp = (status.st_ino, status.st_ctime_ns)
        if known is not None and known.stamp == stamp:
            return known
        digest = _digest(folder, name, status.st_mode)
        if status.st_size > LARGEST_FILE:
            digest += repr(stamp).encode()
        return _State(stamp, status.st_mode, digest)
    except OSError:  # gone by now
        return None


def _digest(folder: int, name: str, mode: int) -> bytes:
    if stat.S_ISLNK(mode):
        return os.fsencode(os.readlink(name, dir_fd=folder))
    if not stat.S_ISREG(mode):
        return b""
    fd = os.open(name, _FILE, dir_fd=folder) if name else os.dup(folder)
    try:
        return hashlib.sha256(os.pread(fd, LARGEST_FILE, 0)).digest()
    finally:
        os.close(fd)


def _differing(before: dict[str, _State], now: dict[str, _State]) -> list[str]:
    added = [name for name in now if name not in before]
    return added + [name for name, state in before.items() if not state.is_like(now.get(name))]


def _put(states: dict[str, _State], name: str, state: _State | None) -> None:
    if state is None:
        states.pop(name, None)
    else:
        states[name] = state
