"""What the store takes and returns. Times are seconds since 1970; `owner` is the project of a key, "" without keys."""

from typing import Generic, Literal, TypeVar

import msgspec

T = TypeVar("T")

MAX_CHAIN = 4096
"""Responses that one response can build on. An agent makes one a step; the context of any model is full before."""

DAY_SECONDS = 86_400

PAGE_ITEMS = 100
"""Entries of a page at most, as the API says."""


class StoredResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A response. `body` is its object as last written, as JSON; `input` and `output` are its public items, JSON each,
    with ids; `transcript` is what it added to what the model saw, in a form that only its writer knows."""

    id: str
    owner: str
    created_at: int
    status: str
    body: bytes
    parent: str | None = None
    conversation: str | None = None
    background: bool = False
    input: tuple[bytes, ...] = ()
    output: tuple[bytes, ...] = ()
    transcript: bytes = b""


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation without its items. `metadata` is JSON."""

    id: str
    owner: str
    created_at: int
    metadata: bytes = b"{}"


class Entry(msgspec.Struct, frozen=True):
    """What was added to a conversation at once: a response, or items from the client. `transcript` is None if there was
    none, and once one of the items was deleted: then the items that are left say it all."""

    items: tuple[bytes, ...]
    transcript: bytes | None


class FileRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A file without its content. `bytes` is its size; the store counts it."""

    id: str
    owner: str
    created_at: int
    filename: str
    purpose: str
    bytes: int = 0
    status: str = "processed"
    expires_at: int | None = None


class Upload(msgspec.Struct, frozen=True, kw_only=True):
    """A file that comes in parts. `bytes` is the size that was announced; `file` the id of the file it became;
    `kept_seconds` how long that file is kept, None for ever."""

    id: str
    owner: str
    created_at: int
    filename: str
    purpose: str
    bytes: int
    mime_type: str
    expires_at: int
    status: Literal["pending", "completed", "cancelled", "expired"] = "pending"
    file: str | None = None
    kept_seconds: int | None = None


class UploadPart(msgspec.Struct, frozen=True, kw_only=True):
    """A part of an upload. `bytes` is its size; the store counts it."""

    id: str
    upload: str
    created_at: int
    bytes: int = 0


class ContainerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A container of a client. `lane` is the conversation that it was made for; `details` are the fields that its
    maker gave."""

    id: str
    owner: str
    created_at: int
    name: str = ""
    lane: str | None = None
    details: bytes = b"{}"


class SkillVersion(msgspec.Struct, frozen=True, kw_only=True):
    """A version of a skill, which never changes. The store gives it its number `version` and counts its `bytes`."""

    id: str
    skill: str
    created_at: int
    name: str
    description: str
    version: int = 0
    bytes: int = 0


Which = int | None
"""The number of a skill's version; None for the default one."""
LATEST = -1
"""Stands for the newest version."""


class Skill(msgspec.Struct, frozen=True, kw_only=True):
    """A skill. `name` and `description` are those of its default version; `latest_version` is the newest there is."""

    id: str
    created_at: int
    name: str
    description: str
    default_version: int
    latest_version: int


FileState = Literal["in_progress", "completed", "failed", "cancelled"]
"""How far a file of a vector store is."""


class FileCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many files are how far."""

    in_progress: int = 0
    completed: int = 0
    failed: int = 0
    cancelled: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.in_progress + self.completed + self.failed + self.cancelled


class VectorStore(msgspec.Struct, frozen=True, kw_only=True):
    """A vector store. `metadata` is JSON; it expires `expires_days` after `last_active_at`. The store counts its files
    and the bytes that they take in the index."""

    id: str
    owner: str
    created_at: int
    last_active_at: int
    name: str = ""
    description: str | None = None
    metadata: bytes = b"{}"
    expires_days: int | None = None
    expired: bool = False
    counts: FileCounts = FileCounts()
    usage_bytes: int = 0

    @property
    def expires_at(self) -> int | None:
        """When it expires if nobody uses it."""
        return None if self.expires_days is None else self.last_active_at + self.expires_days * DAY_SECONDS


class NewStoreFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that is to be in a vector store. `attributes` is JSON; tokens of a chunk, and how many of them the next
    one repeats. `param` is where the request names it."""

    file: str
    param: str
    attributes: bytes = b"{}"
    max_tokens: int
    overlap_tokens: int


class StoreFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a vector store. `id` is the file's own; `number` changes when it is added again."""

    number: int
    id: str
    store: str
    created_at: int
    status: FileState
    error_code: str | None
    error: str | None
    usage_bytes: int
    attributes: bytes
    max_tokens: int
    overlap_tokens: int


class FileBatch(msgspec.Struct, frozen=True, kw_only=True):
    """Files that were added to a vector store together."""

    id: str
    store: str
    created_at: int
    cancelled: bool = False
    counts: FileCounts = FileCounts()


class Paging(msgspec.Struct, frozen=True, kw_only=True):
    """Which page of a list: the entries after, or before, the one with this id, in this order."""

    after: str | None = None
    before: str | None = None
    limit: int = 20
    order: Literal["asc", "desc"] = "desc"


class Page(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """A page of a list, in the order asked for. `has_more`: there are more entries in the direction of paging."""

    data: tuple[T, ...]
    has_more: bool
    first_id: str | None
    last_id: str | None


class _Named(msgspec.Struct):
    id: str


_NAMED = msgspec.json.Decoder(_Named)


def id_of(item: bytes) -> str:
    """Read an item's id, all that the store reads of what it keeps. Raises `msgspec.ValidationError` if it has none."""
    return _NAMED.decode(item).id
