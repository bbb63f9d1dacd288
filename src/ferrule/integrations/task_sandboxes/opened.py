"""Read and write a file that was opened inside a sandbox. Commands chose what it is: only regular files are touched."""

import asyncio
import errno
import os
import stat
from collections.abc import Callable
from io import FileIO
from typing import TypeVar

from ferrule.integrations.task_sandboxes.wanted import TooLarge

INLINE_BYTES = 1 << 20
"""More is read and written in a thread: it takes milliseconds."""
TO_READ = os.O_RDONLY
TO_WRITE = os.O_WRONLY | os.O_CREAT
IRREGULAR = "Not a regular file"
T = TypeVar("T")


async def read_opened(fd: int, path: str, limit: int) -> bytes:
    """Read it all, and close it. Raises `OSError` and `TooLarge`."""
    with FileIO(fd) as file:
        found = _regular(fd, path, stat.S_IRUSR)
        if found.st_size > limit:
            raise TooLarge(f"{path} is larger than {limit} bytes")
        return await _by_size(found.st_size, lambda: _read(file, path, limit))


async def write_opened(fd: int, path: str, content: bytes) -> None:
    """Replace its content, and close it. Raises `OSError`."""
    with FileIO(fd, "w") as file:
        _regular(fd, path, stat.S_IWUSR)
        await _by_size(len(content), lambda: _write(file, content))


def _regular(fd: int, path: str, right: int) -> os.stat_result:
    """Return what it is. Its owner must have the right, although root is refused nothing: what evaluations expect."""
    found = os.fstat(fd)
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not stat.S_ISREG(found.st_mode):
        raise PermissionError(errno.EACCES, IRREGULAR, path)
    if not found.st_mode & right:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
    return found


async def _by_size(size: int, work: Callable[[], T]) -> T:
    return work() if size <= INLINE_BYTES else await asyncio.to_thread(work)


def _read(file: FileIO, path: str, limit: int) -> bytes:
    """Read to the end, which may be beyond the size: it can grow, and files of the kernel have none."""
    pieces, left = [], limit + 1
    while left and (piece := file.read(min(left, INLINE_BYTES))):
        pieces.append(piece)
        left -= len(piece)
    if not left:
        raise TooLarge(f"{path} is larger than {limit} bytes")
    return b"".join(pieces)


def _write(file: FileIO, content: bytes) -> None:
    file.truncate(0)
    left = memoryview(content)
    while left:
        left = left[file.write(left) :]


def refusal(error: OSError, path: str) -> OSError:
    """Return an error of the kernel as one that evaluations know: what is not there or cannot be, is not found; what
    nobody can write, is not permitted."""
    number = error.errno or errno.EIO
    if number in (errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG):
        number = errno.ENOENT
    elif number in (errno.ENXIO, errno.ENODEV):  # a pipe that nobody reads, a device without a driver
        return PermissionError(errno.EACCES, IRREGULAR, path)
    elif number in (errno.EROFS, errno.ETXTBSY, errno.EPERM):
        return PermissionError(errno.EACCES, os.strerror(number), path)
    elif number == errno.EEXIST:  # a file where a folder is needed
        return PermissionError(errno.EACCES, "A file is in the place of a folder", path)
    return OSError(number, os.strerror(number), path)
