"""A directory tree as one sorted sequence, each directory read only when the sequence comes to what is in it."""

import os
from collections.abc import Iterator
from typing import NamedTuple


class Entry(NamedTuple):
    """`level` is 0 for what stands in the root; `label` tells its kind: `/`, `@`, `?`, or nothing for a file."""

    name: str
    level: int
    label: str


class Tree:
    """The entries down to `depth` levels, links not followed, in the order of their paths from the root.

    In that order `a-b` stands between the directory `a` and `a/x`, because `-` is less than `/`: so a directory's
    content is a second item `a/` beside `a`. A directory below that cannot be read is one of `problems`; iterating
    raises `OSError` for the root alone.
    """

    def __init__(self, root: str, depth: int) -> None:
        self._root = root
        self._depth = depth
        self.problems: list[str] = []

    def __iter__(self) -> Iterator[Entry]:
        pending = [iter(_items(self._root))]
        folders = [self._root]
        while pending:
            item = next(pending[-1], None)
            if item is None:
                pending.pop()
                folders.pop()
                continue
            key, label = item
            if label is not None:
                yield Entry(key, len(pending) - 1, label)
            elif len(pending) < self._depth:
                folder = f"{folders[-1]}/{key[:-1]}"
                try:
                    pending.append(iter(_items(folder)))
                    folders.append(folder)
                except OSError as error:
                    self.problems.append(f"{folder} ({error.strerror})")


def _items(folder: str) -> list[tuple[str, str | None]]:
    """The entries of a folder with their labels, and for each directory its content under `name/`, sorted."""
    items: list[tuple[str, str | None]] = []
    with os.scandir(folder) as entries:
        for entry in entries:
            name = entry.name
            if entry.is_symlink():
                items.append((name, "@"))
            elif entry.is_dir():
                items.append((name, "/"))
                items.append((f"{name}/", None))
            else:
                items.append((name, "" if entry.is_file() else "?"))
    items.sort(key=_key)
    return items


def _key(item: tuple[str, str | None]) -> str:
    return item[0]
