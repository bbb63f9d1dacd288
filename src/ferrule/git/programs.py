"""What git would run in a repository when the user works there: hooks, settings, attributes, commands of a rebase.

Git is not run to find out. Includes, shared repositories, worktrees and submodules are followed as git follows them.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass, field

from ferrule.git.config import ConfigError, parse_config
from ferrule.git.harmless import is_harmless
from ferrule.git.layout import common_directory, git_directory
from ferrule.git.reading import Stamp, names_in, stamp
from ferrule.reading import Unreadable, read_file

LARGEST_FILE = 1 << 18
"""Bytes of a configuration file, an attributes file or a rebase's list; those that git writes hold a few kilobytes."""
UNREADABLE = "could not be read"
MAX_ENTRIES = 200
"""Names in one folder of hooks, worktrees or submodules, more than any project has."""
MAX_DIRECTORIES = 100
"""Git directories that one repository leads to: itself, what it shares, its worktrees and submodules."""
MAX_INCLUDES = 10
"""Depth at which git, too, stops to follow includes."""
MAX_MODULE_DEPTH = 6
"""Folders between `modules` and a submodule, whose name may hold slashes."""


@dataclass(frozen=True, slots=True, order=True)
class Program:
    """One thing that would run a program, or could not be read: the file, what in it (a configuration key, `hook`,
    `attribute`, `exec`, `UNREADABLE`), and its value."""

    file: str
    key: str
    value: str = ""


@dataclass(frozen=True, slots=True)
class Examination:
    """What one repository would run, and the files that say so, as they were."""

    programs: tuple[Program, ...]
    sources: dict[str, Stamp | None]

    def is_current(self) -> bool:
        """Whether none of the files has changed since."""
        return all(stamp(path) == before for path, before in self.sources.items())


def examine(entry: str, is_users: Callable[[str], bool], *, bare: bool = False) -> Examination:
    """Look at the repository of a `.git` (folder, pointer or link), or at a bare one. Blocking; changes nothing.

    A git directory for which `is_users` is true is not looked into: its settings are the user's own.
    """
    walk = _Walk(is_users)
    walk.repository(entry, bare)
    return Examination(tuple(dict.fromkeys(walk.found)), walk.sources)


@dataclass(slots=True)
class _Walk:
    is_users: Callable[[str], bool]
    found: list[Program] = field(default_factory=list)
    sources: dict[str, Stamp | None] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)

    def repository(self, entry: str, bare: bool) -> None:
        self._note(entry)
        if bare:
            self._directory(os.path.realpath(entry))
        elif git := self._pointed(entry, lambda: git_directory(entry)):
            self._directory(git)

    def _directory(self, git: str) -> None:
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
        self._note(f"{git}/commondir")
        if common := self._pointed(f"{git}/commondir", lambda: common_directory(git)):
            self._directory(common)
        for name in self._names(f"{git}/worktrees"):
            self._directory(os.path.realpath(f"{git}/worktrees/{name}"))
        self._modules(f"{git}/modules", 0)

    def _hook(self, path: str) -> None:
        self._note(path)
        if not path.endswith(".sample") and _is_executable(path):
            self.found.append(Program(path, "hook"))

    def _config(self, file: str, depth: int) -> None:
        if file in self.sources:
            return
        try:
            for entry in parse_config(self._text(file)):
                if not is_harmless(entry):
                    self.found.append(Program(file, entry.key, entry.value))
                if entry.section in ("include", "includeif") and entry.name == "path" and depth < MAX_INCLUDES:
                    self._config(os.path.join(os.path.dirname(file), os.path.expanduser(entry.value)), depth + 1)
        except ConfigError as error:
            self._unreadable(file, str(error))

    def _attributes(self, file: str) -> None:
        """Names of filters and drivers: with the user's own configuration, too, they start a program."""
        for line in self._text(file).splitlines():
            words = line.split()
            if words and not words[0].startswith("#"):
                self.found += [
                    Program(file, "attribute", word)
                    for word in words[1:]
                    if word.partition("=")[0] in ("filter", "diff", "merge")
                ]

    def _steps(self, file: str) -> None:
        for line in self._text(file).splitlines():
            word, _, command = line.strip().partition(" ")
            if word in ("exec", "x"):
                self.found.append(Program(file, "exec", command))

    def _modules(self, folder: str, depth: int) -> None:
        names = self._names(folder)
        if depth and "HEAD" in names:
            self._directory(os.path.realpath(folder))
        elif depth <= MAX_MODULE_DEPTH:
            for name in names:
                self._modules(f"{folder}/{name}", depth + 1)

    def _text(self, file: str) -> str:
        self._note(file)
        try:
            return read_file(file, LARGEST_FILE).decode("utf-8", "replace")
        except FileNotFoundError:
            return ""
        except Unreadable as error:
            self._unreadable(file, str(error))
            return ""

    def _names(self, folder: str) -> list[str]:
        self._note(folder)
        try:
            return names_in(folder, MAX_ENTRIES)
        except Unreadable as error:
            self._unreadable(folder, str(error))
            return []

    def _pointed(self, file: str, follow: Callable[[], str | None]) -> str | None:
        try:
            return follow()
        except Unreadable as error:
            self._unreadable(file, str(error))
            return None

    def _unreadable(self, file: str, reason: str) -> None:
        self.found.append(Program(file, UNREADABLE, reason))

    def _note(self, path: str) -> None:
        self.sources[path] = stamp(path)


def _is_executable(path: str) -> bool:
    try:
        return bool(os.stat(path).st_mode & 0o111)
    except OSError:
        return False
