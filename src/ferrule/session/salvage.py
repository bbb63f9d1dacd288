"""Read all that can be read of a session file, whatever an editor, a crash or another program did to it.

Intact lines are read as they are. Unreadable lines are searched for records: one after a torn write, two on one line,
one over several lines. No more than one line, or one run of unreadable lines, is in memory at a time.
"""

import codecs
import json
import re
from collections.abc import Generator, Iterator
from typing import BinaryIO, NamedTuple

import msgspec

LONGEST_LINE = 64 * 1024 * 1024
"""Bytes of a line; a longer one is passed over. No server takes a request as large as this."""
MOST_BROKEN = 16 * 1024 * 1024
"""Bytes of unreadable lines that are searched together for records."""
BLOCK = 1024 * 1024
"""Bytes read at once."""
_BOMS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16", b"\xef\xbb\xbf": "utf-8-sig"}
_PADDING = b" \t\r\0"
"""Bytes around a line: other line ends, and the zeros of a file that grew before it was written."""
_RECORD = re.compile(r'\{\s*"(?:timestamp|type|payload)"')


class Line(msgspec.Struct):
    """One record."""

    type: str
    payload: msgspec.Raw
    origin: msgspec.Raw = msgspec.Raw()
    timestamp: str = ""


_decode = msgspec.json.Decoder(Line).decode
_decoder = json.JSONDecoder(strict=False)


def read_line(text: bytes | str) -> Line | None:
    """Read one record; None for anything else."""
    try:
        return _decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def encoding_of(beginning: bytes) -> str | None:
    """Return the encoding that the first bytes of a file name; None where they name none: it is UTF-8."""
    return _BOMS.get(beginning[:2]) or _BOMS.get(beginning[:3])


class Salvage:
    """The records of a file from where it stands, one after another. `damaged` counts the lines so far that could not
    be read in full."""

    def __init__(self, file: BinaryIO) -> None:
        self.damaged = 0
        self._file = file

    def __iter__(self) -> Iterator[Line]:
        broken: list[bytes] = []
        size = 0
        before = b""
        for raw in self._lines():
            text = raw.strip(_PADDING)
            line = read_line(text) if text else None
            if line is None:
                broken += [text] if text else []
                size += len(text)
                if size > MOST_BROKEN:
                    broken = yield from self._search(broken, more=True)
                    size = sum(map(len, broken))
                continue
            if broken:
                yield from self._search(broken)
            if text != before or line.type != "response_item":  # a line that an editor copied says nothing new
                yield line
            broken, size, before = [], 0, text
        yield from self._search(broken)

    def _lines(self) -> Iterator[bytes]:
        parts: list[bytes] = []
        size = 0
        for block in self._blocks():
            first, *others = block.split(b"\n")
            piece = first if parts else first.lstrip(_PADDING)
            size += len(piece)
            if size <= LONGEST_LINE:
                parts += [piece] if piece else []
            if others:
                yield self._joined(parts, size)
                yield from others[:-1]
                begun = others[-1].lstrip(_PADDING)
                parts, size = [begun] if begun else [], len(begun)
        yield self._joined(parts, size)

    def _joined(self, parts: list[bytes], size: int) -> bytes:
        """Return a line, without the content of one that is too long."""
        if size <= LONGEST_LINE:
            return b"".join(parts)
        self.damaged += 1
        return b""

    def _blocks(self) -> Iterator[bytes]:
        start = self._file.tell()
        encoding = None if start else encoding_of(self._file.read(3))
        self._file.seek(start)
        if encoding is None:
            while block := self._file.read(BLOCK):
                yield block
            return
        decoder = codecs.getincrementaldecoder(encoding)(errors="replace")
        while block := self._file.read(BLOCK):
            yield decoder.decode(block).encode(errors="replace")
        yield decoder.decode(b"", final=True).encode(errors="replace")

    def _search(self, broken: list[bytes], *, more: bool = False) -> Generator[Line, None, list[bytes]]:
        """Yield the records found in unreadable lines, and count the lines that are not read in full. With `more`, the
        last one may go on: return what stands after the records."""
        if not broken:
            return []
        data = b"\n".join(broken)
        text = data.decode(errors="replace")
        found = read = end = 0
        for record in _records(text):
            yield record.line
            found, read, end = found + 1, read + record.size, record.end
        rest = text[end:] if more and found else ""
        whole = read == len("".join(text.split())) - len("".join(rest.split())) and text.encode() == data
        self.damaged += 0 if whole else 1 if rest else max(len(broken) - found, 1)
        return [rest.encode()] if rest else []


class _Record(NamedTuple):
    """A record found in a text: its number of characters besides white space, and where it ends."""

    line: Line
    size: int
    end: int


def _records(text: str) -> Iterator[_Record]:
    at = 0
    while (start := _RECORD.search(text, at)) is not None:
        at = start.start() + 1
        try:
            value, end = _decoder.raw_decode(text, start.start())
        except (ValueError, RecursionError):
            continue
        record = text[start.start() : end]
        line = read_line(json.dumps(value, separators=(",", ":")) if "\n" in record else record)
        if line is not None:
            at = end
            yield _Record(line, len("".join(record.split())), end)
