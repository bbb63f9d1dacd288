"""Find what git would run when the user works in a repository: hooks, settings, attributes, commands of a rebase.

Git itself is not run. Includes, shared repositories, worktrees and submodules are followed as git follows them.
"""

import os
import re
from collections.abc import Callable

import msgspec

from ferrule.git.config import ConfigError, decode_config, parse_config
from ferrule.git.harmless import is_harmless
from ferrule.git.layout import common_pointer, git_pointer
from ferrule.git.reading import Stamp, names_in, stamp
from ferrule.reading import Unreadable, read_file

LARGEST_FILE = 1 << 18
"""Bytes of a configuration file, attributes file or rebase list; those that git writes have a few kilobytes."""
UNREADABLE = "could not be read"
MAX_ENTRIES = 200
"""Names in one folder of hooks, worktrees or submodules: more than any project has."""
MAX_DIRECTORIES = 100
"""Git directories of one repository: itself, what it shares, its worktrees and submodules."""
MAX_INCLUDES = 10
"""Depth at which git, too, stops following includes."""
MAX_MODULE_DEPTH = 6
"""Folders between `modules` and a submodule, whose name may hold slashes."""
MAX_PLACES = 5000
"""Files and folders checked for one repository; a hundred git directories have fewer."""
LARGEST_SUM = 1 << 20
"""Bytes read for one repository: a second's work, while somebody waits."""
_BLANKS = " \t\r"


class Program(msgspec.Struct, frozen=True, order=True):
    """Something that would run a program, or could not be read: the file, the kind of entry (a configuration key,
    `hook`, `attribute`, `exec`, `UNREADABLE`), and its value."""

    file: str
    key: str
    value: str = ""


class Examination(msgspec.Struct, frozen=True):
    """What one repository would run, and the stamps of the files that were read."""

    programs: tuple[Program, ...]
    sources: dict[str, Stamp | None]

    def is_current(self, settled: int | None = None) -> bool:
        """Tell whether no file has changed since it was read, nor after `settled`, a time in ns."""
        return all(
            stamp(path) == before and (settled is None or before is None or before[-1] < settled)
            for path, before in self.sources.items()
        )


def examine(entry: str, is_users: Callable[[str], bool], *, bare: bool = False) -> Examination:
    """Examine the repository of a `.git` (folder, pointer or link), or a bare one. Blocking; changes nothing.

    A git directory for which `is_users` is true is skipped: its settings are the user's own.
    """
    walk = _Walk(is_users)
    walk.repository(entry, bare)
    return Examination(tuple(dict.fromkeys(walk.found)), walk.sources)


class _Walk(msgspec.Struct):
    is_users: Callable[[str], bool]
    found: list[Program] = msgspec.field(default_factory=list)
    sources: dict[str, Stamp | None] = msgspec.field(default_factory=dict)
    seen: set[str] = msgspec.field(default_factory=set)
    listed: set[str] = msgspec.field(default_factory=set)
    depths: dict[str, int] = msgspec.field(default_factory=dict)
    read: int = 0
    full: bool = False

    def repository(self, entry: str, bare: bool) -> None:
        if bare:
            self._directory(entry)
        else:
            self._pointed(entry, lambda: git_pointer(entry))

    def _directory(self, path: str) -> None:
        if not self._note(path) or not os.path.isdir(path):
            return
        git = os.path.realpath(path)
        if git in self.seen or self.is_users(git):
            return
        if len(self.seen) >= MAX_DIRECTORIES:
            self._unreadable(git, f"there are more than {MAX_DIRECTORIES} repositories behind it")
            return
        self.seen.add(git)
        for name in self._names(f"{git}/hooks"):
            self._hook(f"{git}/hooks/{name}")
        for name in ("config", "config.worktree"):
            self._config(f"{git}/{name}", 0)
        self._attributes(f"{git}/info/attributes")
        for name in ("rebase-merge/git-rebase-todo", "sequencer/todo"):
            self._steps(f"{git}/{name}")
        self._pointed(f"{git}/commondir", lambda: common_pointer(git))
        for name in self._names(f"{git}/worktrees"):
            self._directory(f"{git}/worktrees/{name}")
        self._modules(f"{git}/modules", 0)

    def _hook(self, path: str) -> None:
        if self._note(path) and not path.endswith(".sample") and _is_executable(path):
            self.found.append(Program(path, "hook"))

    def _config(self, file: str, depth: int) -> None:
        if self.depths.get(file, MAX_INCLUDES + 1) <= depth:
            return
        self.depths[file] = depth
        try:
            for entry in parse_config(decode_config(self._content(file))):
                if not is_harmless(entry):
                    self.found.append(Program(file, entry.key, entry.value))
                if entry.section in ("include", "includeif") and entry.name == "path" and depth < MAX_INCLUDES:
                    self._config(os.path.join(os.path.dirname(file), os.path.expanduser(entry.value)), depth + 1)
        except ConfigError as error:
            self._unreadable(file, str(error))

    def _attributes(self, file: str) -> None:
        """Find names of filters and drivers, which may start a program through the user's own configuration."""
        for line in self._lines(file):
            words = [word for word in re.split(f"[{_BLANKS}]+", line) if word]
            if words and not words[0].startswith("#"):
                self.found += [
                    Program(file, "attribute", word)
                    for word in words[1:]
                    if word.partition("=")[0] in ("filter", "diff", "merge")
                ]

    def _steps(self, file: str) -> None:
        for line in self._lines(file):
            if step := _EXEC.match(line):
                self.found.append(Program(file, "exec", step[1].strip(_BLANKS)))

    def _modules(self, folder: str, depth: int) -> None:
        place = os.path.realpath(folder)
        if place in self.listed:  # reached before, through a link
            return
        self.listed.add(place)
        names = self._names(folder)
        if depth and "HEAD" in names:
            self._directory(folder)
        elif depth <= MAX_MODULE_DEPTH:
            for name in names:
                self._modules(f"{folder}/{name}", depth + 1)

    def _lines(self, file: str) -> list[str]:
        """Split a file into lines, at line feeds only, as git does."""
        return self._content(file).decode("utf-8", "replace").split("\n")

    def _content(self, file: str) -> bytes:
        if not self._note(file) or self._is_full(self.read < LARGEST_SUM, file, f"{LARGEST_SUM >> 10} KiB to read"):
            return b""
        try:
            content = read_file(file, LARGEST_FILE)
        except FileNotFoundError:
            return b""
        except Unreadable as error:
            self._unreadable(file, str(error))
            return b""
        self.read += len(content)
        return content

    def _names(self, folder: str) -> list[str]:
        if not self._note(folder):
            return []
        try:
            return names_in(folder, MAX_ENTRIES)
        except Unreadable as error:
            self._unreadable(folder, str(error))
            return []

    def _pointed(self, file: str, pointer: Callable[[], str | None]) -> None:
        """Examine the git directory that a pointer leads to."""
        if not self._note(file):
            return
        try:
            path = pointer()
        except Unreadable as error:
            self._unreadable(file, str(error))
        else:
            if path is not None:
                self._directory(path)

    def _unreadable(self, file: str, reason: str) -> None:
        self.found.append(Program(file, UNREADABLE, reason))

    def _note(self, path: str) -> bool:
        """Record the state of one more path; False if the bound is reached."""
        fits = path in self.sources or len(self.sources) < MAX_PLACES
        if self._is_full(fits, path, f"{MAX_PLACES} files to look at"):
            return False
        self.sources[path] = stamp(path)
        return True

    def _is_full(self, fits: bool, path: str, bound: str) -> bool:
        """Tell whether a bound is reached, so that nothing more is read; it is reported once."""
        if not fits and not self.full:
            self.full = True
            self._unreadable(path, f"there are more than {bound}")
        return self.full


_EXEC = re.compile(r"[ \t]*(?:exec|x)(?=[ \t\r]|\Z)(.*)", re.DOTALL)


def _is_executable(path: str) -> bool:
    try:
        return bool(os.stat(path).st_mode & 0o111)
    except OSError:
        return False
