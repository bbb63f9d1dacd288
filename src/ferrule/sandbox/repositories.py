"""Git repositories below the writable roots: found at the start, watched after every command.

Those found at the start are read-only for commands, as `.git` at the top of a root is. One that is made later can be
used by commands; but what git would run outside of the sandbox (hooks, configuration that names programs) is moved to
a quarantine folder and reported. The scan is bounded: `docs/security.md` says what it does not see.
"""

import errno
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ferrule.sandbox.plan import PROTECTED_NAMES, ConfinementPlan, is_within
from ferrule.sandbox.protect import repository_folders

MAX_FOLDERS = 2000
"""Folders that are looked at, those near the top first: 2,000 of them cost a few milliseconds after a command."""
MAX_DEPTH = 8
"""Folders below a root at which the scan stops: projects keep vendored repositories much nearer to the top."""
SETTLED_NS = 50_000_000
"""A folder that changed this shortly before it was read may change again without a new time stamp."""
LARGEST_CONFIG = 1 << 16
"""What git writes is a few kilobytes; a larger file is taken for one that names programs, not read to its end."""

# What git itself and everyday commands write; anything else may name a program.
_HARMLESS_SECTION = re.compile(r'\[\s*(core|remote|branch|submodule|user|init|extensions)\s*("[^"\\]*")?\s*\]\s*')
_HARMLESS_KEY = re.compile(
    r"(repositoryformatversion|filemode|bare|logallrefupdates|ignorecase|precomposeunicode|symlinks|autocrlf|eol|url"
    r"|pushurl|fetch|tagopt|mirror|remote|merge|rebase|active|name|email|defaultbranch|objectformat|refstorage"
    r"|partialclone|promisor|partialclonefilter|worktreeconfig)\s*(=[^\\]*)?",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class _Folder:
    """A folder as it was read: `changed` is its change time in ns, 0 if it must be read again."""

    changed: int
    children: tuple[str, ...] = ()
    git: tuple[int, int] | None = None
    """Device and inode of its `.git`."""


class RepositoryWatch:
    """The repositories below the roots of one session. Blocking; not for two threads at once."""

    def __init__(self, plan: ConfinementPlan, quarantine: Path) -> None:
        self._roots = [root.path for root in sorted(plan.roots, key=lambda root: not root.reserve)]
        self._quarantine = quarantine
        self._folders: dict[str, _Folder] = {}
        self._first: dict[str, _Folder] = {}
        self._known: set[tuple[int, int]] = set()

    def start(self) -> None:
        """Look for repositories; those found are protected from now on."""
        self._scan()
        self._first = self._folders
        self._known = {folder.git for folder in self._folders.values() if folder.git}

    @property
    def protected(self) -> tuple[str, ...]:
        """The `.git` paths that were there at the start, wherever they are now."""
        found = self._folders.items()
        return tuple(f"{path}/.git" for path, folder in found if folder.git and folder.git in self._known)

    def inspect(self) -> tuple[str, ...]:
        """After a command: disarm repositories made since the start. A sentence for each that was armed."""
        self._scan()
        strange = [path for path, folder in self._folders.items() if folder.git and folder.git not in self._known]
        reports = (self._disarm(f"{path}/.git") for path in strange if self._appeared(path))
        return tuple(report for report in reports if report)

    def _appeared(self, path: str) -> bool:
        """Whether a folder is new: not when the first scan might only not have come so far."""
        while path not in self._first:
            parent = os.path.dirname(path)
            if parent in self._first:
                return path not in self._first[parent].children
            if parent == path or path in self._roots:
                return False
            path = parent
        return True

    def _scan(self) -> None:
        """Root by root, breadth first. What has not changed is not read again, only asked for its time stamp."""
        folders: dict[str, _Folder] = {}
        for root in self._roots:
            level = [root]
            for _ in range(MAX_DEPTH + 1):
                below: list[str] = []
                for path in level:
                    if path not in folders and len(folders) < MAX_FOLDERS and (folder := self._read(path)):
                        folders[path] = folder
                        below += folder.children
                level = below
        self._folders = folders

    def _read(self, path: str) -> _Folder | None:
        try:
            changed = os.lstat(path).st_ctime_ns
            known = self._folders.get(path)
            if known and known.changed == changed:
                return known
            if time.time_ns() - changed < SETTLED_NS:
                changed = 0
            children, git = [], None
            with os.scandir(path) as entries:
                for entry in entries:
                    if entry.name == ".git":
                        status = entry.stat(follow_symlinks=False)
                        git = (status.st_dev, status.st_ino)
                    elif entry.is_dir(follow_symlinks=False) and entry.name not in PROTECTED_NAMES:
                        children.append(f"{path}/{entry.name}")
        except OSError:  # gone, or closed to us as it is to commands
            return None
        return _Folder(changed, tuple(children), git)

    def _disarm(self, git: str) -> str | None:
        moved: list[str] = []
        place = self._quarantine / secrets.token_hex(6)
        for folder in repository_folders(git):
            if any(is_within(folder, root) for root in self._roots):
                moved += _disarm_folder(folder, place, self._roots)
        if not moved:
            return None
        return f"Moved to {place}, because git would run it outside of the sandbox: {', '.join(moved)}."


def _disarm_folder(folder: str, place: Path, roots: Iterable[str]) -> Iterator[str]:
    """Move active hooks and unusual configuration of a git directory away. Follows no link on the way."""
    for part in (folder, f"{folder}/hooks"):
        try:
            fd = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            # A command that still runs might have swapped a folder on the path for a link.
            if not any(is_within(os.readlink(f"/proc/self/fd/{fd}"), root) for root in roots):
                continue
            for name in os.listdir(fd):
                if _is_armed_hook(part, name) or _is_armed_config(fd, name):
                    yield f"{part}/{name}{_put_away(fd, name, place)}"
        finally:
            os.close(fd)


def _is_armed_hook(part: str, name: str) -> bool:
    return part.endswith("/hooks") and not name.endswith(".sample")


def _is_armed_config(fd: int, name: str) -> bool:
    if name == "hooks":
        return stat.S_ISLNK(os.lstat(name, dir_fd=fd).st_mode)
    if name not in ("config", "config.worktree"):
        return False
    try:
        with os.fdopen(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=fd), "rb") as file:
            text = file.read(LARGEST_CONFIG + 1).decode("utf-8", "replace")
    except OSError:
        return True
    return len(text) > LARGEST_CONFIG or not all(map(_is_harmless, text.splitlines()))


def _is_harmless(line: str) -> bool:
    line = line.strip()
    if section := _HARMLESS_SECTION.match(line):
        line = line[section.end() :]
    return not line or line.startswith(("#", ";")) or _HARMLESS_KEY.fullmatch(line) is not None


def _put_away(fd: int, name: str, place: Path) -> str:
    """Returns what has to be said beside the path. A command may have filled the disk on which the quarantine is."""
    try:
        _move(fd, name, place)
    except OSError as error:
        stays = f"{name}.{secrets.token_hex(4)}.sample"
        try:
            os.rename(name, stays, src_dir_fd=fd, dst_dir_fd=fd)
        except OSError as still:
            return f" (NOT moved: {still.strerror}; remove it before git runs there)"
        return f" (renamed to {stays}: {error.strerror})"
    return ""


def _move(fd: int, name: str, place: Path) -> None:
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    target = place / f"{len(os.listdir(place))}-{name}"
    with suppress(FileNotFoundError):
        try:
            os.rename(name, target, src_dir_fd=fd)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            _copy(fd, name, target)


def _copy(fd: int, name: str, target: Path) -> None:
    """To another file system: the bytes of a file, nothing of anything else; then it is removed."""
    if stat.S_ISREG(os.lstat(name, dir_fd=fd).st_mode):
        with (
            os.fdopen(os.open(name, os.O_RDONLY | os.O_NOFOLLOW, dir_fd=fd), "rb") as source,
            target.open("wb") as copy,
        ):
            shutil.copyfileobj(source, copy)
    try:
        os.unlink(name, dir_fd=fd)
    except IsADirectoryError:
        os.rename(name, f"{name}.{secrets.token_hex(4)}.sample", src_dir_fd=fd, dst_dir_fd=fd)
