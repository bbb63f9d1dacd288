"""Read a small file that somebody else may have put there: never waits, never reads without end."""

import os
import stat
from itertools import islice

Stamp = tuple[int, int, int, int]
"""Device, inode, size in bytes and change time in ns: what tells that a file is as it was."""


class Unreadable(Exception):
    """A file that is there and cannot be read; the text is the reason."""


def read_file(path: str, largest: int) -> bytes | None:
    """The content of a regular file, links followed; None if there is none. Raises `Unreadable`.

    A file of the kernel (`/proc/self/environ`) says that it holds 0 bytes, and that is what is read of it.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise Unreadable(error.strerror or "cannot be opened") from error
    with os.fdopen(fd, "rb") as file:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise Unreadable("is no regular file")
        if status.st_size > largest:
            raise Unreadable(f"is larger than {largest} bytes")
        try:
            return file.read(status.st_size)
        except OSError as error:
            raise Unreadable(error.strerror or "cannot be read") from error


def stamp(path: str) -> Stamp | None:
    """The stamp of what lies at `path`, links followed; None if nothing does, or it cannot be told."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns


def names_in(folder: str, most: int) -> list[str]:
    """The sorted names in a folder; none if it is missing. Raises `Unreadable`, also for more than `most`."""
    try:
        with os.scandir(folder) as entries:
            names = [entry.name for entry in islice(entries, most + 1)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise Unreadable(error.strerror or "cannot be opened") from error
    if len(names) > most:
        raise Unreadable(f"has more than {most} entries")
    return sorted(names)
