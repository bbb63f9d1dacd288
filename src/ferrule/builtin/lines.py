"""Lines of a file by their numbers, in flat memory however long the file or a line of it is."""

import errno
import os
from codecs import BOM_UTF8
from collections.abc import Callable, Iterator
from io import BytesIO, FileIO

from ferrule.patch.encoding import PLAIN, Encoding
from ferrule.patch.text import CR, LF, decoded, ends_with_cr
from ferrule.protocol.errors import RespondToModel

BLOCK = 1024 * 1024
"""Bytes read at once while lines are only counted."""
PROBE = 8 * 1024
"""A NUL among this many first bytes makes a file binary, as for git and ripgrep."""
KEPT = 4096
"""Bytes kept of one line; more is never shown."""

MAX_TEXT = 10 * 1024 * 1024
"""Nobody edits larger texts; they are read as UTF-8 only."""

Source = FileIO | BytesIO
_NULS = bytes(BLOCK)
_CUT_CHARACTER = 3
"""Bytes at the end of a line that was cut which may be the start of a character."""


def read_lines(file: FileIO, path: str, take: Callable[[Source], list[bytes]]) -> tuple[list[bytes], Encoding]:
    """Return the lines that `take` selects, as UTF-8, and the file's encoding. `take` gets the file at its start; if
    that is no UTF-8, it is called again with the decoded text. Raises `RespondToModel` for a binary file."""
    start = _read(file, PROBE)
    is_wide = b"\0" in start or start.startswith(_WIDE_MARKS)
    has_lines = b"\n" in start or b"\r" not in start
    if has_lines and not is_wide:
        lines = _taken(file, start, take)
        if all(map(_is_utf8, lines)):
            return lines, PLAIN
    text, encoding = _whole(file)
    if ends_with_cr(text):
        text = text.replace(CR, LF)
    elif encoding.is_utf8:
        if is_wide:
            raise RespondToModel(binary(path, start))
        return _taken(file, start, take), PLAIN
    return take(BytesIO(PLAIN.encode(text.removeprefix("\ufeff")))), encoding


def _taken(file: FileIO, start: bytes, take: Callable[[Source], list[bytes]]) -> list[bytes]:
    file.seek(len(BOM_UTF8) if start.startswith(BOM_UTF8) else 0)
    return take(file)


def binary(path: str, start: bytes) -> str:
    """Describe a file whose bytes are not text."""
    from ferrule.patch.guess import marked_encoding

    marked = marked_encoding(start)
    return f"{path} is a binary file" + (f": it starts like {marked}, and the rest is not" if marked else "")


_WIDE_MARKS = (b"\xff\xfe", b"\xfe\xff")


def _is_utf8(line: bytes) -> bool:
    try:
        line.decode()
    except UnicodeDecodeError as error:
        return len(line) >= KEPT and error.start >= len(line) - _CUT_CHARACTER
    return True


def _whole(file: FileIO) -> tuple[str, Encoding]:
    """Return the text and the encoding of a file; no text if it is too large."""
    if os.fstat(file.fileno()).st_size > MAX_TEXT:
        return "", PLAIN
    file.seek(0)
    return decoded(_read(file, MAX_TEXT))


def skip_lines(file: Source, count: int) -> bool:
    """Move from the start of a line over `count` lines. False: the file ended before; nothing follows."""
    if count <= 0:
        return True
    block = bytearray(BLOCK)
    while size := _read_into(file, block):
        ends = block.count(b"\n", 0, size)
        if ends < count:
            count -= ends
            if not ends and block == _NULS:
                _skip_hole(file)
            continue
        position = -1
        for _ in range(count):
            position = block.find(b"\n", position + 1, size)
        file.seek(position + 1 - size, os.SEEK_CUR)
        return True
    return False


def lines_from(file: Source) -> Iterator[bytes]:
    """Return the lines from here on, without their newline, each at most `KEPT` bytes. An empty rest is no line."""
    rest = b""
    dropping = False
    while block := _read(file, 64 * 1024):
        first, newline, more = block.partition(b"\n")
        if not dropping:
            rest = (rest + first)[:KEPT] if len(rest) < KEPT else rest
        if not newline:
            dropping = len(rest) >= KEPT
            if dropping and block.count(0) == len(block):
                _skip_hole(file)
            continue
        yield rest
        dropping = False
        *middle, rest = more.split(b"\n")
        for line in middle:
            yield line[:KEPT]
    if rest:
        yield rest


def _skip_hole(file: Source) -> None:
    """From within zeros to the next byte that is stored: a sparse file can hold more zeros than anybody can read."""
    if not hasattr(os, "SEEK_DATA") or isinstance(file, BytesIO):
        return
    try:
        file.seek(os.lseek(file.fileno(), file.tell(), os.SEEK_DATA))
    except OSError as error:
        if error.errno == errno.ENXIO:
            file.seek(0, os.SEEK_END)
        elif error.errno not in (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOTSUP):
            raise


def _read(file: Source, size: int) -> bytes:
    data = file.read(size)
    if data is None:
        raise _would_wait()
    return data


def _read_into(file: Source, block: bytearray) -> int:
    size = file.readinto(block)
    if size is None:
        raise _would_wait()
    return size


def _would_wait() -> OSError:
    """Build the error for a file of the kernel (`/proc/kmsg`) that has nothing to read yet."""
    return BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))


def count_lines(file: Source) -> int:
    """Count the lines of a file; a last one without a newline counts."""
    file.seek(0)
    block = bytearray(BLOCK)
    count, last = 0, 0x0A
    while size := _read_into(file, block):
        count += block.count(b"\n", 0, size)
        last = block[size - 1]
    return count + (last != 0x0A)
