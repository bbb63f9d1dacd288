"""The sessions on disk, found by id, by name or by directory. The index is made from their files, and again at any
time: losing it loses nothing."""

import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

import msgspec

from ferrule.history.compaction import is_words_of_user
from ferrule.protocol.content import text_of
from ferrule.protocol.errors import UsageError
from ferrule.protocol.items import Message, read_item
from ferrule.session import salvage
from ferrule.session.claim import claim
from ferrule.session.lines import SessionMeta
from ferrule.session.rollout import (
    ARCHIVE,
    FOLDER_MODE,
    ROLLOUT_NAME,
    Rollout,
    find_rollout,
    new_session_id,
)
from ferrule.undo.undo_log import remove_session

INDEX_FILE = "index.sqlite3"
LONGEST_LINE = 1024 * 1024
"""Bytes of a line that are looked at: longer ones hold images or outputs, no name and no head."""
PROMPT_CHARS = 200
LOCK_SECONDS = 1.0
"""How long to wait for another program that refreshes the index; after that this one reads the files for itself."""
TYPE_ENDS = 160
"""Bytes at the beginning of a line that hold its time and type, and the type of an event."""
_TURN, _META = b'"type":"turn_context"', b'"type":"session_meta"'
_NAMED = b'"type":"event_msg","payload":{"type":"session_renamed"'
_VERSION = 1
_TABLE = """
create table if not exists sessions (
    path text primary key, size integer, changed integer, id text, cwd text, created text, parent text,
    name text, prompt text, turns integer
)
"""


class SessionEntry(msgspec.Struct, frozen=True):
    """One session. `updated` is in nanoseconds since 1970; `prompt` is how the user's first message begins; `parent` is
    the session that started it as a sub-agent."""

    id: str
    path: str
    cwd: str
    created: str
    updated: int
    name: str
    prompt: str
    turns: int
    parent: str
    archived: bool


class _Known(msgspec.Struct):
    """What the index holds of one file. `size` is how much of it was read."""

    path: str
    size: int = 0
    changed: int = 0
    id: str = ""
    cwd: str = ""
    created: str = ""
    parent: str = ""
    name: str = ""
    prompt: str = ""
    turns: int = 0


class SessionIndex:
    """The index of one home. Every question first takes in what has changed on disk."""

    def __init__(self, home: str) -> None:
        self._home = Path(home)

    def entries(self, *, cwd: str | None = None, archived: bool = False) -> list[SessionEntry]:
        """Return the sessions that people have begun, the one that changed last first; those of a directory with
        `cwd`."""
        found = [entry for entry in self._all() if entry.archived == archived and not entry.parent]
        return [entry for entry in found if cwd is None or _real(entry.cwd or "/") == _real(cwd)]

    def find(self, word: str) -> SessionEntry:
        """Return the session with this id, name, or beginning of an id. Raises `UsageError` for none or several."""
        everything = self._all() if word else []
        for fits in (
            [entry for entry in everything if entry.id == word],
            [entry for entry in everything if entry.name == word],
            [entry for entry in everything if entry.id.startswith(word)],
        ):
            if len(fits) == 1:
                return fits[0]
            if fits:
                ids = ", ".join(entry.id for entry in fits[:5])
                raise UsageError(f"{len(fits)} sessions are meant by {word!r}: {ids}; give more of the id")
        raise UsageError(f"no session has the id or the name {word!r}; `ferrule sessions list --all` lists them")

    def rename(self, word: str, name: str) -> SessionEntry:
        """Give a session a name; it stands in its file. Raises `UsageError` for a name that is taken or no name."""
        entry = self.find(word)
        if not name.strip() or not name.isprintable():
            raise UsageError("a session's name is a line of text")
        if any(other.name == name and other.id != entry.id for other in self._all()):
            raise UsageError(f"another session has the name {name!r}")
        with _changing(entry.path), closing(Rollout(Path(entry.path))) as rollout:
            rollout.event("session_renamed", name)
        return msgspec.structs.replace(entry, name=name)

    def archive(self, word: str) -> SessionEntry:
        """Move a session where `entries` and resuming by `--last` do not see it. Raises `UsageError`."""
        entry = self.find(word)
        folder = self._home / ARCHIVE
        target = folder / Path(entry.path).name
        if not entry.archived and os.path.lexists(target):
            raise UsageError(f"another session is archived in {target}; move that file away first")
        with _alone_with(entry):
            folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
            Path(entry.path).rename(target)
        return msgspec.structs.replace(entry, path=str(target), archived=True)

    def remove(self, word: str) -> SessionEntry:
        """Delete a session's file, and what is kept to undo its turns. Raises `UsageError`."""
        entry = self.find(word)
        with _alone_with(entry):
            Path(entry.path).unlink()
        remove_session(str(self._home), entry.id)
        return entry

    def fork(self, word: str, turns: int | None = None) -> str:
        """Copy a session as a new one, up to the end of its turn number `turns` (None: all). Return the new id."""
        entry = self.find(word)
        if turns is not None and not 1 <= turns <= entry.turns:
            raise UsageError(f"session {entry.id} has {entry.turns} turns, not {turns}")
        new_id = new_session_id()
        path = Rollout.create(str(self._home), new_id).path
        with _changing(entry.path), Path(entry.path).open("rb") as source:
            path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
            descriptor, temporary = tempfile.mkstemp(dir=path.parent)
            try:
                with os.fdopen(descriptor, "wb") as target:
                    target.writelines(_copied(source, turns, entry.id, new_id))
                Path(temporary).rename(path)
            except BaseException:
                Path(temporary).unlink(missing_ok=True)
                raise
        return new_id

    def _all(self) -> list[SessionEntry]:
        """Return all sessions, the one that changed last first."""
        known = self._known()
        archive = str(self._home / ARCHIVE)
        entries = [
            SessionEntry(
                one.id, one.path, one.cwd, one.created, one.changed, one.name, one.prompt, one.turns, one.parent,
                one.path.startswith(archive),
            )
            for one in known
        ]  # fmt: skip
        return sorted(entries, key=lambda entry: entry.updated, reverse=True)

    def _known(self) -> list[_Known]:
        file = self._home / "sessions" / INDEX_FILE
        try:
            return self._refreshed(file)
        except sqlite3.OperationalError:  # it cannot be written, or another program holds it
            return self._refreshed(None)
        except sqlite3.DatabaseError:
            with suppress(OSError):
                file.unlink()  # damaged: it is made from the files again
        try:
            return self._refreshed(file)
        except sqlite3.Error:
            return self._refreshed(None)

    def _files(self) -> Iterator[Path]:
        for found in ((self._home / "sessions").glob("*/*/*/rollout-*.jsonl"), (self._home / ARCHIVE).glob("*.jsonl")):
            yield from (path for path in found if ROLLOUT_NAME.fullmatch(path.name) and path.is_file())

    def _refreshed(self, index: Path | None) -> list[_Known]:
        """Bring the index up to date and return what it holds; None: keep it in memory only."""
        if index is not None and not index.parent.is_dir():
            index = None
        with closing(_connect(index)) as database, database:
            [version] = database.execute("pragma user_version").fetchone()
            if version != _VERSION:
                database.execute("drop table if exists sessions")
                database.execute(f"pragma user_version = {_VERSION}")
            database.execute(_TABLE)
            before = {row[0]: _Known(*row) for row in database.execute("select * from sessions")}
            now = [read for path in self._files() if (read := _read(path, before.get(str(path)))) is not None]
            changed = [one for one in now if before.get(one.path) != one]
            marks = ", ".join("?" * len(_Known.__struct_fields__))
            rows = [msgspec.structs.astuple(one) for one in changed]
            database.executemany(f"insert or replace into sessions values ({marks})", rows)
            gone = before.keys() - {one.path for one in now}
            database.executemany("delete from sessions where path = ?", [(path,) for path in gone])
            return now


def _connect(index: Path | None) -> sqlite3.Connection:
    return sqlite3.connect(":memory:" if index is None else index, timeout=LOCK_SECONDS)


@contextmanager
def _changing(path: str) -> Iterator[None]:
    """Say which session's file could not be read or changed. Raises `UsageError`."""
    try:
        yield
    except OSError as error:
        raise UsageError(f"the session {path} cannot be changed or copied: {error.strerror}") from error


@contextmanager
def _alone_with(entry: SessionEntry) -> Iterator[None]:
    """Keep a session that is to be taken away from going on meanwhile. Raises `UsageError` where one does."""
    path = Path(entry.path)
    with _changing(entry.path), path.open("rb") as file:
        claim(file.fileno(), path, entry.id, "end it there first")
        yield


def _real(cwd: str) -> str:
    """Return a directory without links; as it is if none can have this name."""
    try:
        return os.path.realpath(cwd)
    except ValueError:
        return cwd


def _read(path: Path, known: _Known | None) -> _Known | None:
    """Read what is new in a file; all of it if it did not only grow. None for one that cannot be read."""
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            if known is not None and known.changed == status.st_mtime_ns and known.size <= status.st_size:
                return known
            grown = known is not None and known.size <= status.st_size
            one = msgspec.structs.replace(known) if known is not None and grown else _Known(str(path))
            file.seek(one.size)
            while line := file.readline(LONGEST_LINE):
                head = line
                while line and not line.endswith(b"\n"):
                    line = file.readline(LONGEST_LINE)
                if not line:
                    break  # it is being written: the next look begins with it
                _take(one, head)
                one.size = file.tell()
            one.changed = status.st_mtime_ns
    except OSError:
        return None
    if not one.id:
        match = ROLLOUT_NAME.fullmatch(path.name)
        one.id = match["id"] if match else ""
    return one


class _Head(msgspec.Struct):
    type: str
    payload: msgspec.Raw


class _Renamed(msgspec.Struct):
    message: str = ""


def _take(one: _Known, line: bytes) -> None:
    """Take from a line what the index holds. Lines that cannot be read say nothing."""
    with suppress(msgspec.DecodeError, UnicodeDecodeError):
        if _TURN in line[:TYPE_ENDS]:
            one.turns += 1
        elif _META in line[:TYPE_ENDS]:
            meta = msgspec.json.decode(msgspec.json.decode(line, type=_Head).payload, type=SessionMeta)
            one.id, one.cwd, one.created, one.parent = meta.id, meta.cwd, meta.timestamp, meta.parent_thread_id or ""
        elif _NAMED in line[:TYPE_ENDS]:
            one.name = msgspec.json.decode(msgspec.json.decode(line, type=_Head).payload, type=_Renamed).message
        elif not one.prompt and b'"user"' in line:
            item = read_item(bytes(msgspec.json.decode(line, type=_Head).payload))
            if is_words_of_user(item) and isinstance(item.view, Message):
                one.prompt = " ".join(text_of(item.view.content)[: 4 * PROMPT_CHARS].split())[:PROMPT_CHARS]


def _copied(file: BinaryIO, turns: int | None, old: str, new: str) -> Iterator[bytes]:
    """Yield the lines of a copy, those of the first `turns` turns; one that is too long to be read in pieces."""
    begun = 0
    while line := file.readline(salvage.LONGEST_LINE):
        begun += _TURN in line[:TYPE_ENDS]
        if turns is not None and begun > turns:
            return
        yield _forked(line, old, new)
        while line and not line.endswith(b"\n"):
            line = file.readline(salvage.LONGEST_LINE)
            yield line or b"\n"


def _forked(line: bytes, old: str, new: str) -> bytes:
    """Return a line of the copy: the head with the new id, and where it comes from; no name."""
    if _NAMED in line[:TYPE_ENDS]:
        return b""
    if _META not in line[:TYPE_ENDS]:
        return line
    with suppress(msgspec.DecodeError):
        record = msgspec.json.decode(line)
        record["payload"] |= {"id": new, "forked_from_id": old}
        record["payload"].pop("parent_thread_id", None)
        return msgspec.json.encode(record) + b"\n"
    return line


def locate(home: str, word: str | None, cwd: str | None = None) -> Path:
    """Return the rollout to go on with: a session by its id, the beginning of it or its name; the path of a file; None:
    the newest, in `cwd` if one is given. Raises `UsageError`."""
    like_path = word is not None and (os.sep in word or word.endswith(".jsonl"))
    if word is not None and like_path and Path(word).is_file():
        return Path(word)
    try:
        return find_rollout(home, word, cwd)
    except UsageError:
        if word is None:
            raise
        with suppress(UsageError):
            return Path(SessionIndex(home).find(word).path)
        if like_path:
            raise UsageError(f"there is no session file {word}") from None
        raise
