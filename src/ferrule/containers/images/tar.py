"""Read a tar archive once, from its beginning to its end, in bounded memory.

The formats are those of POSIX (ustar, PAX) and GNU (long names, sparse files): https://www.gnu.org/software/tar/manual,
"Tar Internals". The standard library's reader takes extended headers of any size into memory, and takes damage for the
end of the archive.
"""

from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Protocol

import msgspec

from ferrule.containers.images.errors import ImageError
from ferrule.containers.images.limits import MAX_EXTENTS, MAX_HEADER
from ferrule.containers.images.streams import BLOCK, Readable

RECORD = 512
NEGATIVE = "an archive has a negative number in a header: it is damaged"
_ZEROS = bytes(RECORD)
_XATTR = b"SCHILY.xattr."
_SPARSE = b"GNU.sparse."
_PIECES = b"pieces"
"""Our key for the pieces of sparse format 0.0, whose keys repeat."""
Extents = list[tuple[int, int]]
"""Offset and length of the pieces of a sparse file that are not holes."""


class Kind(Enum):
    """The kind of an entry."""

    FILE = "file"
    FOLDER = "folder"
    SYMLINK = "symbolic link"
    LINK = "hard link"
    DEVICE = "device"
    FIFO = "named pipe"


_KINDS = {
    b"0": Kind.FILE,
    b"\0": Kind.FILE,
    b"7": Kind.FILE,
    b"S": Kind.FILE,
    b"1": Kind.LINK,
    b"2": Kind.SYMLINK,
    b"3": Kind.DEVICE,
    b"4": Kind.DEVICE,
    b"5": Kind.FOLDER,
    b"6": Kind.FIFO,
}


class Entry(msgspec.Struct):
    """One entry. `size` is what the file has, holes included; `stored`, the bytes that follow in the archive."""

    name: bytes
    kind: Kind
    mode: int
    user: int
    group: int
    modified_ns: int
    size: int
    stored: int
    target: bytes
    attributes: dict[bytes, bytes]
    extents: Extents | None = None


class Source(Readable, Protocol):
    """A source to read an archive from."""

    def skip(self, size: int) -> None:
        """Pass over so many bytes, or all that there are."""
        ...


class TarReader:
    """Yields the entries. The data of the entry yielded last can be read with `pieces` until the next is asked for."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._left = 0
        self._padding = 0
        self._everywhere: dict[bytes, bytes] = {}
        self._room = MAX_HEADER
        self.offset = 0
        """Where the data of the entry begins."""

    def __iter__(self) -> Iterator[Entry]:
        """Raises `ImageError` for what is damaged or no archive."""
        while (header := self._header()) is not None:
            yield self._entry(header)
            self._pass(self._left + self._padding)

    def pieces(self) -> Iterator[bytes]:
        """Yield the stored data of the entry."""
        while self._left:
            yield self._some(min(self._left, BLOCK))

    def _entry(self, header: bytes) -> Entry:
        """Return the entry that a header begins, with the headers that extend it."""
        name = target = None
        own: dict[bytes, bytes] = {}
        room = MAX_HEADER
        while (kind := header[156:157]) in b"xgXLK":
            data = self._extension(header, room)
            room -= len(data)
            if kind == b"L":
                name = _text(data)
            elif kind == b"K":
                target = _text(data)
            elif kind == b"g":
                self._room -= len(data)
                self._everywhere |= _records(data)
            else:
                own |= _records(data)
            following = self._header()
            if following is None:
                raise ImageError("an archive ends after an extended header: fetch it again")
            header = following
        records = {key: value for key, value in (self._everywhere | own).items() if value}
        return self._finish(header, records, name, target)

    def _extension(self, header: bytes, room: int) -> bytes:
        size = _number(header[124:136])
        if size > min(room, self._room):
            raise ImageError(f"extended headers have {size:,} bytes and more: no honest archive needs that")
        if size < 0:
            raise ImageError(NEGATIVE)
        data = self._exactly(size)
        self._pass(-size % RECORD)
        return data

    def _finish(self, header: bytes, records: dict[bytes, bytes], name: bytes | None, target: bytes | None) -> Entry:
        kind = _KINDS.get(header[156:157])
        if kind is None:
            raise ImageError(f"an archive has an entry of the unknown kind {header[156:157]!r}: make it with GNU tar")
        whole = records.get(b"path", name if name is not None else _name(header))  # that of the header may be cut off
        entry = Entry(
            name=whole,
            kind=Kind.FOLDER if kind is Kind.FILE and whole.endswith(b"/") else kind,
            mode=_number(header[100:108]) & 0o7777,
            user=_decimal(records, b"uid", header[108:116]),
            group=_decimal(records, b"gid", header[116:124]),
            modified_ns=_time(records, header),
            size=_decimal(records, b"size", header[124:136]),
            stored=0,
            target=records.get(b"linkpath", target if target is not None else _text(header[157:257])),
            attributes={key.removeprefix(_XATTR): value for key, value in records.items() if key.startswith(_XATTR)},
        )
        if min(entry.size, entry.user, entry.group) < 0:
            raise ImageError(NEGATIVE)
        entry.stored = entry.size if entry.kind is Kind.FILE else 0
        entry.size = entry.stored
        self._left, self._padding = entry.stored, -entry.stored % RECORD
        if header[156:157] == b"S":
            self._old_sparse(header, entry)
        elif any(key.startswith(_SPARSE) for key in records):
            self._new_sparse(records, entry)
        return entry

    def _old_sparse(self, header: bytes, entry: Entry) -> None:
        """GNU's own format: the map stands in the header, and in records after it."""
        extents = _extents(header[386:482])
        extended, entry.size = header[482], _number(header[483:495])
        while extended:
            more = self._exactly(RECORD)
            extents += _extents(more[:504])
            extended = more[504]
            _check_count(len(extents))
        self._left, self._padding = entry.stored, -entry.stored % RECORD
        _set_extents(entry, extents)

    def _new_sparse(self, records: Mapping[bytes, bytes], entry: Entry) -> None:
        """PAX: the map stands in the header (formats 0.0 and 0.1) or before the data (1.0)."""
        entry.name = records.get(_SPARSE + b"name", entry.name)
        size = records.get(_SPARSE + b"realsize", records.get(_SPARSE + b"size", b""))
        entry.size = _integer(size)
        if records.get(_SPARSE + b"major") == b"1":
            numbers = self._map_before_data(entry)
        else:
            numbers = [_integer(one) for one in records.get(_SPARSE + b"map", records.get(_PIECES, b"")).split(b",")]
        _set_extents(entry, list(zip(numbers[::2], numbers[1::2], strict=False)))

    def _map_before_data(self, entry: Entry) -> list[int]:
        """Read lines of digits: the number of pieces, then offset and length of each; padded to a whole record."""
        text, lines, wanted = bytearray(), 0, 1
        while lines < wanted:
            if self._left < RECORD:
                raise ImageError("the map of a sparse file is damaged: fetch the archive again")
            record = self._exactly(RECORD)
            self._left -= RECORD
            entry.stored -= RECORD
            text += record
            if not lines and b"\n" in text:
                count = _integer(bytes(text.partition(b"\n")[0]))
                _check_count(count)
                wanted = 2 * count + 1
            lines = text.count(b"\n") if lines == 0 else lines + record.count(b"\n")
        return [_integer(line) for line in bytes(text).split(b"\n")[1:wanted]]

    def _header(self) -> bytes | None:
        """Read a header; None at the end of the archive: a record of zeros, or nothing more."""
        header = self._source.read(RECORD)
        while 0 < len(header) < RECORD and (more := self._source.read(RECORD - len(header))):
            header += more
        self.offset += len(header)
        if not header or header == _ZEROS:
            return None
        if len(header) < RECORD:
            raise ImageError("an archive ends too early: fetch it again")
        if not _sum_is_right(header):
            raise ImageError("it is no tar archive, or a damaged one: fetch it again")
        return header

    def _some(self, most: int) -> bytes:
        piece = self._source.read(most)
        if not piece:
            raise ImageError("an archive ends too early: fetch it again")
        self.offset += len(piece)
        self._left -= len(piece)
        return piece

    def _exactly(self, size: int) -> bytes:
        """Read bytes that are no data of an entry."""
        data = self._source.read(size) if size else b""
        while len(data) < size:
            more = self._source.read(size - len(data))
            if not more:
                raise ImageError("an archive ends too early: fetch it again")
            data += more
        self.offset += size
        return data

    def _pass(self, size: int) -> None:
        self._source.skip(size)
        self.offset += size


def _sum_is_right(header: bytes) -> bool:
    try:
        told = _number(header[148:156])
    except ImageError:
        return False
    return told == sum(header) - sum(header[148:156]) + 8 * ord(" ")


def _name(header: bytes) -> bytes:
    name = _text(header[:100])
    prefix = _text(header[345:500]) if header[257:263] == b"ustar\0" else b""
    return prefix + b"/" + name if prefix else name


def _text(field: bytes) -> bytes:
    return field.partition(b"\0")[0]


def _number(field: bytes) -> int:
    """Read a number: octal digits, or binary with the top bit set (GNU)."""
    if field[0] & 0x80:
        value = int.from_bytes(field[1:], "big")
        return value - (1 << 8 * (len(field) - 1)) if field[0] == 0xFF else value
    digits = field.partition(b"\0")[0].strip()
    if digits.strip(b"01234567"):
        raise ImageError("an archive has a header with a wrong number: it is damaged")
    return int(digits or b"0", 8)


def _integer(text: bytes) -> int:
    if not text.isdigit() or len(text) > 20:
        raise ImageError("an archive has an extended header with a wrong number: it is damaged")
    return int(text)


def _decimal(records: Mapping[bytes, bytes], key: bytes, field: bytes) -> int:
    return _integer(records[key]) if key in records else _number(field)


def _time(records: Mapping[bytes, bytes], header: bytes) -> int:
    """Return nanoseconds. A time out of the kernel's range is 0: it is no reason to refuse an image."""
    told = records.get(b"mtime")
    if told is None:
        seconds, nanoseconds = _number(header[136:148]), 0
    else:
        whole, _, fraction = told.partition(b".")
        if not whole.removeprefix(b"-").isdigit() or fraction.strip(b"0123456789") or len(whole) > 20:
            return 0
        seconds, nanoseconds = int(whole), int((fraction + b"000000000")[:9])
    return seconds * 1_000_000_000 + nanoseconds if abs(seconds) < 1 << 33 else 0


def _records(data: bytes) -> dict[bytes, bytes]:
    """Read the records of a PAX header: LENGTH KEY=VALUE and a line break, the length of all of it."""
    found: dict[bytes, bytes] = {}
    pieces: list[bytes] = []
    at = 0
    while at < len(data):
        length, _, _ = data[at : at + 20].partition(b" ")
        size = int(length) if length.isdigit() else 0
        record = data[at + len(length) + 1 : at + size]
        key, sign, value = record[:-1].partition(b"=")
        if not size or not sign or record[-1:] != b"\n" or at + size > len(data):
            raise ImageError("an archive has an extended header that is damaged: fetch it again")
        if key in (_SPARSE + b"offset", _SPARSE + b"numbytes"):
            pieces.append(value)
        found[key] = value
        at += size
    if pieces:
        found[_PIECES] = b",".join(pieces)
    return found


def _extents(area: bytes) -> Extents:
    """Read a map of GNU's own format: offset and length, 12 digits each."""
    found = []
    for at in range(0, len(area), 24):
        if area[at] == 0:
            break
        found.append((_number(area[at : at + 12]), _number(area[at + 12 : at + 24])))
    return found


def _check_count(count: int) -> None:
    if count > MAX_EXTENTS:
        raise ImageError(f"a sparse file has more than {MAX_EXTENTS:,} pieces: no honest archive has that")


def _set_extents(entry: Entry, extents: Extents) -> None:
    _check_count(len(extents))
    end = 0
    for offset, length in extents:
        if offset < end:
            raise ImageError("the pieces of a sparse file overlap: the archive is damaged")
        end = offset + length
    if end > entry.size or sum(length for _, length in extents) != entry.stored:
        raise ImageError("the pieces of a sparse file do not fit it: the archive is damaged")
    entry.extents = extents
