"""Select the files that ripgrep would search: its rules for hidden files, `.gitignore`, `.ignore` and `.rgignore`.

Source: the crate ignore of ripgrep 14. Of each kind of file the nearest folder that says something decides; `.rgignore`
goes before `.ignore`, then `.gitignore`, `.git/info/exclude`, the user's global file. The last matching line of a file
wins. Git's files count in a repository only.
"""

import os
import re
from collections.abc import Collection, Iterable, Iterator
from io import FileIO
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from ferrule.ignores.globs import Rule, parse_rule, rule_of, some_of
from ferrule.kernel_files import Shown, refuse_elsewhere

IGNORED, KEPT = True, False
"""The verdict of a rule on a path; None if it has none."""
MAX_IGNORE_BYTES = 1024 * 1024
MAX_RULES = 10_000
"""Of one ignore file: real ones have a few kilobytes and dozens of lines, and each line costs a regular expression,
some 0.2 ms. A megabyte of short ones would take minutes."""

_FILE = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
"""A FIFO can take a file's place after it was looked at."""
_EXCLUDES_FILE = re.compile(r"^\s*excludesfile\s*=\s*\"?\s*(\S+?)\s*\"?\s*$", re.IGNORECASE | re.MULTILINE)


class Rules(NamedTuple):
    """The rules of one file, and a pattern that matches whatever one of them does."""

    each: tuple[Rule, ...]
    some: "re.Pattern[str] | None"

    @classmethod
    def of(cls, each: Iterable[Rule]) -> "Rules":
        """Make them from rules in their order."""
        each = tuple(each)
        return cls(each, some_of([rule.matches for rule in each]) if each else None)


NO_RULES = Rules((), None)


class Folder(NamedTuple):
    """The rules of one folder's ignore files; `above` is its parent. `own` are those of `.rgignore` and `.ignore`,
    `git` those of `.gitignore` and `.git/info/exclude`."""

    path: str
    above: "Folder | None"
    own: tuple[Rules, Rules]
    git: tuple[Rules, Rules]
    is_repository: bool


class Walk:
    """The files below `root` that a search takes, folders in no certain order. `problems` are sentences on folders
    that could not be read. Of folders and ignore files outside of those `shown` nothing is read, however they were
    reached."""

    def __init__(
        self, root: str, cwd: str, include: str | None = None, *, hidden: bool = False, shown: Shown = None
    ) -> None:
        self._root = root
        self._shown = shown
        self._cwd = cwd
        self._hidden = hidden
        self._overrides = Rules.of(rule for glob in ([include] if include else []) if (rule := parse_rule(glob)))
        self._global = users_rules()
        self.problems: list[str] = []

    def __iter__(self) -> Iterator[str]:
        if not os.path.isdir(self._root):
            yield self._root
            return
        real = os.path.realpath(self._root)
        above = rules_at(os.path.dirname(real), self._shown) if real != "/" else None
        pending = [(self._root, rules_of(real, above, self._shown))]
        while pending:
            path, rules = pending.pop()
            try:
                found = self._entries(path)
            except OSError as error:
                self.problems.append(f"{path}: {error.strerror}")
                continue
            for name, is_folder in found:
                entry = f"{path.rstrip('/')}/{name}"
                if self._skips(name, entry, rules, is_folder):
                    continue
                if is_folder:
                    pending.append((entry, rules_of(f"{rules.path.rstrip('/')}/{name}", rules, self._shown)))
                else:
                    yield entry

    def _entries(self, path: str) -> list[tuple[str, bool]]:
        """Return the names of a folder's files and folders, and which are folders."""
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            refuse_elsewhere(folder, self._shown)
            with os.scandir(folder) as entries:
                kinds = [
                    (entry.name, entry.is_dir(follow_symlinks=False), entry.is_file(follow_symlinks=False))
                    for entry in entries
                ]
        finally:
            os.close(folder)
        return [(name, is_folder) for name, is_folder, is_file in kinds if is_folder or is_file]

    def _skips(self, name: str, path: str, rules: Folder, is_folder: bool) -> bool:
        if self._hidden and name == ".git":
            return True
        said = self._overridden(path, is_folder)
        if said is None:
            said = self._ignored(f"{rules.path.rstrip('/')}/{name}", rules, is_folder)
        if said is None:
            return not self._hidden and name.startswith(".")
        return said is IGNORED

    def _overridden(self, path: str, is_folder: bool) -> bool | None:
        """`--glob` turns the sense around: what it matches is searched, whatever ignore files say."""
        if not self._overrides.each:
            return None
        said = decide(self._overrides, _below(path, self._cwd), is_folder)
        if said is not None:
            return not said
        wanted = any(not rule.negated for rule in self._overrides.each)
        return IGNORED if wanted and not is_folder else None

    def _ignored(self, path: str, folder: Folder, is_folder: bool) -> bool | None:
        for kind in (0, 1):
            for each in _upwards(folder):
                said = decide(each.own[kind], _below(path, each.path), is_folder)
                if said is not None:
                    return said
        if not any(each.is_repository for each in _upwards(folder)):
            return None
        said = git_verdict(path, folder, is_folder)
        return decide(self._global, _below(path, self._cwd), is_folder) if said is None else said


def git_verdict(path: str, folder: Folder, is_folder: bool) -> bool | None:
    """Return what the repository's rules for git say of an entry of `folder`."""
    for kind in (0, 1):
        for each in _upwards(folder):
            said = decide(each.git[kind], _below(path, each.path), is_folder)
            if said is not None:
                return said
            if each.is_repository:
                break
    return None


def decide(rules: Rules, path: str, is_folder: bool) -> bool | None:
    """Return what the rules of one file say of a path relative to its folder: the last that matches decides."""
    if rules.some is None or not rules.some.match(path):
        return None
    for rule in reversed(rules.each):
        if (is_folder or not rule.folders_only) and rule.matches.match(path):
            return KEPT if rule.negated else IGNORED
    return None


def _upwards(folder: Folder) -> Iterator[Folder]:
    each: Folder | None = folder
    while each is not None:
        yield each
        each = each.above


def _below(path: str, folder: str) -> str:
    start = folder if folder.endswith("/") else f"{folder}/"
    return path[len(start) :] if path.startswith(start) else path.lstrip("/")


def rules_at(path: str, shown: Shown = None) -> Folder:
    """Return the rules of a real folder and of those above it."""
    return rules_of(path, None if path == os.path.dirname(path) else rules_at(os.path.dirname(path), shown), shown)


def rules_of(path: str, above: Folder | None, shown: Shown = None) -> Folder:
    """Read the rules of a real folder below `above`."""
    own = (_rules(path, ".rgignore", shown), _rules(path, ".ignore", shown))
    git = (_rules(path, ".gitignore", shown), _rules(path, ".git/info/exclude", shown))
    return Folder(path, above, own, git, os.path.lexists(f"{path}/.git"))


def git_rules_of(path: str, above: Folder | None, names: Collection[str]) -> Folder:
    """Read the rules for git of a real folder with these names in it."""
    is_repository = ".git" in names
    own = _rules(path, ".gitignore") if ".gitignore" in names else NO_RULES
    private = _rules(path, ".git/info/exclude") if is_repository else NO_RULES
    return Folder(path, above, (NO_RULES, NO_RULES), (own, private), is_repository)


def _rules(folder: str, name: str, shown: Shown = None) -> Rules:
    return _read_rules(f"{folder}/{name}", shown)


def _read_rules(path: str, shown: Shown = None) -> Rules:
    try:
        if not os.path.isfile(path):
            return NO_RULES
        with FileIO(os.open(path, _FILE)) as file:
            refuse_elsewhere(file.fileno(), shown)
            data = file.read(MAX_IGNORE_BYTES) or b""
    except OSError:
        return NO_RULES
    text = data.decode("utf-8", "surrogateescape").removeprefix("\ufeff")
    rules = (rule for line in text.split("\n") if (rule := rule_of(line.removesuffix("\r"))))
    return Rules.of(islice(rules, MAX_RULES))


def users_rules() -> Rules:
    """Read the file of the user's own rules for every repository."""
    home = os.path.expanduser("~")
    config = os.environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    for file in (f"{home}/.gitconfig", f"{config}/git/config"):
        try:
            named = _EXCLUDES_FILE.search(Path(file).read_text(errors="replace"))
        except OSError:
            continue
        if named:
            return _read_rules(os.path.expanduser(named[1]))
    return _read_rules(f"{config}/git/ignore")
