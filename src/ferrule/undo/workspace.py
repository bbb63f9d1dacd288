"""The files of a workspace that git would not ignore."""

import os
from collections.abc import Container, Iterator, Sequence

from ferrule.ignores.walk import IGNORED, Folder, decide, git_rules_of, git_verdict, rules_at, users_rules

_Found = tuple[str, os.stat_result]


class WorkspaceFiles:
    """The files, links and folders below `root`, a real path; `without` is a folder that is left out. In no repository,
    ignore files count all the same."""

    def __init__(self, root: str, without: str = "") -> None:
        self._root = root
        self._without = without
        self._users = users_rules()
        self._rules: dict[str, Folder] = {}
        self._closed: set[str] = set()
        self._unread: set[str] = set()
        self._known: Container[bytes] = ()

    def look(self) -> Iterator[_Found]:
        """Yield each path with its lstat, a folder before what is in it."""
        return self._walk(first=True)

    def look_again(self, known: Container[bytes]) -> Iterator[_Found]:
        """The same by the rules of the first look, which found `known`; what could not be read then is passed over."""
        self._closed, self._unread = self._unread, set()
        self._known = known
        return self._walk(first=False)

    def is_unread(self, path: str) -> bool:
        """Return whether the last look could not look there."""
        return any(path.startswith(f"{folder}/") for folder in self._unread)

    def covers(self, path: str) -> bool:
        """Return whether the first look would have found this path, had there been something."""
        parts = path[len(self._root) + 1 :].split("/")
        if not path.startswith(f"{self._root}/") or ".git" in parts:
            return False
        above, rules = self._root, self._rules.get(self._root)
        for number, part in enumerate(parts, 1):
            if above in self._closed:
                return False
            above = f"{above}/{part}"
            if above == self._without or self._is_ignored(above, rules, is_folder=number < len(parts)):
                return False
            rules = self._rules.get(above, rules)
        return True

    def _walk(self, *, first: bool) -> Iterator[_Found]:
        pending = [(self._root, self._above())]
        while pending:
            path, above = pending.pop()
            try:
                with os.scandir(path) as entries:
                    found = list(entries)
            except OSError:
                self._unread.add(path)
                continue
            rules = self._rules_of(path, above, found) if first else self._rules.get(path, above)
            for entry in found:
                is_folder = entry.is_dir(follow_symlinks=False)
                if self._is_left_out(entry, rules, is_folder):
                    continue
                try:
                    status = entry.stat(follow_symlinks=False)
                except OSError:
                    continue
                yield entry.path, status
                if is_folder and entry.path not in self._closed:
                    pending.append((entry.path, rules))

    def _above(self) -> Folder | None:
        """Return the rules above the root where they belong to the same repository."""
        above = rules_at(os.path.dirname(self._root))
        each: Folder | None = above
        while each is not None and not each.is_repository:
            each = each.above
        return None if each is None else above

    def _rules_of(self, path: str, above: Folder | None, found: Sequence["os.DirEntry[str]"]) -> Folder:
        names = {entry.name for entry in found}
        if above is not None and not {".gitignore", ".git"} & names:
            return above
        rules = self._rules[path] = git_rules_of(path, above, names)
        return rules

    def _is_left_out(self, entry: "os.DirEntry[str]", rules: Folder | None, is_folder: bool) -> bool:
        if entry.name == ".git" or entry.path == self._without:
            return True
        if os.fsencode(entry.path) in self._known:
            return False
        return self._is_ignored(entry.path, rules, is_folder=is_folder)

    def _is_ignored(self, path: str, rules: Folder | None, *, is_folder: bool) -> bool:
        said = None if rules is None else git_verdict(path, rules, is_folder)
        if said is None:
            said = decide(self._users, path[len(self._root) + 1 :], is_folder)
        return said is IGNORED
