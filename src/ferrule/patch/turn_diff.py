"""The net diff of a turn: the combined changes of all its patches."""

import posixpath
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from ferrule.patch.diff import CONTEXT_LINES, compare, unified
from ferrule.patch.text import Text

_NO_OBJECT = "0" * 40
_MODE = "100644"
_BINARY_PROBE = 8000
"""Bytes that git searches for a NUL before it calls a file binary."""


class Change(NamedTuple):
    """One applied change: `before` None for a new file, `after` None for a deleted one; with `move_to` (absolute, like
    `path`) `after` is the content there, and `replaced` the content there before."""

    path: str
    before: bytes | None
    after: bytes | None
    move_to: str | None = None
    replaced: bytes | None = None


class _Live(NamedTuple):
    """The current content of a path. `origin`: where it was before the turn, None if it is new."""

    origin: str | None
    content: bytes


class _Entry(NamedTuple):
    """One file of the net diff; a side that does not exist is None."""

    old: str | None
    before: bytes | None
    new: str | None
    after: bytes | None


def turn_diff(changes: Iterable[Change], root: str) -> str:
    """Return the net unified diff, git style, of changes in the order they were applied; empty if they cancel out.

    Files are sorted by their path relative to `root` (absolute). A moved file is one entry `a/OLD b/NEW` against its
    content before the turn; a file created and deleted again leaves nothing.
    """
    baseline: dict[str, bytes | None] = {}
    live: dict[str, _Live | None] = {}
    for change in changes:
        _record(baseline, live, change)
    entries = sorted(_paired(baseline, live), key=lambda entry: entry.new or entry.old or "")
    return "".join(_shown(entry, root) for entry in entries)


def _record(baseline: dict[str, bytes | None], live: dict[str, _Live | None], change: Change) -> None:
    baseline.setdefault(change.path, change.before)
    known = live.get(change.path, _Live(change.path, b"") if change.before is not None else None)
    origin = known.origin if known else None
    if change.after is None:
        live[change.path] = None
    elif change.move_to is None or change.move_to == change.path:
        live[change.path] = _Live(origin, change.after)
    else:
        baseline.setdefault(change.move_to, change.replaced)
        live[change.path] = None
        live[change.move_to] = _Live(origin, change.after)


def _paired(baseline: dict[str, bytes | None], live: dict[str, _Live | None]) -> Iterator[_Entry]:
    """Pair each current path with its old self unless that is elsewhere, else with what moved there, else as new; then
    yield the unpaired old files."""
    moved = {each.origin for path, each in live.items() if each and each.origin != path}
    kept = {path for path, each in live.items() if each and baseline[path] is not None and path not in moved}
    used = set(kept)
    for path, each in live.items():
        if each is None:
            continue
        old = path if path in kept else each.origin
        if path not in kept and old in used:
            old = None
        before = baseline[old] if old else None
        if old and before is not None:
            used.add(old)
        else:
            old = None
        if before != each.content or old != path:
            yield _Entry(old, before, path, each.content)
    for path, before in baseline.items():
        if before is not None and path not in used:
            yield _Entry(path, before, None, None)


def _shown(entry: _Entry, root: str) -> str:
    """Return the entry as git prints it."""
    old, new = (_relative(path, root) if path else None for path in (entry.old, entry.new))
    lines = [f"diff --git a/{old or new} b/{new or old}"]
    if old is None:
        lines.append(f"new file mode {_MODE}")
    elif new is None:
        lines.append(f"deleted file mode {_MODE}")
    elif old != new:
        lines += [f"rename from {old}", f"rename to {new}"]
    if entry.before == entry.after:
        return "\n".join(lines) + "\n"
    lines.append(f"index {_object_id(entry.before)}..{_object_id(entry.after)}")
    left, right = f"a/{old}" if old else "/dev/null", f"b/{new}" if new else "/dev/null"
    if _is_binary(entry.before) or _is_binary(entry.after):
        return "\n".join([*lines, f"Binary files {left} and {right} differ"]) + "\n"
    before, after = Text.read(entry.before or b""), Text.read(entry.after or b"")
    hunks = unified(before, after, compare(before, after), CONTEXT_LINES)
    if hunks:
        lines += [f"--- {left}", f"+++ {right}"]
    return "\n".join(lines) + "\n" + hunks


def _relative(path: str, root: str) -> str:
    return posixpath.relpath(path, root) if posixpath.isabs(path) else path


def _object_id(content: bytes | None) -> str:
    if content is None:
        return _NO_OBJECT
    from hashlib import sha1

    return sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def _is_binary(content: bytes | None) -> bool:
    return content is not None and b"\0" in content[:_BINARY_PROBE]
