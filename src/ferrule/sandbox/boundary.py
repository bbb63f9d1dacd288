"""Decide what may be written now: the same answer for commands, enforced by mounts, and for patches, which ask."""

import os
import stat
from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import Final, Literal

import msgspec

from ferrule.git.layout import directories
from ferrule.sandbox.plan import PROTECTED_NAMES, RESERVED_NAMES, ConfinementPlan, folders_between, is_within

PLACEHOLDER_MODE: Final = 0o555
"""Nobody can write into a placeholder; the mode also tells it from a folder that somebody made."""


WRITABLE: Final = frozenset({"pin", "open"})
"""Kinds of cover that leave a path writable."""


class Cover(msgspec.Struct, frozen=True):
    """One protected path. `read`: made read-only; `empty`: a placeholder; `link`: a symbolic link, covered by a
    read-only file with `content`, or by the file that it leads to; `pin`: stays writable but cannot be renamed; `open`:
    writable inside of what is read-only."""

    kind: Literal["read", "empty", "link", "pin", "open"]
    path: str
    content: str = ""


class Boundary(msgspec.Struct, frozen=True):
    """The protected paths of a plan's roots as they are now, in the order of mounting.

    `own` holds the `.git` paths and bare repositories that our commands made: they stay writable.
    """

    plan: ConfinementPlan
    covers: tuple[Cover, ...] = ()
    own: tuple[str, ...] = ()

    def refusal(self, path: str) -> str | None:
        """Return why this real path may not be written; None if it may."""
        inside = [root.path for root in self.plan.roots if is_within(path, root.path)]
        if not inside:
            return "outside of the folders that may be written"
        opened = [folder for folder in self.plan.opened if is_within(path, folder)]
        for cover in self.covers:
            is_opened = any(is_within(folder, cover.path) for folder in opened)
            if cover.kind not in WRITABLE and is_within(path, cover.path) and not is_opened:
                return PROTECTED
        inside = opened or inside
        below = [_parts_below(path, root) for root in inside]
        if any(parts[0] in RESERVED_NAMES for parts in below):
            return PROTECTED
        if any(is_within(path, own) and ".git" not in _parts_below(path, own) for own in self.own):
            return None
        return PROTECTED if any(".git" in parts for parts in below) else None


PROTECTED: Final = "protected: what is written there runs or decides later"


def _parts_below(path: str, folder: str) -> list[str]:
    return path[len(folder.rstrip("/")) + 1 :].casefold().split("/")  # some file systems fold case


def boundary_of(
    plan: ConfinementPlan, users: Iterable[str] = (), own: Iterable[str] = (), submodules: Iterable[str] = ()
) -> Boundary:
    """Build the boundary from what is on disk. `users` are `.git` paths and bare repositories that are not ours;
    `submodules` are folders in which a user's repository expects one. Where these point is protected too, unless it is
    our own."""
    own = tuple(own)
    tops = {f"{root.path}/{name}" for root in plan.roots for name in PROTECTED_NAMES}
    named = [Cover("read", path) for path in plan.read_only]
    for root in plan.roots:
        for name in PROTECTED_NAMES:
            path = f"{root.path}/{name}"
            if path not in own:
                named += _covers_of(path, own, reserve=root.reserve and name in RESERVED_NAMES)
    nested = [cover for path in users if path not in tops for cover in _covers_of(path, own, reserve=False)]
    waiting = [Cover("read", path) for path in submodules]
    inside = [cover for cover in (*named, *nested, *waiting) if _is_inside(cover.path, plan)]
    opened = [Cover("open", path) for path in plan.opened]
    return Boundary(plan, (*_pins(plan, inside), *dict.fromkeys(inside), *opened), own)


def _is_inside(path: str, plan: ConfinementPlan) -> bool:
    return any(is_within(path, root.path) for root in plan.roots)


def _covers_of(path: str, own: tuple[str, ...], reserve: bool) -> Iterator[Cover]:
    mode = _mode(path)
    if mode is None or (stat.S_IMODE(mode) == PLACEHOLDER_MODE and _is_empty(path)):
        if reserve:
            yield Cover("empty", path)
        return
    if not stat.S_ISLNK(mode):
        yield Cover("read", path)
    for folder in _targets(path, mode):
        if not any(is_within(folder, one) for one in own):
            yield Cover("read", folder)
    if stat.S_ISLNK(mode):
        yield Cover("link", path, _instead_of_a_link(path))


def _instead_of_a_link(path: str) -> str:
    """Return the text shown in place of a link, over which no folder can be mounted: a pointer for git, and for anybody
    else the place to read."""
    target = os.path.realpath(path)
    if os.path.isfile(target):
        return ""
    return f"gitdir: {target}\n" if path.endswith("/.git") else f"A link that commands see as a file: read {target}\n"


def _targets(path: str, mode: int) -> tuple[str, ...]:
    """Return what a link or a `.git` file leads to. A link by another name leads to its target only."""
    if not path.endswith("/.git") or stat.S_ISDIR(mode):
        return (os.path.realpath(path),) if stat.S_ISLNK(mode) else ()
    return directories(path)


def _mode(path: str) -> int | None:
    if not os.access(path, os.F_OK, follow_symlinks=False):  # most are missing, and an exception takes longer
        return None
    try:
        return os.lstat(path).st_mode
    except OSError:
        return None


def _is_empty(path: str) -> bool:
    """Tell whether a folder is empty, as a placeholder of this or another process is."""
    try:
        return not os.listdir(path)
    except OSError:
        return False


def _pins(plan: ConfinementPlan, covers: Iterable[Cover]) -> Iterator[Cover]:
    """Pin the folders between a root and a protected path below it. Renaming one would move the protected path away,
    and a command starting in that moment would not find it. A read-only folder needs no pin."""
    kept, roots = {cover.path for cover in covers}, {root.path for root in plan.roots}
    between = (folders_between(root, path) for path in (kept | roots) for root in roots)
    pinned = {folder for folders in between for folder in takewhile(lambda one: one not in kept, folders)}
    return (Cover("pin", path) for path in sorted(pinned - roots))
