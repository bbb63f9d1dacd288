"""Read JSON-RPC messages from a server's output, one a line.

Servers also print banners and logs there: those are skipped. Pure: no descriptors here.
"""

import json
import logging
import re
from collections.abc import Iterator

import msgspec

from ferrule.protocol.json_text import JsonValue

log = logging.getLogger("ferrule.mcp")

MAX_MESSAGE_BYTES = 32 * 1024 * 1024
"""Bytes of one message: larger than any sensible image, and one result cannot fill our memory."""
_EDGE_BYTES = 256
"""Bytes kept at either end of an overlong line: enough to find the id of the request that it answers."""
_SHOWN = 200
"""Characters of a bad line in logs and errors."""
_LOGGED = 10
"""Bad lines logged for one server: a chatty one must not fill the log."""

_ID_FIRST = re.compile(rb'^\{\s*"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*(\d+)\s*,')
_ID_LAST = re.compile(rb'"jsonrpc"\s*:\s*"2\.0"\s*,\s*"id"\s*:\s*(\d+)\s*\}\s*$')

TOO_LONG = "the answer is larger than 32 MiB and was dropped"
UNREADABLE = "the answer cannot be read as JSON"
PARSE_ERROR = -32700


class LineSplitter:
    """Cuts a byte stream into lines, in constant memory: only the two ends of a line above `limit` are kept."""

    def __init__(self, limit: int = MAX_MESSAGE_BYTES) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> Iterator[tuple[bytes, bool]]:
        """Return the lines completed by these bytes, without line ends, and whether each is whole."""
        *complete, rest = data.split(b"\n")
        for piece in complete:
            self._add(piece)
            yield b"".join(self._parts), self._size <= self._limit
            self._parts, self._size = [], 0
        self._add(rest)

    def _add(self, piece: bytes) -> None:
        if not piece:
            return
        self._size += len(piece)
        self._parts.append(piece)
        if self._size > self._limit:
            whole = b"".join(self._parts)
            self._parts = [whole[:_EDGE_BYTES], whole[max(_EDGE_BYTES, len(whole) - _EDGE_BYTES) :]]


class MessageReader:
    """Reads the JSON-RPC messages in a server's output."""

    def __init__(self, server: str, limit: int = MAX_MESSAGE_BYTES) -> None:
        self._server = server
        self._lines = LineSplitter(limit)
        self._bad = 0
        self.first_bad_line: str | None = None
        """The first line that is not a message, of a server that never answers."""

    def feed(self, data: bytes) -> Iterator[dict[str, JsonValue]]:
        """Return the messages completed by these bytes. Raises `ConnectionError` for an overlong one."""
        for line, whole in self._lines.feed(data):
            if not whole:
                yield _too_long(line)
            elif line and not line.isspace():
                yield from self._messages(line)

    def _messages(self, line: bytes) -> Iterator[dict[str, JsonValue]]:
        value = _decoded(line)
        if value is None and (error := _error_for(line, UNREADABLE)) is not None:
            yield error
            return
        messages = value if isinstance(value, list) else [value]
        for message in messages:
            if isinstance(message, dict) and (message.get("jsonrpc") == "2.0" or _is_answer(message)):
                yield message
            else:
                self._note(line)

    def _note(self, line: bytes) -> None:
        shown = line[:_SHOWN].decode("utf-8", "backslashreplace").strip()
        self.first_bad_line = self.first_bad_line or shown
        self._bad += 1
        if self._bad <= _LOGGED:
            log.warning("MCP server %s printed a line that is no message: %.200r", self._server, shown)


def _is_answer(message: dict[str, JsonValue]) -> bool:
    """Return whether this is an answer without the JSON-RPC version."""
    return "id" in message and "method" not in message and ("result" in message or "error" in message)


def _decoded(line: bytes) -> JsonValue:
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass
    try:
        return json.loads(line)  # takes what msgspec refuses and other peers send: NaN, half of a surrogate pair
    except (ValueError, RecursionError):
        return None


def _too_long(line: bytes) -> dict[str, JsonValue]:
    """Return the error that replaces an overlong answer."""
    error = _error_for(line, TOO_LONG)
    if error is None:
        raise ConnectionError(f"a message without a plain id: {TOO_LONG}")
    return error


def _error_for(line: bytes, reason: str) -> dict[str, JsonValue] | None:
    """Return the error for the request that an unusable line answers, if its id is at one of the line's ends."""
    found = _ID_FIRST.search(line[:_EDGE_BYTES]) or _ID_LAST.search(line[-_EDGE_BYTES:])
    return found and {"jsonrpc": "2.0", "id": int(found[1]), "error": {"code": PARSE_ERROR, "message": reason}}
