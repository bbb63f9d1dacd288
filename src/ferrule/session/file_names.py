"""The files of a workspace by what somebody remembers of their names."""

import heapq
import os
import re
from collections.abc import Iterator, Sequence
from itertools import islice

MOST_FILES = 300_000
"""Files that are looked at: beyond that a search tool is of more use."""


def files_below(folder: str) -> Iterator[str]:
    """Yield the paths, relative to `folder`, of the files below it that ignore files leave in."""
    from ferrule.ignores.walk import Walk

    for path in islice(Walk(folder, folder), MOST_FILES):
        yield os.path.relpath(path, folder)


def best(query: str, paths: Sequence[str], most: int) -> list[str]:
    """Return the paths whose letters hold those of `query` in this order, the closest first: in the file's name rather
    than in its folders, close together, and short."""
    if not query:
        return heapq.nsmallest(most, paths, key=lambda path: (path.count("/"), path))
    letters = query.lower()
    loose = re.compile("[^\n]*?".join(map(re.escape, letters)))
    found = (path for path in paths if loose.search(path.lower()))
    return heapq.nsmallest(most, found, key=lambda path: _distance(letters, path, loose))


def _distance(letters: str, path: str, loose: "re.Pattern[str]") -> tuple[int, int, int, str]:
    name = os.path.basename(path.rstrip("/")).lower()
    whole = path.lower()
    if letters in name:
        return (0 if name.startswith(letters) else 1, name.find(letters), len(path), path)
    if letters in whole:
        return (2, whole.find(letters), len(path), path)
    inside = loose.search(name)
    found = inside or loose.search(whole)
    assert found is not None
    return (3 if inside else 4, found.end() - found.start(), len(path), path)
