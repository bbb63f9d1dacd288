"""Errors of images."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from ferrule.protocol.errors import FerruleError

LONGEST_NAME = 100
"""Characters of a name from an image in an error: some have thousands."""
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class ImageError(FerruleError):
    """An image cannot be read, imported, used or removed: one sentence that says what to do."""


class UnknownImage(ImageError):
    """There is no image of this name."""


def readable(name: str | bytes) -> str:
    """Return what an image calls something as people can read it: short, and nothing that moves a terminal's cursor."""
    text = name.decode(errors="backslashreplace") if isinstance(name, bytes) else name
    if len(text) > LONGEST_NAME:
        text = f"{text[:LONGEST_NAME]}..."
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


@contextmanager
def explained(path: str | bytes | os.PathLike[str]) -> Iterator[None]:
    """Raise errors of the file system as `ImageError`; `path` is what was worked on, in bytes if an image says so."""
    try:
        yield
    except OSError as error:
        name = readable(path) if isinstance(path, bytes) else os.fspath(path)
        if error.errno in FULL:
            text = (
                f"there is no space left to write {name}: free some, or set FERRULE_HOME to a folder on a larger disk"
            )
        else:
            text = f"{name}: {error.strerror or error}"
        raise ImageError(text) from error
