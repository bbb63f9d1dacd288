"""Errors of images."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager

from ferrule.protocol.errors import FerruleError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class ImageError(FerruleError):
    """An image cannot be read, imported, used or removed: one sentence that says what to do."""


class UnknownImage(ImageError):
    """There is no image of this name."""


@contextmanager
def explained(path: str | bytes | os.PathLike[str]) -> Iterator[None]:
    """Raise errors of the file system as `ImageError`; `path` is what was worked on."""
    try:
        yield
    except OSError as error:
        name = os.fsdecode(path)
        if error.errno in FULL:
            text = (
                f"there is no space left to write {name}: free some, or set FERRULE_HOME to a folder on a larger disk"
            )
        else:
            text = f"{name}: {error.strerror or error}"
        raise ImageError(text) from error
