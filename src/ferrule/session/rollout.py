"""A session on disk: one JSON object per line, written as it happens, read again by `exec resume`.

Lines are `{"timestamp", "type", "payload"}` with the types session_meta, turn_context, response_item, compacted and
event_msg. Beside the payload of an item that a model said stands its `origin`. A `compacted` line replaces all items
before it. A `token_count` event ends each response of the model; `server_lesson` and `images_refused` events tell what
requests go without, of which the file keeps all.
"""

import os
import re
import secrets
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from ferrule.locks import release, try_lock
from ferrule.model.lessons import Lesson, latest
from ferrule.protocol.content import text_of
from ferrule.protocol.errors import UsageError
from ferrule.protocol.events import TokenUsage
from ferrule.protocol.items import Message, ResponseItem
from ferrule.session.claim import claim
from ferrule.session.lines import (
    Checkpoint,
    Compacted,
    ImagesRefused,
    ServerLesson,
    SessionMeta,
    TokenCount,
    TurnContext,
)
from ferrule.session.replay import MOST_HISTORY, Replay
from ferrule.session.salvage import Line

ARCHIVE = "archived_sessions"
"""The folder of archived sessions in Ferrule's home, beside `sessions`; Codex's name."""
FOLDER_MODE = 0o700
LONGEST_HEAD = 64 * 1024
"""Bytes of a first line that are read to see whose session it is."""
FILE_MODE = 0o600
"""A session's content is for its user alone."""


_encode = msgspec.json.encode


def new_session_id() -> str:
    """Return a UUID of version 7, which sorts by its time of creation."""
    milliseconds = time.time_ns() // 1_000_000
    value = milliseconds << 80 | 7 << 76 | secrets.randbits(12) << 64 | 2 << 62 | secrets.randbits(62)
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


class Rollout:
    """Appends to one session's file. The file is made with the first line; each line is one write. After a line that
    could be written in part only (a full disk, a crash) the next one begins a line of its own."""

    __slots__ = ("_before", "_fd", "_new", "_torn", "path")

    def __init__(self, path: Path, *, new: bool = False) -> None:
        self.path = path
        self._fd: int | None = None
        self._torn = False
        self._new = new
        self._before = Checkpoint()

    @classmethod
    def create(cls, home: str, session_id: str) -> "Rollout":
        """Create the rollout of a new session under `home`."""
        now = datetime.now()
        name = f"rollout-{now:%Y-%m-%dT%H-%M-%S}-{session_id}.jsonl"
        return cls(Path(home) / "sessions" / f"{now:%Y}" / f"{now:%m}" / f"{now:%d}" / name, new=True)

    @classmethod
    def go_on(cls, stored: "StoredSession") -> "Rollout":
        """Take the rollout of a stored session, which no other session writes then. Raises `UsageError` where another
        one does, or has since it was read."""
        rollout = cls(stored.path)
        rollout._before = Checkpoint(stored.context, stored.lessons, stored.refused)
        try:
            rollout._fd = rollout._open(os.O_RDWR)
        except FileNotFoundError as error:
            raise UsageError(f"the session file {stored.path} is gone") from error
        except OSError:
            return rollout  # it cannot be written, as the first line will find
        remedy = f"end it there first, or go on in a copy: ferrule sessions fork {stored.meta.id}"
        try:
            claim(rollout._fd, stored.path, stored.meta.id, remedy)
            if os.fstat(rollout._fd).st_size != stored.size:
                raise UsageError(f"session {stored.meta.id} has changed since it was read; resume it again")
        except UsageError:
            rollout.close()
            raise
        return rollout

    def meta(self, meta: SessionMeta) -> None:
        """Write the first line."""
        self._write("session_meta", _encode(meta))

    def turn_context(self, context: TurnContext) -> None:
        """Write what the turn runs with."""
        self._before = msgspec.structs.replace(self._before, context=context)
        self._write("turn_context", _encode(context))

    def item(self, item: ResponseItem) -> None:
        """Write an item, byte for byte, and beside it who made it."""
        self._write("response_item", item.raw, b"" if item.origin is None else b',"origin":' + _encode(item.origin))

    def compacted(self, items: Sequence[ResponseItem], summary: str) -> None:
        """Write the history that replaces all before, with all that a reader needs beside it."""
        history = tuple(msgspec.Raw(item.raw) for item in items)
        origins = tuple(item.origin for item in items)
        self._write("compacted", _encode(Compacted(summary, history, origins, msgspec.Raw(_encode(self._before)))))

    def response_end(self, usage: TokenUsage | None) -> None:
        """Write that a response of the model, and its calls, are complete."""
        self._write("event_msg", _encode(TokenCount(usage)))

    def lesson(self, lesson: Lesson) -> None:
        """Write what a server refuses."""
        lessons = latest((*self._before.lessons, lesson))
        self._before = msgspec.structs.replace(self._before, lessons=lessons)
        self._write("event_msg", _encode(ServerLesson(lesson)))

    def images_refused(self, refused: ImagesRefused) -> None:
        """Write whose images were refused."""
        self._before = msgspec.structs.replace(self._before, refused=(*self._before.refused, refused))
        self._write("event_msg", _encode(refused))

    def event(self, name: str, message: str = "") -> None:
        """Write something that happened (turn_aborted, error)."""
        self._write("event_msg", _encode({"type": name, "message": message}))

    def close(self) -> None:
        """Close the file, and let others go on with it: a child that is being made may have the descriptor, too."""
        if self._fd is not None:
            release(self._fd)
            os.close(self._fd)
            self._fd = None

    def __del__(self) -> None:
        self.close()  # a session that nobody closed keeps no other from going on with its file

    def _write(self, kind: str, payload: bytes, more: bytes = b"") -> None:
        if self._fd is None:
            self._fd = self._open()
        stamp = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        line = b'{"timestamp":"%b","type":"%b","payload":%b%b}\n' % (stamp.encode(), kind.encode(), payload, more)
        view = memoryview(b"\n" + line if self._torn else line)
        self._torn = True
        while view:
            view = view[os.write(self._fd, view) :]
        self._torn = False

    def _open(self, flags: int = os.O_RDWR | os.O_CREAT) -> int:
        if flags & os.O_CREAT:
            missing = [folder for folder in (self.path.parent, *self.path.parent.parents) if not folder.exists()]
            for folder in reversed(missing):
                folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
        fd = os.open(self.path, flags | os.O_APPEND | os.O_CLOEXEC, FILE_MODE)
        if self._new:
            with suppress(OSError):
                try_lock(fd)
        size = os.fstat(fd).st_size
        self._torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
        return fd


class StoredSession(msgspec.Struct, frozen=True):
    """A rollout as it was read: `responses` are its items, cut where a response of the model ended, or where somebody
    else spoke after it: the end of one that broke off is not told. `skipped_lines` could not be read whole; `left_out`
    items are too old for the history. `size` is how many bytes the file had."""

    path: Path
    meta: SessionMeta
    context: TurnContext | None
    responses: tuple[tuple[ResponseItem, ...], ...]
    skipped_lines: int = 0
    lessons: tuple[Lesson, ...] = ()
    refused: tuple[ImagesRefused, ...] = ()
    left_out: int = 0
    size: int = 0

    @property
    def damage(self) -> str:
        """A warning about a file that was not read in full, for it is damaged or too large; empty if it was."""
        return "; ".join(filter(None, (self._unread(), self._too_old())))

    def _unread(self) -> str:
        if not self.skipped_lines:
            return ""
        rights = "" if self.context else "; the rights that it ran with are among them, and the present settings count"
        return unread(self.path, self.skipped_lines) + rights

    def _too_old(self) -> str:
        if not self.left_out:
            return ""
        room = f"{MOST_HISTORY // 1024**2} MiB"
        return (
            f"the conversation in {self.path} is larger than {room}, more than any model reads: its oldest "
            f"{self.left_out:,} items stay in the file, and the model goes on without them"
        )


def unread(path: Path, count: int) -> str:
    """Say that some lines of a file could not be read."""
    lines = "1 line" if count == 1 else f"{count} lines"
    return f"the session file {path} is damaged: {lines} could not be read and are left out"


def read_rollout(path: Path) -> StoredSession:
    """Read a session: all that can be read of a damaged one, and how much cannot. Raises `UsageError` where nothing
    can."""
    read = Replay()
    try:
        with path.open("rb") as file:
            read.read(file)
            size = file.tell()
    except OSError as error:
        raise UsageError(f"cannot read the session {path}: {error.strerror}") from error
    if read.meta is None and not any(read.responses):
        raise UsageError(f"{path} is not a session of Ferrule: nothing in it can be read as one")
    meta = read.meta or SessionMeta(_id_of(path) or new_session_id(), "", read.context.cwd if read.context else "")
    return StoredSession(
        path,
        meta,
        read.context,
        read.responses,
        read.damaged or int(read.meta is None),
        read.lessons,
        read.refused,
        read.left_out,
        size,
    )


ROLLOUT_NAME = re.compile(r"rollout-.*-(?P<id>[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})\.jsonl")


def stored_rollouts(home: str) -> list[Path]:
    """Return all rollouts under `home`, oldest first (by id, which begins with the time)."""
    found = Path(home, "sessions").glob("*/*/*/rollout-*.jsonl")
    return sorted((path for path in found if ROLLOUT_NAME.fullmatch(path.name) and path.is_file()), key=_id_of)


def last_words(stored: StoredSession) -> str | None:
    """Return the model's last message if nothing came after it: the last turn was completed."""
    items = [item for response in stored.responses for item in response]
    view = items[-1].view if items else None
    return text_of(view.content) if isinstance(view, Message) and view.role == "assistant" else None


def find_rollout(home: str, session_id: str | None, cwd: str | None = None) -> Path:
    """Return the rollout of a session by id or by an unambiguous beginning of it; None: the newest that people have
    begun, in `cwd` if one is given.

    Raises `UsageError` that says what there is.
    """
    rollouts = stored_rollouts(home)
    if not rollouts:
        raise UsageError(f"there is no session to resume in {home}")
    if session_id is None:
        newest_first = sorted(rollouts, key=lambda path: path.stat().st_mtime_ns, reverse=True)
        for path in newest_first:
            head = read_head(path)
            if cwd is None and (head.parent_thread_id is None if head is not None else _has_a_line(path)):
                return path
            if head is not None and head.parent_thread_id is None and head.cwd == cwd:
                return path
        raise UsageError(f"no session was begun in {cwd}; --all takes the newest of any directory")
    if not session_id.strip():
        raise UsageError(f"the id of a session is empty; the newest is {_id_of(rollouts[-1])}")
    matching = [path for path in rollouts if _id_of(path).startswith(session_id)]
    if len(matching) == 1:
        return matching[0]
    problem = "no session has" if not matching else f"{len(matching)} sessions have"
    raise UsageError(f"{problem} an id that begins with {session_id!r}; the newest is {_id_of(rollouts[-1])}")


def read_head(path: Path) -> SessionMeta | None:
    """Return what the first line of a rollout says; None if it cannot be read."""
    try:
        with path.open("rb") as file:
            line = file.readline(LONGEST_HEAD)
        return msgspec.json.decode(msgspec.json.decode(line, type=Line).payload, type=SessionMeta)
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None


def _has_a_line(path: Path) -> bool:
    """Return whether a session that cannot say what it is has begun at all: a kill may leave an empty file."""
    with path.open("rb") as file:
        return any(b"\n" in part for part in iter(lambda: file.read(LONGEST_HEAD), b""))


def is_own(path: Path, home: str) -> bool:
    """Return whether a session's file really lies in the home: no link to a file from elsewhere."""
    real = Path(os.path.realpath(path))
    return any(real.is_relative_to(os.path.realpath(Path(home, folder))) for folder in ("sessions", ARCHIVE))


def is_brought(path: Path, home: str) -> bool:
    """Return whether a session's file was given by its path: it is read, and a copy in the home goes on."""
    return not any(path.absolute().is_relative_to(Path(home, folder)) for folder in ("sessions", ARCHIVE))


def _id_of(path: Path) -> str:
    match = ROLLOUT_NAME.fullmatch(path.name)
    return match["id"] if match else ""
