"""Level 3: no namespaces, so protected paths cannot be made read-only. They are held open since the session began and
compared with how they were then; what changed is told, and nothing is written."""

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from ferrule.git.layout import is_bare_shape

MAX_PATHS = 200
"""Protected paths that are held: each is a descriptor, of which a process often has 1,024."""
MAX_FILES = 2000
"""Files below one protected path that are compared after each command, which waits for that."""
LARGEST_FILE = 1 << 20
"""Bytes of a file that are read to tell whether it changed; of a larger one, the first."""
GIT_PARTS: Final = ("hooks", "config", "config.worktree", "commondir", "info", "worktrees", "modules")
"""What git runs or reads orders from, hooks first; objects and references are data."""
TOO_MUCH = (
    "{what}, so a change of them would go unseen at this sandbox level and no command is started; use -s read-only, or "
    "a machine with user namespaces"
)
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_NOCTTY | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class _State:
    """A file: `stamp` (inode, change time) tells that it need not be read again, the rest what it is."""

    stamp: tuple[int, int]
    mode: int
    digest: bytes

    def is_like(self, other: "_State | None") -> bool:
        return other is not None and (self.mode, self.digest) == (other.mode, other.digest)


@dataclass(slots=True)
class _Held:
    """One protected path: `fd` is what lay there when it was first seen, -1 if nothing did."""

    path: str
    fd: int
    first: dict[str, _State] = field(default_factory=dict)
    seen: dict[str, _State] = field(default_factory=dict)
    was_away: bool = False


class HeldPaths:
    """The protected paths of one session. Blocking; not for two threads at once. Close it."""

    def __init__(self) -> None:
        self._held: dict[str, _Held] = {}
        self.full: str | None = None
        """Why no command may start: a sentence."""

    def hold(self, paths: Iterable[str]) -> None:
        """Hold these, too, as they are now."""
        for path in paths:
            if path in self._held:
                continue
            if len(self._held) >= MAX_PATHS:
                self.full = TOO_MUCH.format(what=f"there are more than {MAX_PATHS} protected paths")
                return
            held = _Held(path, _open(path))
            held.first = held.seen = self._states(held)
            self._held[path] = held

    def adopt(self) -> None:
        """No command runs: what changed since the last look is the user's, and becomes what was there at first."""
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

    def changes(self, own: Iterable[str] = ()) -> tuple[str, ...]:
        """What has changed since the last look, a path each. `own`: what commands may make where nothing was."""
        found: list[str] = []
        for path in own:
            if path in self._held and self._held[path].fd < 0:
                self._let_go(path)
        for held in self._held.values():
            away, now = _is_away(held), self._states(held)
            found += [_path(held, name) for name in _differing(held.seen, now)]
            if away and not held.was_away:
                found.append(_where(held))
            held.seen, held.was_away = now, away
        return tuple(found)

    def all_changes(self) -> tuple[str, ...]:
        """What is not as it was, changes by the user left aside."""
        found: list[str] = []
        for held in self._held.values():
            found += [_path(held, name) for name in _differing(held.first, self._states(held))]
            if _is_away(held):
                found.append(_where(held))
        return tuple(found)

    def close(self) -> None:
        """Let go of everything."""
        for path in list(self._held):
            self._let_go(path)

    def _let_go(self, path: str) -> None:
        held = self._held.pop(path)
        if held.fd >= 0:
            os.close(held.fd)

    def _states(self, held: _Held) -> dict[str, _State]:
        states: dict[str, _State] = {}
        for name, folder, entry in _files(held):
            if len(states) >= MAX_FILES:
                self.full = TOO_MUCH.format(what=f"{held.path} holds more than {MAX_FILES} protected files")
                break
            state = _state(folder, entry, held.seen.get(name))
            if state is not None:
                states[name] = state
        return states


def _open(path: str) -> int:
    """-1 if there is nothing, or nothing that we may read: then a command may not either."""
    for flags in (_FOLDER, _FILE, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC):
        try:
            return os.open(path, flags)
        except OSError:
            continue
    return -1


def _is_away(held: _Held) -> bool:
    """Whether something else lies at the path by now, or nothing."""
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
    """The name of each file below a path, and how it is reached: by a folder's descriptor and a name."""
    if held.fd < 0:
        return
    mode = os.fstat(held.fd).st_mode
    if not stat.S_ISDIR(mode):
        yield "", held.fd, ""
        return
    git = held.path.endswith("/.git") or is_bare_shape(os.listdir(held.fd))
    yield from chain.from_iterable(_below(held.fd, name, name, git) for name in _parts(held.fd, git))


def _parts(folder: int, git: bool) -> list[str]:
    """The names in a folder that matter: of a git directory those that tell it what to run."""
    names = os.listdir(folder)
    return [name for name in GIT_PARTS if name in names] if git and "HEAD" in names else names


def _below(folder: int, name: str, label: str, git: bool) -> Iterator[tuple[str, int, str]]:
    try:
        fd = os.open(name, _FOLDER, dir_fd=folder)
    except OSError:  # no folder, or gone
        yield label, folder, name
        return
    try:
        for entry in _parts(fd, git):
            yield from _below(fd, entry, f"{label}/{entry}", git)
    finally:
        os.close(fd)


def _state(folder: int, name: str, known: _State | None) -> _State | None:
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False) if name else os.fstat(folder)
        stamp = (status.st_ino, status.st_ctime_ns)
        if known is not None and known.stamp == stamp:
            return known
        return _State(stamp, status.st_mode, _digest(folder, name, status.st_mode))
    except OSError:  # gone meanwhile
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
