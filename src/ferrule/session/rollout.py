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
from itertools import repeat
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import msgspec

from ferrule._version import __version__
from ferrule.history.compaction import compacted, is_opening, summary_message, units
from ferrule.model.lessons import Lesson, latest
from ferrule.model.recipient import ANYWHERE, family_of
from ferrule.protocol.content import text_of
from ferrule.protocol.errors import UsageError
from ferrule.protocol.events import TokenUsage
from ferrule.protocol.items import Compaction, Message, Origin, Reasoning, ResponseItem, read_item
from ferrule.protocol.permissions import AskForApproval, SandboxPolicy
from ferrule.protocol.settings import CompactedBy, ProviderSettings, ToolCallForm
from ferrule.protocol.specs import Wire
from ferrule.session.salvage import Line, salvage

ARCHIVE = "archived_sessions"
"""The folder of archived sessions in Ferrule's home, beside `sessions`; Codex's name."""
FOLDER_MODE = 0o700
LONGEST_HEAD = 64 * 1024
"""Bytes of a first line that are read to see whose session it is."""
FILE_MODE = 0o600
"""A session's content is for its user alone."""


class SessionMeta(msgspec.Struct, frozen=True, omit_defaults=True):
    """The first line of a rollout."""

    id: str
    timestamp: str
    cwd: str
    originator: str = "ferrule"
    cli_version: str = __version__
    model_provider: str = ""
    instructions: str | None = None
    parent_thread_id: str | None = None
    """The session that started this one as a sub-agent."""
    agent_role: str | None = None
    forked_from_id: str | None = None
    """The session that this one is a copy of."""


class StoredProvider(msgspec.Struct, frozen=True, omit_defaults=True):
    """The server of a turn: of keys only the names of their variables, no header values, no query."""

    name: str
    base_url: str | None = None
    wire_api: Wire | None = None
    profile: str | None = None
    env_key: str | None = None
    env_http_headers: dict[str, str] = {}
    compaction: CompactedBy | None = None
    tool_calls: ToolCallForm | None = None

    @classmethod
    def of(cls, provider: ProviderSettings) -> "StoredProvider":
        """Return what is stored of a provider."""
        url = provider.base_url
        return cls(
            provider.name,
            None if url is None else without_secrets(url),
            provider.wire_api,
            provider.profile,
            provider.env_key,
            provider.env_http_headers,
            provider.compaction,
            provider.tool_calls,
        )

    def is_that_of(self, provider: ProviderSettings | None) -> bool:
        """Return whether the configured provider is this one, with all that is not stored of it."""
        return provider is not None and StoredProvider.of(provider) == self

    def settings(self) -> ProviderSettings:
        """Return the settings of this provider."""
        return ProviderSettings(**msgspec.structs.asdict(self))


def without_secrets(url: str) -> str:
    """Return a URL without user, password and query, which can hold keys."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


class TurnContext(msgspec.Struct, frozen=True, omit_defaults=True):
    """The settings of a turn; written once per turn."""

    cwd: str
    approval_policy: AskForApproval
    sandbox_policy: SandboxPolicy
    model: str
    profile: str | None = None
    provider: StoredProvider | None = None
    tools: tuple[str, ...] | None = None


class _Compacted(msgspec.Struct, frozen=True, omit_defaults=True):
    """A compaction: the summary, and the whole history that replaces what stands before this line. `origins` has who
    made each item of it; Codex writes none, and in older versions no history either."""

    message: str = ""
    replacement_history: tuple[msgspec.Raw, ...] | None = None
    origins: tuple[Origin | None, ...] = ()


class _TokenCount(msgspec.Struct, tag="token_count"):
    usage: TokenUsage | None


class _ServerLesson(msgspec.Struct, tag="server_lesson"):
    lesson: Lesson


class ImagesRefused(msgspec.Struct, frozen=True, tag="images_refused"):
    """Items whose images a server refused, by the marks of their bytes."""

    provider: str
    model: str
    items: frozenset[str]


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

    __slots__ = ("_fd", "_torn", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd: int | None = None
        self._torn = False

    @classmethod
    def create(cls, home: str, session_id: str) -> "Rollout":
        """Create the rollout of a new session under `home`."""
        now = datetime.now()
        name = f"rollout-{now:%Y-%m-%dT%H-%M-%S}-{session_id}.jsonl"
        return cls(Path(home) / "sessions" / f"{now:%Y}" / f"{now:%m}" / f"{now:%d}" / name)

    def meta(self, meta: SessionMeta) -> None:
        """Write the first line."""
        self._write("session_meta", _encode(meta))

    def turn_context(self, context: TurnContext) -> None:
        """Write what the turn runs with."""
        self._write("turn_context", _encode(context))

    def item(self, item: ResponseItem) -> None:
        """Write an item, byte for byte, and beside it who made it."""
        self._write("response_item", item.raw, b"" if item.origin is None else b',"origin":' + _encode(item.origin))

    def compacted(self, items: Sequence[ResponseItem], summary: str) -> None:
        """Write the history that replaces all before."""
        history = tuple(msgspec.Raw(item.raw) for item in items)
        self._write("compacted", _encode(_Compacted(summary, history, tuple(item.origin for item in items))))

    def response_end(self, usage: TokenUsage | None) -> None:
        """Write that a response of the model, and its calls, are complete."""
        self._write("event_msg", _encode(_TokenCount(usage)))

    def lesson(self, lesson: Lesson) -> None:
        """Write what a server refuses."""
        self._write("event_msg", _encode(_ServerLesson(lesson)))

    def images_refused(self, refused: ImagesRefused) -> None:
        """Write whose images were refused."""
        self._write("event_msg", _encode(refused))

    def event(self, name: str, message: str = "") -> None:
        """Write something that happened (turn_aborted, error)."""
        self._write("event_msg", _encode({"type": name, "message": message}))

    def close(self) -> None:
        """Close the file."""
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

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

    def _open(self) -> int:
        missing = [folder for folder in (self.path.parent, *self.path.parent.parents) if not folder.exists()]
        for folder in reversed(missing):
            folder.mkdir(mode=FOLDER_MODE, exist_ok=True)
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, FILE_MODE)
        size = os.fstat(fd).st_size
        self._torn = size > 0 and os.pread(fd, 1, size - 1) != b"\n"
        return fd


class StoredSession(msgspec.Struct, frozen=True):
    """A rollout as it was read: `responses` are its items, cut where a response of the model ended, or where somebody
    else spoke after it: the end of one that broke off is not told. `skipped_lines` could not be read whole."""

    path: Path
    meta: SessionMeta
    context: TurnContext | None
    responses: tuple[tuple[ResponseItem, ...], ...]
    skipped_lines: int = 0
    lessons: tuple[Lesson, ...] = ()
    refused: tuple[ImagesRefused, ...] = ()

    @property
    def damage(self) -> str:
        """A warning about a damaged file; empty if it is intact."""
        if not self.skipped_lines:
            return ""
        lines = "1 line" if self.skipped_lines == 1 else f"{self.skipped_lines} lines"
        rights = "" if self.context else "; the rights that it ran with are among them, and the present settings count"
        return f"the session file {self.path} is damaged: {lines} could not be read and are left out{rights}"


def read_rollout(path: Path) -> StoredSession:
    """Read a session: all that can be read of a damaged one, and how much cannot. Raises `UsageError` where nothing
    can."""
    try:
        lines, damaged = salvage(path.read_bytes())
    except OSError as error:
        raise UsageError(f"cannot read the session {path}: {error.strerror}") from error
    reader = _Reader()
    for line in lines:
        try:
            reader.read(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            damaged += 1
    if reader.meta is None and not reader.items and not any(reader.responses):
        raise UsageError(f"{path} is not a session of Ferrule: nothing in it can be read as one")
    meta = reader.meta or SessionMeta(
        _id_of(path) or new_session_id(), "", reader.context.cwd if reader.context else ""
    )
    responses = (*reader.responses, tuple(reader.items))
    damaged += reader.meta is None and not damaged
    return StoredSession(path, meta, reader.context, responses, damaged, latest(reader.lessons), tuple(reader.refused))


class _Reader:
    """Puts the lines of a session together."""

    def __init__(self) -> None:
        self.meta: SessionMeta | None = None
        self.context: TurnContext | None = None
        self.responses: list[tuple[ResponseItem, ...]] = []
        self.items: list[ResponseItem] = []
        self.lessons: list[Lesson] = []
        self.refused: list[ImagesRefused] = []

    def read(self, line: Line) -> None:
        """Take one line. Raises `msgspec.DecodeError` for one that is not what it says it is."""
        match line.type:
            case "session_meta":
                self.meta = self.meta or msgspec.json.decode(line.payload, type=SessionMeta)
            case "turn_context":
                self.context = msgspec.json.decode(line.payload, type=TurnContext)
            case "response_item":
                self._add(read_item(bytes(line.payload), _origin(line.origin)))
            case "compacted":
                self._replace(msgspec.json.decode(line.payload, type=_Compacted))
            case "event_msg":
                self._event(line.payload)

    def _event(self, payload: msgspec.Raw) -> None:
        match _event_type(payload):
            case "token_count":
                self._cut()
            case "server_lesson":
                self.lessons.append(msgspec.json.decode(payload, type=_ServerLesson).lesson)
            case "images_refused":
                self.refused.append(msgspec.json.decode(payload, type=ImagesRefused))

    def _replace(self, by: _Compacted) -> None:
        if by.replacement_history is None:
            said = [item for response in (*self.responses, self.items) for item in response]
            opening = [item for item in said if is_opening(item)]
            items: Sequence[ResponseItem] = compacted(said, opening=opening, summary=[summary_message(by.message)])
        else:
            origins = (*by.origins, *repeat(None, len(by.replacement_history)))
            items = [
                read_item(bytes(raw), origin) for raw, origin in zip(by.replacement_history, origins, strict=False)
            ]
        self.responses, self.items = [tuple(unit) for unit in units(items)], []

    def _add(self, item: ResponseItem) -> None:
        """End a response where somebody else speaks or, if its last line is lost, where another one begins."""
        if item.origin is None and isinstance(item.view, Reasoning | Compaction):
            item = msgspec.structs.replace(item, origin=self._presumed())
        last = next((known.origin for known in reversed(self.items) if known.origin is not None), None)
        another = last is not None and item.origin is not None and 0 != last.response != item.origin.response != 0
        if another or (isinstance(item.view, Message) and item.view.role != "assistant"):
            self._cut()
        self.items.append(item)

    def _presumed(self) -> Origin | None:
        """Guess the origin of an item that lacks one from the head and the last turn."""
        if self.meta is None or not self.meta.model_provider or self.context is None:
            return None
        return Origin(f"{self.meta.model_provider}{ANYWHERE}", family_of(self.context.model))

    def _cut(self) -> None:
        self.responses.append(tuple(self.items))
        self.items = []


def _origin(raw: msgspec.Raw) -> Origin | None:
    """Read the origin of an item; None if there is none, or none in our form."""
    with suppress(msgspec.DecodeError):
        return msgspec.json.decode(raw, type=Origin) if bytes(raw) else None
    return None


class _EventType(msgspec.Struct):
    type: str = ""


def _event_type(payload: msgspec.Raw) -> str:
    return msgspec.json.decode(payload, type=_EventType).type


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
