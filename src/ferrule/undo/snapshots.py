"""Snapshots of a workspace: its files that git would not ignore, in a private store that each workspace has once.

    FERRULE_HOME/snapshots/WORKSPACE/tree     each path with its state, and the stat by which an unchanged file is known
    FERRULE_HOME/snapshots/WORKSPACE/packs    the contents

`.git` is left out everywhere, and no git runs. The rules of the first look hold for the second one too: a file that was
ignored before the turn never looks as if the turn had made it.
"""

import fcntl
import hashlib
import os
import secrets
import shutil
import stat
import time
from contextlib import suppress
from pathlib import Path
from threading import Event

import msgspec

from ferrule.locks import try_lock
from ferrule.undo.packs import MOST_PACKS, NewPack, Packs, Place
from ferrule.undo.states import MAX_FILE_BYTES, MISSING, Change, State, capture
from ferrule.undo.undo_log import FILE_MODE, make_private
from ferrule.undo.workspace import WorkspaceFiles

FOLDER = "snapshots"
"""In Ferrule's home."""
KEPT_WORKSPACES = 8
"""Workspaces whose files are kept, those of the last sessions: 4 GB at the very most, with the default bound."""
RACY_NS = 50_000_000
"""A file that changed so shortly before it was read may change again within the same tick of the kernel's clock, and
its stat would not tell."""
OLDER = "it is older than the turn and was in no snapshot: it may have been moved here from an ignored place"

_Stamp = tuple[int, int, int, int]


class Bounds(msgspec.Struct, frozen=True):
    """How large a snapshot may be, and how long it may take."""

    bytes: int
    files: int
    seconds: float


class TooMuch(Exception):
    """A bound was reached, or nobody waits any more; the text says what is too much, and which setting allows more."""


class _Known(msgspec.Struct, frozen=True, array_like=True):
    """A path in a snapshot. Without a stamp it is read again."""

    state: State
    stamp: _Stamp | None


class _Tree(msgspec.Struct):
    """A snapshot: its paths, and where the contents are."""

    paths: dict[bytes, _Known]
    places: dict[str, Place]

    @property
    def size(self) -> int:
        """Bytes of the contents."""
        return sum(place.size for place in self.places.values())


_trees = msgspec.msgpack.Decoder(_Tree)


class Snapshots:
    """The snapshots of one session. Blocking: call it on a thread; `stop` ends it early."""

    def __init__(self, home: str, root: str, bounds: Bounds) -> None:
        self._root = os.path.realpath(root)
        self._home = os.path.realpath(home)
        self._bounds = bounds
        name = hashlib.sha256(os.fsencode(self._root), usedforsecurity=False).hexdigest()[:32]
        self._folder = Path(self._home, FOLDER, name)
        self._packs = Packs(self._folder / "packs")
        self._lock: int | None = None
        self._tree: _Tree | None = None
        self._began = 0
        self._files = WorkspaceFiles(self._root, without=self._home)

    def take(self, stop: Event) -> None:
        """Take the snapshot before a turn. Raises `TooMuch` and `OSError`; then there is none."""
        self._tree = None
        if self._root == self._home:
            raise OSError(None, "the workspace is Ferrule's own home")
        self._prepare()
        self._files = WorkspaceFiles(self._root, without=self._home)
        self._began = time.time_ns() - RACY_NS
        clock, known = _Clock(self._bounds.seconds, stop), self._load()
        tree, size = _Tree({}, {}), 0
        with NewPack(self._packs.folder) as pack:
            for path, found in self._files.look():
                clock.check()
                if stat.S_ISREG(found.st_mode) and found.st_size <= MAX_FILE_BYTES:
                    size += found.st_size
                self._check_size(len(tree.paths) + 1, size)
                self._add(tree, path, found, known, pack)
        if tree != known:
            self._save(tree)
            self._sweep({place.pack for place in tree.places.values()})
        self._tree = tree

    def compare(self, stop: Event) -> list[Change]:
        """Return what has changed since; nothing without a snapshot. Raises `TooMuch`."""
        if self._tree is None:
            return []
        known, clock = self._tree.paths, _Clock(self._bounds.seconds, stop)
        before_turn = {_content(one.state) for one in known.values()}
        seen: set[bytes] = set()
        changes: list[Change] = []
        for path, found in self._files.look_again(known):
            clock.check()
            name = os.fsencode(path)
            seen.add(name)
            was = known.get(name)
            if was is not None and was.stamp == _stamp(found):
                continue
            self._check_size(len(seen), 0)
            before, after = MISSING if was is None else was.state, capture(path, found).state
            if before != after:
                is_older = after.kind != "folder" and found.st_mtime_ns < self._began
                doubt = OLDER if is_older and _content(after) not in before_turn else ""
                changes.append(Change(name, before, after, doubt))
        gone = [name for name in known.keys() - seen if not self._files.is_unread(os.fsdecode(name))]
        return [*changes, *(Change(name, known[name].state, MISSING) for name in gone)]

    def content(self, digest: str) -> bytes | None:
        """Return a content of the snapshot."""
        return None if self._tree is None else self._packs.get(digest, self._tree.places.get(digest))

    def covers(self, path: str) -> bool:
        """Return whether the snapshot tells what stood at this path."""
        return self._tree is not None and self._files.covers(path)

    def close(self) -> None:
        """Let others drop contents that only this session needed."""
        self._tree = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _add(self, tree: _Tree, path: str, found: os.stat_result, known: _Tree, pack: NewPack) -> None:
        name, stamp = os.fsencode(path), _stamp(found)
        one = known.paths.get(name)
        if one is not None and one.stamp == stamp:
            digest = one.state.digest
            place = known.places.get(digest)
            if place is not None or not digest:
                tree.paths[name] = one
                if place is not None:
                    tree.places[digest] = place
                return
        state, data = capture(path, found)
        tree.paths[name] = _Known(state, stamp if found.st_ctime_ns < self._began else None)
        if data is not None and state.digest not in tree.places:
            tree.places[state.digest] = known.places.get(state.digest) or pack.add(data)

    def _check_size(self, files: int, size: int) -> None:
        if files > self._bounds.files:
            raise TooMuch(f"it has more than {self._bounds.files:,} files (snapshot_max_files)")
        if size > self._bounds.bytes:
            raise TooMuch(f"its files hold more than {self._bounds.bytes:,} bytes (snapshot_max_bytes)")

    def _prepare(self) -> None:
        """Make the store, and keep others from dropping contents until `close`."""
        if not self._packs.folder.is_dir():
            _make_room(self._folder.parent)
            make_private(self._packs.folder)
        if self._lock is None:
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
            self._lock = os.open(self._folder / "lock", flags, FILE_MODE)
        os.utime(self._folder)
        self._share()

    def _share(self) -> None:
        """Hold the lock with other sessions. If one sweeps now, what it drops is not kept, and undo says so."""
        if self._lock is not None:
            with suppress(OSError):
                fcntl.flock(self._lock, fcntl.LOCK_SH | fcntl.LOCK_NB)

    def _load(self) -> _Tree:
        """Return the last snapshot, with the contents that are there; none of them if too many are of no use."""
        try:
            tree = _trees.decode((self._folder / "tree").read_bytes())
        except (OSError, msgspec.DecodeError):
            return _Tree({}, {})
        sizes = self._packs.sizes()
        if len(sizes) > MOST_PACKS or sum(sizes.values()) > 2 * tree.size + MAX_FILE_BYTES:
            return _Tree({}, {})
        places = {digest: place for digest, place in tree.places.items() if place.pack in sizes}
        return _Tree(tree.paths, places)

    def _save(self, tree: _Tree) -> None:
        new = self._folder / f"tree-{secrets.token_hex(4)}"
        new.touch(FILE_MODE, exist_ok=False)
        new.write_bytes(msgspec.msgpack.encode(tree))
        new.replace(self._folder / "tree")

    def _sweep(self, needed: set[str]) -> None:
        """Drop the packs that this snapshot does not need, unless another session has one now."""
        assert self._lock is not None
        try:
            if _is_alone(self._lock):
                self._packs.keep_only(needed)
        finally:
            self._share()


class _Clock:
    """Watches the time of one look."""

    def __init__(self, seconds: float, stop: Event) -> None:
        self._seconds = seconds
        self._end = time.monotonic() + seconds
        self._stop = stop

    def check(self) -> None:
        """Raise `TooMuch` when time is up, or nobody waits any more."""
        if self._stop.is_set():
            raise TooMuch("the turn was ended")
        if time.monotonic() > self._end:
            raise TooMuch(f"reading its files takes more than {self._seconds:g} s (snapshot_timeout)")


def _stamp(found: os.stat_result) -> _Stamp:
    return found.st_mtime_ns, found.st_size, found.st_ino, found.st_ctime_ns


def _content(state: State) -> tuple[str, bytes]:
    return state.digest, state.mark


def _is_alone(lock: int) -> bool:
    """Return whether no other session uses the store. On a file system without locks nobody can tell: what is dropped
    too early is not kept, and undo says so."""
    try:
        return try_lock(lock)
    except OSError:
        return True


def _make_room(folder: Path) -> None:
    """Drop the oldest workspaces, so that one more may be kept; one that a session uses stays."""
    try:
        found = sorted((entry.stat().st_mtime_ns, entry.path) for entry in os.scandir(folder))
    except OSError:
        return
    for _, path in found[: max(len(found) - KEPT_WORKSPACES + 1, 0)]:
        with suppress(OSError):
            lock = os.open(Path(path, "lock"), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
            try:
                if _is_alone(lock):
                    shutil.rmtree(path, ignore_errors=True)
            finally:
                os.close(lock)
