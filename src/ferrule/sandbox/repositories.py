"""Find the git repositories below the writable roots and tell the user's from those that our commands made.

The user's are those present when the session starts and those that appear while no command runs. Ours appeared while a
command ran, were born within that time, and lie where commands could write; later sessions know them from the record.
Nothing here writes into a repository. The scan is bounded and says when it reached a bound; a repository found once
stays known.
"""

import os
import re
import time
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property

import msgspec

from ferrule.git.layout import is_bare_shape
from ferrule.git.submodules import submodule_folders
from ferrule.kernel_files import Mount
from ferrule.sandbox.linux.inotify import FolderWatch
from ferrule.sandbox.linux.mount_table import RootMounts
from ferrule.sandbox.ownership import Identity, OwnershipRecord, identity
from ferrule.sandbox.plan import RESERVED_NAMES, ConfinementPlan, is_within

MAX_FOLDERS = 2000
"""Folders searched, those near the top first: 2,000 of them cost a few milliseconds per command."""
SETTLED_NS = 50_000_000
"""A folder that changed this recently before it was read may change again without a new time stamp."""
LIMIT_REACHED = (
    "{root} holds more folders than the {most} that were searched for git repositories, those near the top first: "
    "a repository further down is neither protected nor reported"
)
STAMP_LAG_NS = 20_000_000
"""The kernel stamps files with the time of its last tick, up to 10 ms ago. Repositories that were there when a command
started were seen before it, so this allowance makes none of them ours."""
REPOSITORY_NAMES = (".git", "HEAD", "objects", "refs", "commondir")
"""Entries that make a folder a repository, or show that it has one."""
_FAN_OUT = re.compile("[0-9a-f]{2}")
"""Folders of loose objects: up to 256 in a repository, with nothing but objects in them."""


class Span(msgspec.Struct, frozen=True):
    """A time during which commands ran, in ns as of `time.time_ns`."""

    start: int
    end: int

    def contains(self, born: int) -> bool:
        """Tell whether a file with this birth time was made within the span."""
        return self.start - STAMP_LAG_NS <= born <= self.end


class Repository(msgspec.Struct, frozen=True):
    """A repository: the path of its `.git`, or of the repository itself if it is bare, and what lies there.

    `what` identifies the `.git`, or a bare repository's objects or the pointer to them: its folder may be older, and
    its `HEAD` is rewritten often. `born` is when the last part appeared that makes it a repository.
    """

    path: str
    what: Identity
    bare: bool
    born: int
    own: bool = False

    def is_there(self) -> bool:
        """Tell whether it still lies where it was found."""
        found = _bare_at(self.path) if self.bare else _at(self.path)
        return found is not None and found.what == self.what


class _Folder(msgspec.Struct, frozen=True):
    """A folder as it was read. `stamp` is device, inode and change time in ns; None if it must be read again."""

    stamp: tuple[int, int, int] | None
    children: tuple[str, ...] = ()
    repositories: tuple[Repository, ...] = ()


class Repositories:
    """The repositories of one session. Blocking; use it from one thread at a time."""

    def __init__(self, plan: ConfinementPlan, record: OwnershipRecord) -> None:
        self._roots = sorted(plan.roots, key=lambda root: (not root.scan, not root.reserve))
        self._record = record
        self._folders: dict[str, _Folder] = {}
        self._tops: dict[str, tuple[int, int] | None] = {}
        self._root_mounts = RootMounts(self._roots)
        self._mounts: tuple[Mount, ...] = ()
        self._all_watched = False
        self._found: dict[str, Repository] = {}
        self._waiting: dict[str, tuple[str, ...]] = {}
        self.limits: tuple[str, ...] = ()
        """What the scan missed because it reached a bound, one sentence for each root."""

    @property
    def users(self) -> tuple[str, ...]:
        """The paths of repositories that commands may not change."""
        return tuple(one.path for one in self._found.values() if not one.own)

    @property
    def own(self) -> tuple[Repository, ...]:
        """The repositories that our commands made."""
        return tuple(one for one in self._found.values() if one.own)

    @property
    def submodules(self) -> tuple[str, ...]:
        """Folders in which a user's repository expects a submodule that is not there yet."""
        waiting = (folder for folders in self._waiting.values() for folder in folders)
        return tuple(folder for folder in waiting if os.path.isdir(folder) and not os.path.lexists(f"{folder}/.git"))

    def look(self, run: Span | None, kept: tuple[str, ...] = ()) -> None:
        """Update the repositories. `run` is when commands ran since the last look, None if none did; `kept` are paths
        that they could not write. Raises OSError if ours cannot be recorded; they count as ours all the same."""
        self._scan()
        fresh = self._record.refresh()
        before, self._found = self._found, {}
        made: dict[str, Identity] = {}
        owned: dict[Identity, bool] = {}
        for one in self._seen(before):
            known = before.get(one.path)
            if known is not None and known.what == one.what and (known.own or not fresh):
                self._found[one.path] = known
                continue
            own = self._record.owns(one.path, one.what)
            if not own and run:
                owned = owned or {other.what: other.own for other in before.values()}
                if _is_ours(one, run, kept, owned):
                    own, made[one.path] = True, one.what
            self._found[one.path] = msgspec.structs.replace(one, own=own)
        self._look_for_submodules()
        if made:
            self._record.add(made)

    def _seen(self, before: Mapping[str, Repository]) -> Iterator[Repository]:
        """Yield what the scan found, and what an earlier scan found that this one did not reach: new folders hide
        nothing."""
        for folder in self._folders.values():
            yield from folder.repositories
        for path, one in before.items():
            if (path if one.bare else os.path.dirname(path)) not in self._folders and one.is_there():
                yield one

    def _look_for_submodules(self) -> None:
        """Read each list once, when the user's repository is first seen: a command may edit it later."""
        for path in self.users:
            if path not in self._waiting and not self._found[path].bare:
                self._waiting[path] = submodule_folders(os.path.dirname(path))

    @cached_property
    def _watch(self) -> FolderWatch:
        """Created with the first look, which nobody waits for."""
        return FolderWatch(REPOSITORY_NAMES)

    def close(self) -> None:
        """Stop watching folders."""
        if "_watch" in self.__dict__:
            self._watch.close()

    def _scan(self) -> None:
        """Search root by root, breadth first. A folder that has not changed is not read again."""
        tops, mounts = {root.path: _inode(root.path) for root in self._roots}, self._root_mounts.current()
        if (tops, mounts) != (self._tops, self._mounts):  # no watch reports a change above a root, or a mount
            self._watch.keep(())
            self._folders = {}
            self._tops, self._mounts, self._all_watched = tops, mounts, False
        if not self._watch.listen() and self._all_watched:
            self._read_tops()
            return
        folders: dict[str, _Folder] = {}
        limits: list[str] = []
        for root in self._roots:
            waiting = deque([root.path])
            while waiting and len(folders) < MAX_FOLDERS:
                path = waiting.popleft()
                if path not in folders and (folder := self._read(path, root.scan)):
                    folders[path] = folder
                    waiting += folder.children
            if waiting:
                limits.append(LIMIT_REACHED.format(root=root.path, most=MAX_FOLDERS))
        self._folders, self.limits = folders, tuple(limits)
        self._watch.keep(folders)
        unscanned = {root.path for root in self._roots if not root.scan}
        self._all_watched = all(path in unscanned or self._watch.is_clean(path) for path in folders)

    def _read_tops(self) -> None:
        for root in self._roots:
            if not root.scan and (folder := self._read(root.path, whole=False)):
                self._folders[root.path] = folder

    def _read(self, path: str, whole: bool) -> _Folder | None:
        """Read a folder. None if it is gone, or closed to us and so to commands."""
        known = self._folders.get(path)
        if known and self._watch.is_clean(path):
            return known
        try:
            if not whole:
                return _Folder(None, (), _repositories(path, _names_at_top(path)))
            self._watch.watch(path)  # before reading, so that a change meanwhile is reported
            status = os.lstat(path)
            stamp = (status.st_dev, status.st_ino, status.st_ctime_ns)
            if known and known.stamp == stamp:
                return known
            settled = time.time_ns() - status.st_ctime_ns >= SETTLED_NS
            names, children = set[str](), list[str]()
            with os.scandir(path) as entries:
                for entry in entries:
                    names.add(entry.name)
                    if entry.is_dir(follow_symlinks=False):
                        children.append(entry.name)
        except OSError:
            return None
        names |= _in_another_case(path, names)
        below = tuple(f"{path}/{name}" for name in children if self._is_entered(path, name))
        return _Folder(stamp if settled else None, below, _repositories(path, names))

    def _is_entered(self, folder: str, name: str) -> bool:
        """Tell whether a subfolder is searched. The reserved folders at the top of a root are not: commands cannot
        write there, and placeholders come and go."""
        if name.casefold() == ".git" or (name in RESERVED_NAMES and folder in self._tops):
            return False
        return not (_FAN_OUT.fullmatch(name) and folder.endswith("/objects") and os.path.lexists(f"{folder}/../HEAD"))


def _inode(path: str) -> tuple[int, int] | None:
    try:
        status = os.lstat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _names_at_top(path: str) -> set[str]:
    """Look for a repository's names without listing the folder, which may be huge."""
    return {name for name in REPOSITORY_NAMES if os.path.lexists(f"{path}/{name}")}


def _in_another_case(path: str, names: Collection[str]) -> set[str]:
    """Return a repository's names that are present in another case, on a file system that ignores case."""
    folded = {name.casefold() for name in names}
    wanted = (name for name in REPOSITORY_NAMES if name not in names and name.casefold() in folded)
    return {name for name in wanted if os.path.lexists(f"{path}/{name}")}


def _repositories(path: str, names: Collection[str]) -> tuple[Repository, ...]:
    """Find the repositories at a folder. It may be bare although it has a `.git`: git skips one that is no
    repository."""
    found = [_at(f"{path}/.git")] if ".git" in names else []
    if is_bare_shape(names):
        found.append(_bare_at(path))
    return tuple(one for one in found if one is not None)


def _at(path: str) -> Repository | None:
    what = identity(path)
    return None if what is None else Repository(path, what, bare=False, born=what.born)


def _bare_at(path: str) -> Repository | None:
    parts = {name: identity(f"{path}/{name}") for name in REPOSITORY_NAMES if name != ".git"}
    what = parts["objects"] or parts["commondir"]
    births = [part.born for part in parts.values() if part is not None]
    return None if what is None else Repository(path, what, bare=True, born=max(births) if all(births) else 0)


def _is_ours(one: Repository, run: Span, kept: tuple[str, ...], owned: Mapping[Identity, bool]) -> bool:
    """Tell whether it was made during the run where commands could write, or made by an earlier command and moved."""
    if not one.born or any(is_within(one.path, path) for path in kept):
        return False
    return owned.get(one.what, run.contains(one.born))
