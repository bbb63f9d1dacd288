"""Git repositories below the writable roots, and whose they are: the user's, or made by a command of ours.

The user's are those of the session's start and those that appear while no command runs. Ours appeared while one ran,
were born within that time, and lie where commands could write; the record knows them in later sessions. Nothing here
writes into a repository. The scan is bounded, and says when it met a bound.
"""

import os
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from ferrule.git.layout import is_bare_shape
from ferrule.git.submodules import submodule_folders
from ferrule.sandbox.linux.inotify import FolderWatch
from ferrule.sandbox.ownership import Identity, OwnershipRecord, identity
from ferrule.sandbox.plan import RESERVED_NAMES, ConfinementPlan, is_within

MAX_FOLDERS = 2000
"""Folders that are looked at, those near the top first: 2,000 of them cost a few milliseconds a command."""
SETTLED_NS = 50_000_000
"""A folder that changed this shortly before it was read may change again without a new time stamp."""
LIMIT_MET = (
    "{root} holds more folders than the {most} that were searched for git repositories, those near the top first: "
    "a repository further down is neither protected nor reported"
)
STAMP_LAG_NS = 20_000_000
"""The kernel stamps files with the time of its last tick, up to 10 ms ago. What was there when a command started has
been seen by then, so the lag makes nothing ours that is not."""
REPOSITORY_NAMES = (".git", "HEAD", "objects", "refs", "commondir")
"""Entries by which a folder is a repository, or has one."""
_NOT_ENTERED = frozenset((".git", *RESERVED_NAMES))


@dataclass(frozen=True, slots=True)
class Span:
    """Time in which commands ran, in ns by `time.time_ns`."""

    start: int
    end: int

    def contains(self, born: int) -> bool:
        """Whether a file with this birth time was made within it."""
        return self.start - STAMP_LAG_NS <= born <= self.end


@dataclass(frozen=True, slots=True)
class Repository:
    """One that was found: the path of its `.git`, or of itself where it is bare, and what lies there."""

    path: str
    what: Identity
    bare: bool
    own: bool = False


@dataclass(frozen=True, slots=True)
class _Folder:
    """A folder as it was read: `changed` is its change time in ns, 0 if it must be read again."""

    changed: int
    children: tuple[str, ...] = ()
    repository: Repository | None = None


class Repositories:
    """The repositories of one session. Blocking; not for two threads at once."""

    def __init__(self, plan: ConfinementPlan, record: OwnershipRecord) -> None:
        self._roots = sorted(plan.roots, key=lambda root: (not root.scan, not root.reserve))
        self._record = record
        self._folders: dict[str, _Folder] = {}
        self._all_watched = False
        self._found: dict[str, Repository] = {}
        self._waiting: dict[str, tuple[str, ...]] = {}
        self.limits: tuple[str, ...] = ()
        """What the scan did not see because of a bound, a sentence for each root."""

    @property
    def users(self) -> tuple[str, ...]:
        """Those that commands may not change."""
        return tuple(one.path for one in self._found.values() if not one.own)

    @property
    def own(self) -> tuple[Repository, ...]:
        """Those that our commands made."""
        return tuple(one for one in self._found.values() if one.own)

    @property
    def submodules(self) -> tuple[str, ...]:
        """Folders that wait for a submodule of a repository of the user's."""
        waiting = (folder for folders in self._waiting.values() for folder in folders)
        return tuple(folder for folder in waiting if os.path.isdir(folder) and not os.path.lexists(f"{folder}/.git"))

    def look(self, run: Span | None, kept: tuple[str, ...] = ()) -> None:
        """Find out what there is now. `run`: when commands ran since the last look, None where none did; `kept`: paths
        that they could not write. Raises OSError if what is ours cannot be recorded; it counts as ours all the same.
        """
        self._scan()
        fresh = self._record.refresh()
        before, self._found = self._found, {}
        made: dict[str, Identity] = {}
        for one in (folder.repository for folder in self._folders.values() if folder.repository):
            known = before.get(one.path)
            if known is not None and known.what == one.what and (known.own or not fresh):
                self._found[one.path] = known
                continue
            own = self._record.owns(one.path, one.what)
            if not own and run and _is_ours(one, run, kept, before):
                own, made[one.path] = True, one.what
            self._found[one.path] = replace(one, own=own)
        self._look_for_submodules()
        if made:
            self._record.add(made)

    def _look_for_submodules(self) -> None:
        """Once, when a repository of the user's is first seen: later a command may have edited the list."""
        for path in self.users:
            if path not in self._waiting and not self._found[path].bare:
                self._waiting[path] = submodule_folders(os.path.dirname(path))

    @cached_property
    def _watch(self) -> FolderWatch:
        """Made with the first look, which nobody waits for."""
        return FolderWatch(REPOSITORY_NAMES)

    def close(self) -> None:
        """Let go of the watched folders."""
        if "_watch" in self.__dict__:
            self._watch.close()

    def _scan(self) -> None:
        """Root by root, breadth first. A folder that has not changed is not read again."""
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
                limits.append(LIMIT_MET.format(root=root.path, most=MAX_FOLDERS))
        self._folders, self.limits = folders, tuple(limits)
        self._watch.keep(folders)
        tops = {root.path for root in self._roots if not root.scan}
        self._all_watched = all(path in tops or self._watch.is_clean(path) for path in folders)

    def _read_tops(self) -> None:
        for root in self._roots:
            if not root.scan and (folder := self._read(root.path, whole=False)):
                self._folders[root.path] = folder

    def _read(self, path: str, whole: bool) -> _Folder | None:
        """None for a folder that is gone, or closed to us as it is to commands."""
        known = self._folders.get(path)
        if known and self._watch.is_clean(path):
            return known
        try:
            if not whole:
                return _Folder(0, (), _repository(path, _names_at_top(path)))
            self._watch.watch(path)  # first, so that a change while it is read is heard of
            changed = os.lstat(path).st_ctime_ns
            if known and known.changed == changed:
                return known
            if time.time_ns() - changed < SETTLED_NS:
                changed = 0
            names, children = set[str](), list[str]()
            with os.scandir(path) as entries:
                for entry in entries:
                    names.add(entry.name)
                    if entry.name not in _NOT_ENTERED and entry.is_dir(follow_symlinks=False):
                        children.append(f"{path}/{entry.name}")
        except OSError:
            return None
        repository = _repository(path, names)
        is_bare = repository is not None and repository.bare
        return _Folder(changed, () if is_bare else tuple(children), repository)


def _names_at_top(path: str) -> set[str]:
    """Of a folder that may hold very much: those that a repository would have."""
    return {name for name in REPOSITORY_NAMES if os.path.lexists(f"{path}/{name}")}


def _repository(path: str, names: set[str]) -> Repository | None:
    bare = ".git" not in names
    if bare and not is_bare_shape(names):
        return None
    place = path if bare else f"{path}/.git"
    what = identity(place)
    return None if what is None else Repository(place, what, bare)


def _is_ours(one: Repository, run: Span, kept: tuple[str, ...], before: Mapping[str, Repository]) -> bool:
    """Made within the run where commands could write; or made by a command before, and moved within it."""
    if not one.what.born or any(is_within(one.path, path) for path in kept):
        return False
    moved = next((other for other in before.values() if other.what == one.what), None)
    return run.contains(one.what.born) if moved is None else moved.own
