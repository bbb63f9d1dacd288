"""What the readers of repositories share: names of a folder, and whether a file is as it was."""

import os
from itertools import islice

from ferrule.reading import Unreadable

Stamp = tuple[int, int, int, int]
"""Device, inode, size in bytes and change time in ns: what tells that a file is as it was."""


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
        raise Unreadable(f"cannot be read: {error.strerror}") from error
    if len(names) > most:
        raise Unreadable(f"holds more than {most} files")
    return sorted(names)
