"""Lines of a file by their numbers, in flat memory however long the file or a line of it is."""

import errno
import os
from collections.abc import Iterator
from io import FileIO

BLOCK = 1024 * 1024
"""Bytes read at once while lines are only counted."""
PROBE = 8 * 1024
"""A NUL among the first bytes of a file makes it binary, as it does for git and ripgrep."""
KEPT = 4096
"""Bytes kept of one line; more is never shown."""

_NULS = bytes(BLOCK)


def is_binary(file: FileIO) -> bool:
    """Whether the start of the file holds a NUL; UTF-16 counts as binary. The position goes back to the start."""
    start = _read(file, PROBE)
    file.seek(0)
    return b"\0" in start


def skip_lines(file: FileIO, count: int) -> bool:
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


def lines_from(file: FileIO) -> Iterator[bytes]:
    """The lines from here on, without their newline, each at most `KEPT` bytes. An empty rest is no line."""
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


def _skip_hole(file: FileIO) -> None:
    """From within zeros to the next byte that is stored: a sparse file can hold more zeros than anybody can read."""
    if not hasattr(os, "SEEK_DATA"):
        return
    try:
        file.seek(os.lseek(file.fileno(), file.tell(), os.SEEK_DATA))
    except OSError as error:
        if error.errno == errno.ENXIO:
            file.seek(0, os.SEEK_END)
        elif error.errno not in (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOTSUP):
            raise


def _read(file: FileIO, size: int) -> bytes:
    data = file.read(size)
    if data is None:
        raise _would_wait()
    return data


def _read_into(file: FileIO, block: bytearray) -> int:
    size = file.readinto(block)
    if size is None:
        raise _would_wait()
    return size


def _would_wait() -> OSError:
    """A file of the kernel (`/proc/kmsg`) that has nothing to say yet."""
    return BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))


def count_lines(file: FileIO) -> int:
    """The lines of the whole file; a last one without its newline counts."""
    file.seek(0)
    block = bytearray(BLOCK)
    count, last = 0, 0x0A
    while size := _read_into(file, block):
        count += block.count(b"\n", 0, size)
        last = block[size - 1]
    return count + (last != 0x0A)
