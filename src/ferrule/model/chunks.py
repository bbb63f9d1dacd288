"""HTTP chunk merging: a server that frames each event costs a parser call per event, so all available data becomes one
chunk.

Pure, and below the HTTP parser, which stays in charge: anything but the plainly chunked body of a 200 is passed on
byte for byte, and so is the rest of a body from the first line that is not a bare size. That covers the last chunk and
the trailers, and also extensions and malformed framing.
"""

import re
from enum import Enum, auto

MAX_HEAD_BYTES = 128 * 2**10
"""Bytes of a head to examine. The parser refuses one of 100 KiB, so a longer one fails anyway."""

_END_OF_HEAD = re.compile(rb"\n\r?\n")
_INTERIM = re.compile(rb"HTTP/1\.1 1(?!01)\d\d[ \r]")
_CHUNKED = re.compile(rb"HTTP/1\.1 200[ \r](?s:.)*\r\ntransfer-encoding:[ \t]*chunked[ \t]*\r\n", re.IGNORECASE)
_SIZE = rb"(0{0,8}[1-9A-Fa-f][0-9A-Fa-f]{0,7})\r\n"
_FIRST = re.compile(_SIZE)
_NEXT = re.compile(rb"\r\n" + _SIZE)
_BEGUN_FIRST = re.compile(rb"[0-9A-Fa-f]{0,16}\r?")
_BEGUN_NEXT = re.compile(rb"(?:\r(?:\n(?:[0-9A-Fa-f]{0,16}\r?))?)?")


class _In(Enum):
    HEAD = auto()
    BODY = auto()
    REST = auto()


class ChunkMerger:
    """A filter that returns the same answer in fewer chunks. `reset` before the next answer."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Start over with the head of another answer."""
        self._in = _In.HEAD
        self._held = b""
        self._left = 0
        self._size_was_read = False
        self._footer_is_owed = False

    def feed(self, data: bytes) -> bytes:
        """Return the bytes for the parser: none while only part of a size has arrived."""
        if self._in is _In.BODY:
            return self._merge(data)
        return self._head(data) if self._in is _In.HEAD else data

    def _head(self, data: bytes) -> bytes:
        seen, head = len(self._held), self._held + data
        start = 0
        while end := _END_OF_HEAD.search(head, start):
            one = head[start : end.end()]
            start = end.end()
            if not _INTERIM.match(one):
                self._held = b""
                is_merged = _CHUNKED.match(one) and one.endswith(b"\r\n\r\n")
                self._in = _In.BODY if is_merged else _In.REST
                return head[seen:start] + self.feed(head[start:])
        self._held = head[start:]
        if len(self._held) > MAX_HEAD_BYTES:
            self._in = _In.REST
        return data

    def _merge(self, data: bytes) -> bytes:
        data = self._held + data
        at = min(self._left, len(data))
        parts = [data[:at]]
        self._left -= at
        while not self._left:
            size = (_NEXT if self._size_was_read else _FIRST).match(data, at)
            if size is None:
                break
            self._size_was_read = True
            end = size.end() + int(size[1], 16)
            part = data[size.end() : end]
            parts.append(part)
            at = size.end() + len(part)
            self._left = end - at
        return self._framed(b"".join(parts)) + self._kept(data[at:])

    def _framed(self, body: bytes) -> bytes:
        """Frame as one chunk. Its footer is sent with the following data, because only then is it known to be right."""
        if not body:
            return b""
        footer = b"\r\n" if self._footer_is_owed else b""
        self._footer_is_owed = True
        return b"%b%x\r\n%b" % (footer, len(body), body)

    def _kept(self, rest: bytes) -> bytes:
        """Hold back bytes that may become a size; else return them, and pass on everything after them unchanged."""
        begun = _BEGUN_NEXT if self._size_was_read else _BEGUN_FIRST
        if begun.fullmatch(rest):
            self._held = rest
            return b""
        self._held = b""
        self._in = _In.REST
        return rest
