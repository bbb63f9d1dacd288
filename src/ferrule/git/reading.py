"""Helpers for reading repositories: list a folder, and tell whether a file has changed."""

import os
from itertools import islice

from ferrule.reading import Unreadable

Stamp = tuple[int, int, int, int]
"""Device, inode, size in bytes and change time in ns: equal stamps mean that a file has not changed."""


def stamp(path: str) -> Stamp | None:
    """Return the stamp of the file at `path`, following links; None if there is none, or it cannot be read."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return status.st_dev, status.st_ino, status.st_size, status.st_ctime_ns


def names_in(folder: str, most: int) -> list[str]:
    """Return the sorted names in a folder; none if it is missing. Raises `Unreadable`, also for more than `most`."""
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
