"""What is searched for, and what was found: the same for ripgrep and for Python."""

from typing import NamedTuple

import msgspec

SEARCH_SECONDS = 30.0
"""After this a search is given up: its pattern or its place is too wide to be useful."""
COLUMNS = 4096
"""Bytes of one line that are taken from ripgrep; less is shown."""


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """A search below `path` (absolute; a file or a folder), started in `cwd`, where `include` is rooted.

    `pattern` None lists files. `lines`: the matching lines are wanted, with `before` and `after` lines around them,
    else only which files match. `hidden`: hidden files count too (never `.git`).
    """

    path: str
    cwd: str
    pattern: str | None = None
    include: str | None = None
    ignore_case: bool = False
    lines: bool = False
    before: int = 0
    after: int = 0
    hidden: bool = False


class FoundFile(NamedTuple):
    """A file that matches, and when it was last changed (nanoseconds; 0 where that cannot be asked)."""

    path: str
    modified: int


class FoundLine(NamedTuple):
    """A line of a file: its 1-based number, its first bytes, and whether it matches or only stands beside a match."""

    path: str
    number: int
    text: bytes
    matches: bool


class Found(msgspec.Struct, frozen=True):
    """What a search found. `warnings` are sentences on what could not be searched; `cut`: there was more."""

    files: list[FoundFile] = []
    lines: list[FoundLine] = []
    warnings: list[str] = []
    cut: bool = False


def newest_first(files: list[FoundFile]) -> list[FoundFile]:
    """Sorted by the time of the last change, then by path."""
    return sorted(files, key=lambda file: (-file.modified, file.path))
