"""What a workspace starts from."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from ferrule.containers.images.errors import FULL
from ferrule.protocol.errors import FerruleError


class WorkspaceError(FerruleError):
    """A workspace cannot be made, or has no patch: one sentence that says what to do."""


class Empty(msgspec.Struct, frozen=True):
    """Nothing."""


class Folder(msgspec.Struct, frozen=True):
    """A folder as it is when the first of its workspaces is entered; what is ignored and `.git` are part of it."""

    path: str


class Repository(msgspec.Struct, frozen=True):
    """The commit at HEAD of a git repository, a worktree's top folder or a bare one. What is not committed is left
    out."""

    path: str


Source = Empty | Folder | Repository


@contextmanager
def explained(place: Path) -> Iterator[None]:
    """Raise errors of the file system as `WorkspaceError`; `place` is what was written."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            text = f"there is no space left to write {place}: free some, or keep the results on a larger disk"
        else:
            text = f"{error.filename or place}: {error.strerror or error}"
        raise WorkspaceError(text) from error
