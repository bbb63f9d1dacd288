"""The request and the result of a search, the same for ripgrep and for Python."""

import heapq
import os
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from ferrule.kernel_files import Shown

SEARCH_SECONDS = 30.0
"""After this a search is given up: its pattern or its place is too wide to be useful."""
COLUMNS = 4096
"""Bytes of one line that are taken from ripgrep; less is shown."""


class Search(msgspec.Struct, frozen=True, kw_only=True):
    """A search below `path` (absolute; a file or a folder), started in `cwd`, where `include` is rooted.

    `pattern` None lists files. `lines`: the matching lines are wanted, with `before` and `after` lines around them,
    else only which files match: all, or the `newest` ones. `hidden`: hidden files count too (never `.git`). Nothing
    outside of the folders `shown` is read.
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
    newest: int | None = None
    shown: Shown = None


class FoundLine(NamedTuple):
    """A line of a file: its 1-based number, its first bytes, and whether it matches or is only near a match."""

    path: str
    number: int
    text: bytes
    matches: bool


class Found(msgspec.Struct, frozen=True):
    """The result of a search. `files` are paths, last changed first; `count` is their number before the cut to the
    newest. `warnings` are sentences on what could not be searched; `cut`: there were more lines."""

    files: list[str] = []
    count: int = 0
    lines: list[FoundLine] = []
    warnings: list[str] = []
    cut: bool = False


class Dated:
    """Collects files with the time of their last change, cheaply: there can be very many."""

    def __init__(self) -> None:
        self._names: list[bytes] = []
        self._ages: list[int] = []

    def add(self, names: Sequence[bytes]) -> None:
        """Look at files. One that went meanwhile, or that cannot be looked at, counts as the oldest."""
        for name in names:
            try:
                age = -os.stat(name).st_mtime_ns
            except OSError:
                age = 0
            self._names.append(name)
            self._ages.append(age)

    def newest(self, limit: int | None) -> list[str]:
        """Return the paths, the last changed first, those of the same time by name."""
        aged = zip(self._ages, self._names, strict=True)
        chosen = sorted(aged) if limit is None else heapq.nsmallest(limit, aged)
        return [os.fsdecode(name) for _, name in chosen]

    def __len__(self) -> int:
        return len(self._names)
