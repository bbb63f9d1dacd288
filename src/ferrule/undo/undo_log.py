"""What each turn of a session changed: `FERRULE_HOME/undo/SESSION/NUMBER.jsonl`, private to the user.

A line says which paths an edit has changed, their states before and after, and the contents before; or all that was
different at the turn's end. A turn has a file once it has changed something.
"""

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from ferrule.undo.states import MISSING, Change, capture, held

FOLDER = "undo"
"""In Ferrule's home."""
FOLDER_MODE = 0o700
FILE_MODE = 0o600
TURN_BYTES = 32 * 1024 * 1024
"""Of contents kept of one turn: thousands of edited files."""
SESSION_BYTES = 64 * 1024 * 1024
"""Of one session's files. The oldest turns go first."""
KEPT_SESSIONS = 32
"""Sessions whose changes are kept, those that changed something last: 4 GB at the very most, megabytes in practice."""
_NAME = re.compile(r"[0-9A-Za-z_-]{1,64}")
BETWEEN = "something else changed it during the turn, so only what came after that is taken back"

NOTHING_OPENED: Mapping[str, bytes] = {}

Contents = Callable[[str], bytes | None]
"""From a digest to the content, if it is kept."""


class _Turn(msgspec.Struct, frozen=True, tag="turn"):
    id: str


class _Edits(msgspec.Struct, frozen=True, tag="edits"):
    changes: tuple[Change, ...]
    contents: dict[str, bytes]


class _Compared(msgspec.Struct, frozen=True, tag="compared"):
    """All differences between before the turn and after it. They hold, whatever its edits say."""

    changes: tuple[Change, ...]
    contents: dict[str, bytes]


_Line = _Turn | _Edits | _Compared
_lines = msgspec.json.Decoder(_Line)


class StoredTurn(NamedTuple):
    """A turn that can be taken back: the net change of each path, the contents before, and whether it covers
    commands. `notes` are on paths of which only a part is taken back."""

    id: str
    path: Path
    changes: dict[str, Change]
    contents: dict[str, bytes]
    notes: dict[str, str]
    with_commands: bool = False


class UndoLog:
    """The undo log of one session. `report` is told once where it cannot be written: work goes on without it."""

    def __init__(self, home: str, session_id: str, report: Callable[[str], None]) -> None:
        self.folder = _folder_of(home, session_id)
        self._report = report
        self._told = False
        self._turn_id: str | None = None
        self._path: Path | None = None
        self._room = 0
        self._edited: set[str] = set()

    def begin(self, turn_id: str) -> None:
        """Let what is changed from now on belong to this turn."""
        self._turn_id, self._path = turn_id, None
        self._edited = set()

    @contextmanager
    def writing(self, paths: Sequence[str], opened: Mapping[str, bytes] = NOTHING_OPENED) -> Iterator[None]:
        """Note what the body does to these paths and to the missing folders above them. Nothing before the first
        turn. `opened` is what an editor holds at some of them, and what they go back to."""
        if self._turn_id is None:
            yield
            return
        before = {
            path: held(path, opened[path]) if path in opened else capture(path)
            for path in (*_missing_folders(paths), *paths)
        }
        try:
            yield
        finally:
            changes = [
                Change(os.fsencode(path), was.state, now)
                for path, was in before.items()
                if (now := capture(path).state) != was.state
            ]
            self._edited.update(os.fsdecode(change.path) for change in changes)
            contents = {was.state.digest: was.data for was in before.values()}
            self._add(_Edits, changes, contents.get)

    def compared(self, changes: Sequence[Change], contents: Contents, covers: Callable[[str], bool]) -> None:
        """Note all that is different at the turn's end, of the paths that `covers`. What was edited there and is not
        different has not changed."""
        named = {os.fsdecode(change.path) for change in changes}
        same = [Change(os.fsencode(path), MISSING, MISSING) for path in self._edited - named if covers(path)]
        self._add(_Compared, [*changes, *same], contents)

    def last(self) -> StoredTurn | None:
        """Return the last turn that changed something and was not taken back."""
        for path in reversed(self._turns()):
            turn = _read(path)
            if turn is not None and turn.changes:
                return turn
        return None

    def forget(self, turn: StoredTurn) -> None:
        """Drop a turn that was taken back."""
        turn.path.unlink(missing_ok=True)

    def remove(self) -> None:
        """Drop all turns."""
        _remove(self.folder)

    def _turns(self) -> list[Path]:
        try:
            return sorted((path for path in self.folder.iterdir() if path.stem.isdecimal()), key=_number)
        except OSError:
            return []

    def _add(self, kind: type[_Edits | _Compared], changes: Sequence[Change], contents: Contents) -> None:
        """Append a line, with the contents before as far as there is room. Without changes, nothing."""
        if not changes:
            return
        try:
            path = self._path or self._new_turn()
            kept: dict[str, bytes] = {}
            for digest in {change.before.digest for change in changes} - {""}:
                data = contents(digest)
                if data is not None and len(data) <= self._room:
                    kept[digest] = data
                    self._room -= len(data)
            _append(path, kind(tuple(changes), kept))
        except OSError as error:
            if not self._told:
                self._told = True
                self._report(f"changes are not kept for undo: {self.folder} cannot be written ({error.strerror})")

    def _new_turn(self) -> Path:
        if not self.folder.is_dir():
            _make_room(self.folder.parent)
            make_private(self.folder)
        turns = self._turns()
        _drop_oldest(turns)
        path = self.folder / f"{_number(turns[-1]) + 1 if turns else 1}.jsonl"
        _append(path, _Turn(self._turn_id or ""))
        self._path, self._room = path, TURN_BYTES
        return path


def remove_session(home: str, session_id: str) -> None:
    """Drop all turns of a session."""
    _remove(_folder_of(home, session_id))


def _folder_of(home: str, session_id: str) -> Path:
    """Return a session's folder. The id may come from a file that somebody else wrote: one that is no plain name leads
    nowhere else."""
    from hashlib import sha256

    name = session_id if _NAME.fullmatch(session_id) else sha256(session_id.encode(errors="surrogatepass")).hexdigest()
    return Path(home, FOLDER, name)


def make_private(folder: Path) -> None:
    """Make a folder and those above it that are missing, for the user alone."""
    for missing in reversed([one for one in (folder, *folder.parents) if not one.exists()]):
        missing.mkdir(mode=FOLDER_MODE, exist_ok=True)


def _number(turn: Path) -> int:
    return int(turn.stem)


def _drop_oldest(turns: Sequence[Path]) -> None:
    """Drop the oldest turns until the others fit."""
    sizes = [path.stat().st_size for path in turns]
    excess = sum(sizes) - SESSION_BYTES
    for path, size in zip(turns, sizes, strict=True):
        if excess <= 0:
            return
        path.unlink()
        excess -= size


def _make_room(folder: Path) -> None:
    """Drop the oldest sessions, so that one more may be kept."""
    try:
        found = sorted((entry.stat().st_mtime_ns, entry.path) for entry in os.scandir(folder))
    except OSError:
        return
    for _, path in found[: max(len(found) - KEPT_SESSIONS + 1, 0)]:
        _remove(path)


def _remove(folder: str | Path) -> None:
    from shutil import rmtree

    rmtree(folder, ignore_errors=True)


def _missing_folders(paths: Iterable[str]) -> list[str]:
    """Return the folders above these paths that do not exist."""
    missing: dict[str, None] = {}
    for path in paths:
        folder = os.path.dirname(path)
        while folder not in missing and not os.path.lexists(folder):
            missing[folder] = None
            folder = os.path.dirname(folder)
    return list(missing)


def _append(path: Path, line: _Line) -> None:
    """Append a line, behind a line end: what a kill or a full disk cut short before it stays a line of its own."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, FILE_MODE)
    try:
        view = memoryview(b"\n" + msgspec.json.encode(line) + b"\n")
        while view:
            view = view[os.write(descriptor, view) :]
    finally:
        os.close(descriptor)


def _read(path: Path) -> StoredTurn | None:
    """Read a turn without the lines that are damaged; None if there is nothing to read."""
    try:
        raw = path.read_bytes().splitlines()
    except OSError:
        return None
    turn = StoredTurn("", path, {}, {}, {})
    for line in filter(None, raw):
        try:
            turn = _with_line(turn, _lines.decode(line))
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
    for name in [name for name, change in turn.changes.items() if change.before == change.after]:
        del turn.changes[name]
    return turn


def _with_line(turn: StoredTurn, line: _Line) -> StoredTurn:
    match line:
        case _Turn():
            return turn._replace(id=line.id)
        case _Edits():
            _follow(turn, line.changes)
            turn.contents.update(line.contents)
            return turn
    turn.changes.update((os.fsdecode(change.path), change) for change in line.changes)
    turn.contents.update(line.contents)
    return turn._replace(with_commands=True)


def _follow(turn: StoredTurn, changes: Iterable[Change]) -> None:
    """Add edits to the net changes. Where something else changed a file in between, only what came after is ours."""
    for change in changes:
        path = os.fsdecode(change.path)
        known = turn.changes.get(path)
        if known is not None and known.after == change.before:
            turn.changes[path] = msgspec.structs.replace(change, before=known.before)
            continue
        if known is not None:
            turn.notes[path] = BETWEEN
        turn.changes[path] = change
