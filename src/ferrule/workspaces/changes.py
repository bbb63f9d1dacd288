"""What differs between a base and a workspace, by stat and, where that does not tell, by content."""

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

import msgspec

from ferrule.ignores.walk import IGNORED, Folder, git_rules_of, git_verdict
from ferrule.workspaces.base import LINK, Entry, mode_of, stamp_of
from ferrule.workspaces.source import WorkspaceError
from ferrule.workspaces.threads import Stop
from ferrule.workspaces.tree import Tree, folders_of, is_gits, joined, shown

MOST_NEW = 200_000
"""New files of one task: more are an unpacked archive or a fault, and no work on a source."""
_BLOCK = 1 << 20


class Change(msgspec.Struct, frozen=True):
    """A path whose file or link is new, gone or another. `mode` is the new one, "" if it is gone; `before` is None for
    a new path."""

    path: bytes
    mode: str
    before: Entry | None


def changes(workspace: Tree, base: Tree, entries: Mapping[bytes, Entry], stop: Stop, top: Path) -> Iterator[Change]:
    """Yield what a task has changed, sorted by path. Blocking. Raises `WorkspaceError`.

    Left out: what git does not keep (pipes, sockets, empty folders), all of `.git` at any depth, and new files that a
    `.gitignore` of the workspace names.
    """
    found = dict(_files(workspace, entries, stop, os.fsdecode(top)))
    for path in sorted(found.keys() | entries.keys()):
        stop.check()
        before, now = entries.get(path), found.get(path)
        mode = None if now is None else mode_of(now)
        if now is None or mode is None:
            if before is not None:
                yield Change(path, "", before)
        elif before is None or mode != before.mode or not _is_same(path, mode, before, now, workspace, base):
            yield Change(path, mode, before)


def _files(
    workspace: Tree, entries: Mapping[bytes, Entry], stop: Stop, top: str
) -> Iterator[tuple[bytes, os.stat_result]]:
    """Yield each file of a workspace that counts, with its lstat."""
    known = {*entries, *(folder for path in entries for folder in folders_of(path))}
    new = 0
    pending: list[tuple[bytes, Folder | None, bool]] = [(b"", None, False)]
    while pending:
        path, above, is_ignored = pending.pop()
        here = workspace.names(path)
        rules = _rules_of(path, above, {name for name, _ in here}, top)
        for name, found in here:
            stop.check()
            inner = joined(path, name)
            ignored = is_ignored or _is_ignored(inner, rules, found, top)
            if is_gits(name, found.st_mode) or (ignored and inner not in known):
                continue
            if stat.S_ISDIR(found.st_mode):
                pending.append((inner, rules, ignored))
                continue
            new += inner not in known
            if new > MOST_NEW:
                raise WorkspaceError(
                    f"more than {MOST_NEW:,} files are new, up to {shown(inner)}: too many for a patch"
                )
            yield inner, found


def _rules_of(path: bytes, above: Folder | None, names: set[bytes], top: str) -> Folder | None:
    """Return the rules of a folder: those of its `.gitignore`, none of `.git`."""
    if b".gitignore" not in names and not (path and b".git" in names):
        return above
    folder = f"{top}/{os.fsdecode(path)}".rstrip("/")
    return git_rules_of(folder, above, {".gitignore"} & {os.fsdecode(name) for name in names})


def _is_ignored(path: bytes, rules: Folder | None, found: os.stat_result, top: str) -> bool:
    if rules is None:
        return False
    return git_verdict(f"{top}/{os.fsdecode(path)}", rules, stat.S_ISDIR(found.st_mode)) is IGNORED


def _is_same(path: bytes, mode: str, before: Entry, now: os.stat_result, workspace: Tree, base: Tree) -> bool:
    """Tell whether a path has the content that it has in the base; the modes are equal."""
    if before.stamp == stamp_of(now):
        return True
    if mode == LINK:
        return workspace.link(path) == base.link(path)
    ours, theirs = workspace.file(path), base.file(path)
    if ours is None or theirs is None:
        return ours is theirs
    with ours, theirs:
        return os.fstat(ours.fileno()).st_size == os.fstat(theirs.fileno()).st_size and _are_equal(ours, theirs)


def _are_equal(one: IO[bytes], other: IO[bytes]) -> bool:
    while (piece := one.read(_BLOCK)) == other.read(_BLOCK):
        if not piece:
            return True
    return False
