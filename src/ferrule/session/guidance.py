"""Tell the model what AGENTS.md files say: those on the way to the working directory before the user speaks, and those
of other folders of the project once a call has touched them."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import PurePath

from ferrule.config import project_root
from ferrule.execpolicy import visible
from ferrule.history.compaction import user_message
from ferrule.protocol.content import text_of
from ferrule.protocol.items import Message, ResponseItem
from ferrule.protocol.settings import Settings
from ferrule.reading import Unreadable, read_inside
from ferrule.tools.touched import Touched

AGENTS_FILE = "AGENTS.md"
OVERRIDE_FILE = "AGENTS.override.md"
"""Read instead of an AGENTS.md beside it: for one's own words, which are not committed."""
HEADING = "# AGENTS.md instructions for "
"""How each of the messages begins. The folder follows; by it history shows what has been told."""
MAX_DEPTH = 64
"""Folders below the project's top that are looked into: deeper ones are made by machines, and reading in each of them
takes as many steps as it is deep."""

Warn = Callable[[str], object]


class Guidance:
    """The AGENTS.md files of one session. A folder's file is told once, and anew after a compaction if the folder was
    touched since the one before. `warn` is told of a file that the model is not told, or not whole."""

    def __init__(self, settings: Settings, touched: Touched, warn: Warn) -> None:
        self._cwd = settings.cwd
        self._home = settings.home
        self._fallbacks = settings.project_doc_fallback_filenames
        self._limit = settings.project_doc_max_bytes
        self._touched = touched
        self._warn = warn
        here = os.path.realpath(settings.cwd)
        self._top = project_root(here)
        own = _way(self._top, os.path.realpath(settings.home))[-1:]
        self._above = frozenset([*_way(self._top, here), *own])
        """Folders whose file the opening tells: the user's own, too, where it lies in the project."""
        self._own = frozenset(map(self._shown, own))
        self.recall(())
        touched.add((here,))  # a session that goes on can have begun in another place

    def opening(self) -> Iterator[ResponseItem]:
        """Yield the messages before the user's first, and after a compaction, read anew. What has been told is known
        by `recall`, once they stand in history."""
        if not self._limit:
            return
        reader = Reader(self._limit, self._warn)
        text = agents_text(self._cwd, reader, fallbacks=self._fallbacks, home=self._home)
        if text:
            yield user_message(f"{HEADING}{visible(self._cwd, multiline=False)}\n\n{text}")
        for folder in self._visited:
            if folder not in self._above:
                yield from self._message(folder, reader)

    def fresh(self) -> Iterator[ResponseItem]:
        """Yield a message for each folder that calls have touched since the last time and whose file is not told."""
        for path in self._touched.take():
            for folder in self._way_to(path) if self._limit else ():
                self._visited[folder] = None
                shown = self._shown(folder)
                if shown not in self._looked:
                    self._looked.add(shown)
                    yield from self._message(folder, self._reader)

    def recall(self, items: Iterable[ResponseItem]) -> None:
        """Take from a history what it tells: that of a session that goes on, or after a compaction."""
        self._reader = Reader(self._limit, self._warn)
        self._visited: dict[str, None] = {}
        """Folders that calls have touched since the last compaction, with those above them, relative to the top."""
        self._named: set[str] = set()
        """The same folders as calls have named them, links not resolved: no path is looked at twice."""
        self._looked = set(self._own)
        """Folders whose file was looked for since the last compaction, as messages name them."""
        for item in items:
            if not isinstance(item.view, Message) or item.view.role != "user":
                continue
            text = text_of(item.view.content)
            if not text.startswith(HEADING):
                continue
            folder, _, told = text.removeprefix(HEADING).partition("\n")
            self._reader.room -= len(told.strip().encode())
            real = PurePath(os.path.realpath(folder))  # who is told of a folder was told of those above it
            self._looked.update(map(str, (real, *real.parents)))

    def _message(self, folder: str, reader: "Reader") -> Iterator[ResponseItem]:
        text = reader.read(self._top, _in(folder, (OVERRIDE_FILE, AGENTS_FILE, *self._fallbacks)))
        if text:
            yield user_message(f"{HEADING}{self._shown(folder)}\n\n{text}")

    def _shown(self, folder: str) -> str:
        """Return how a folder is named, in one line and any encoding."""
        return visible(os.path.normpath(os.path.join(self._top, folder)), multiline=False)

    def _way_to(self, path: str) -> Sequence[str]:
        """Return the folders from the project's top to the one that `path` is or lies in; none if it was named before,
        does not exist, or lies outside."""
        folder = path if os.path.isdir(path) else os.path.dirname(path)
        if folder in self._named or not os.path.isdir(folder):
            return ()
        self._named.add(folder)
        return _way(self._top, os.path.realpath(folder))


def agents_text(cwd: str, reader: "Reader", *, fallbacks: Sequence[str] = (), home: str | None = None) -> str:
    """Return the user's own AGENTS.md in `home`, then those of the repository from its top down to `cwd`, the more
    special later.

    In each folder the first that says something counts: `AGENTS.override.md`, `AGENTS.md`, then the `fallbacks`.
    """
    names = (OVERRIDE_FILE, AGENTS_FILE, *fallbacks)
    here = os.path.realpath(cwd)
    top = project_root(here)
    places = [(home, list(names[:2]))] if home else []
    places += [(top, _in(folder, names)) for folder in _way(top, here)]
    return "\n\n".join(filter(None, (reader.read(top, paths) for top, paths in places)))


class Reader:
    """Reads files until `room` bytes are used up. `warn` is told of one that is there but is not read: it is no regular
    file, a link out of the repository, or too long."""

    def __init__(self, room: int, warn: Warn) -> None:
        self.room = room
        self._warn = warn
        self._limit = room

    def read(self, top: str, paths: Iterable[str]) -> str:
        """Return the text of the first that says something."""
        for path in paths:
            room = max(self.room, 0)
            try:
                data = read_inside(top, path, room + 1, cut=True)
            except FileNotFoundError:
                continue
            except Unreadable as problem:
                self._warn(f"{os.path.join(top, path)} {problem}; the model is not told what it says")
                continue
            if not data.strip():
                continue
            if len(data) > room:
                how = "not told" if not room else f"told only as far as its first {room} bytes"
                limit = f"all such files may have {self._limit} bytes (project_doc_max_bytes)"
                self._warn(f"{os.path.join(top, path)} is {how}: {limit}")
            self.room = room - len(data[:room])
            return data[:room].decode(errors="replace").strip()
        return ""


def _in(folder: str, names: Iterable[str]) -> list[str]:
    return [os.path.normpath(os.path.join(folder, name)) for name in names]


def _way(top: str, folder: str) -> list[str]:
    """Return the folders from `top` down to `folder`, relative to `top`, `MAX_DEPTH` at most; none if it lies
    outside."""
    if not PurePath(folder).is_relative_to(top):
        return []
    parts = PurePath(folder).relative_to(top).parts[:MAX_DEPTH]
    return [os.path.join(*parts[:depth]) if depth else "." for depth in range(len(parts) + 1)]
