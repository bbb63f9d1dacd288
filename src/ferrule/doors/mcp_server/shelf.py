"""What tools left behind, for the client to read later: images, and outputs that were cut. Bounded."""

from base64 import b64encode
from collections.abc import Iterator

import msgspec
from mcp_types import BlobResourceContents, Resource, ResourceLink, TextResourceContents

MAX_BYTES = 32 * 1024 * 1024
"""Bytes that one client's results may take in memory: what is oldest goes first."""

MAX_ENTRIES = 256
"""Things that are kept for one client: a list of more is read by nobody."""

SCHEME = "ferrule://results/"


class Kept(msgspec.Struct, frozen=True):
    """One thing that was left: text, or the bytes of an image."""

    uri: str
    name: str
    description: str
    mime_type: str
    body: str | bytes

    @property
    def size(self) -> int:
        """Bytes of the body."""
        return len(self.body.encode() if isinstance(self.body, str) else self.body)

    @property
    def resource(self) -> Resource:
        """The entry of a list."""
        return Resource(
            uri=self.uri, name=self.name, description=self.description, mime_type=self.mime_type, size=self.size
        )

    @property
    def link(self) -> ResourceLink:
        """The block of a result."""
        return ResourceLink(**self.resource.model_dump())

    @property
    def contents(self) -> TextResourceContents | BlobResourceContents:
        """The answer to who reads it."""
        if isinstance(self.body, str):
            return TextResourceContents(uri=self.uri, mime_type=self.mime_type, text=self.body)
        return BlobResourceContents(uri=self.uri, mime_type=self.mime_type, blob=b64encode(self.body).decode())


class Shelf:
    """What is kept for one client, the oldest first."""

    def __init__(self, limit: int = MAX_BYTES) -> None:
        self._kept: dict[str, Kept] = {}
        self._limit = limit
        self._bytes = 0

    def __iter__(self) -> Iterator[Kept]:
        return iter(self._kept.values())

    def get(self, uri: str) -> Kept | None:
        """Return what has this URI; None if it never was there, or had to go."""
        return self._kept.get(uri)

    def put(self, name: str, description: str, mime_type: str, body: str | bytes) -> Kept | None:
        """Keep a thing under a name; None where it alone would be too much."""
        kept = Kept(SCHEME + name, name, description, mime_type, body)
        if kept.size > self._limit:
            return None
        self._drop(kept.uri)
        self._kept[kept.uri] = kept
        self._bytes += kept.size
        while self._bytes > self._limit or len(self._kept) > MAX_ENTRIES:
            self._drop(next(iter(self._kept)))
        return kept

    def _drop(self, uri: str) -> None:
        gone = self._kept.pop(uri, None)
        self._bytes -= 0 if gone is None else gone.size
