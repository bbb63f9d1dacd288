"""The way back: put each path into the state that it had before, if it still is as the turn left it.

A path at a time. One that somebody has changed since is left alone, and so is one that may not be written now. What a
kill interrupts is completed by doing the same again: a path that is as before counts as done.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

import msgspec

from ferrule.patch.files import PlainFiles
from ferrule.protocol.events import LeftAlone
from ferrule.undo.states import MISSING, Change, Content, State, capture, digest_of

CHANGED = "it was changed afterwards"
NOT_KEPT = "its content from before was not kept: it was too large"
_BESIDE = ".ferrule-undo-"
"""Prefix of the file that is written beside a path and renamed over it. The rest comes from the path, so that the one
that a kill left behind is found."""


class Outcome(msgspec.Struct, frozen=True):
    """The files and links that are as before the turn now, and the paths that were left alone."""

    restored: tuple[str, ...] = ()
    left: tuple[LeftAlone, ...] = ()


def take_back(changes: Mapping[str, Change], files: PlainFiles, content: Callable[[str], bytes | None]) -> Outcome:
    """Take changes back through `files`, which says what may be written. `content` returns what is kept under a digest.

    What was created goes first, the deepest path first; then folders come back, and what was in them.
    """
    return _Return(files, content).run(changes)


class _Return:
    def __init__(self, files: PlainFiles, content: Callable[[str], bytes | None]) -> None:
        self._files = files
        self._content = content
        self._left: dict[str, str] = {}

    def run(self, changes: Mapping[str, Change]) -> Outcome:
        todo = [path for path, change in sorted(changes.items()) if self._is_to_do(path, change)]
        for step in (self._open, self._clear, self._restore, self._close):
            deepest_first = step in (self._clear, self._close)
            for path in reversed(todo) if deepest_first else todo:
                self._try(path, changes[path], step)
        done = (path for path, change in changes.items() if path not in self._left and not _only_folders(change))
        return Outcome(tuple(sorted(done)), tuple(LeftAlone(path, self._left[path]) for path in sorted(self._left)))

    def _is_to_do(self, path: str, change: Change) -> bool:
        """Return whether a path is to be changed: it is as the turn left it. Note why it is left alone otherwise."""
        now = capture(path)
        if now.state == change.before:
            return False
        reason = self._reason_against(path, change, now)
        if reason is not None:
            self._left[path] = reason
        return reason is None

    def _reason_against(self, path: str, change: Change, now: Content) -> str | None:
        above = os.path.dirname(path)
        if os.path.lexists(above) and os.path.realpath(above) != above:
            return f"{above} leads elsewhere now"
        kept = self._kept(change.before)
        if not _is_ours(now.state, change) and not self._is_torn(path, now, kept):
            return CHANGED
        lost = change.before.kind == "other" or (change.before.kind == "file" and kept is None)
        return change.doubt or (NOT_KEPT if lost else None)

    def _is_torn(self, path: str, now: Content, kept: bytes | None) -> bool:
        """Return whether a file that has to be written in place was left halfway: nothing but the beginning of what it
        was before."""
        return (
            kept is not None and now.data is not None and kept.startswith(now.data) and self._files.look(path).in_place
        )

    def _kept(self, state: State) -> bytes | None:
        return self._content(state.digest) if state.digest else None

    def _try(self, path: str, change: Change, step: Callable[[str, Change], None]) -> None:
        if path in self._left:
            return
        try:
            step(path, change)
        except OSError as error:
            self._left[path] = error.strerror or str(error)

    def _open(self, path: str, change: Change) -> None:
        """Let a folder be written until all is back in it."""
        if change.before.kind == "folder" and os.path.isdir(path):
            self._chmod(path, change.before.mode | 0o700)

    def _clear(self, path: str, change: Change) -> None:
        """Remove what was created, and what is of another kind than before."""
        now, before = capture(path).state, change.before
        if now.kind == "folder" and before == MISSING:
            with suppress(OSError):  # there is something in it that is not the turn's
                self._files.rmdir(path)
        elif now.kind == "folder" and before.kind != "folder":
            self._files.rmdir(path)
        elif now.kind in ("file", "link") and before.kind in ("missing", "folder"):
            self._files.unlink(path)

    def _restore(self, path: str, change: Change) -> None:
        before = change.before
        if before.kind != "missing":
            self._files.make_parents(path)
        if before.kind == "folder" and not os.path.isdir(path):
            with self._files.at(path) as (name, folder):
                os.mkdir(name, before.mode | 0o700, dir_fd=folder)
        elif before.kind == "link":
            with self._beside(path) as new, self._files.at(new) as (name, folder):
                os.symlink(os.fsdecode(before.mark), name, dir_fd=folder)
        elif before.kind == "file":
            self._write(path, self._kept(before) or b"", before.mode)

    def _write(self, path: str, data: bytes, mode: int) -> None:
        if not os.path.islink(path) and self._files.look(path).in_place:
            self._files.rewrite(path, data)
            self._chmod(path, mode)
        else:
            with self._beside(path) as new:
                self._files.create(new, data, mode)

    @contextmanager
    def _beside(self, path: str) -> Iterator[str]:
        """Rename over the path what the body writes beside it, unless the path was changed meanwhile."""
        before = capture(path).state
        new = os.path.join(os.path.dirname(path), _BESIDE + digest_of(os.fsencode(path))[:16])
        with suppress(FileNotFoundError):
            self._files.unlink(new)
        try:
            yield new
            if capture(path).state != before:
                raise OSError(CHANGED)
            self._files.rename(new, path)
        except BaseException:
            with suppress(OSError):
                self._files.unlink(new)
            raise

    def _close(self, path: str, change: Change) -> None:
        if change.before.kind == "folder":
            self._chmod(path, change.before.mode)

    def _chmod(self, path: str, mode: int) -> None:
        with self._files.at(path) as (name, folder):
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
            try:
                os.fchmod(descriptor, mode)
            finally:
                os.close(descriptor)


def _is_ours(now: State, change: Change) -> bool:
    """Return whether a path is as the turn left it, or as a way back left it that was killed: cleared already, or a
    folder with the rights to write it."""
    before, after = change.before, change.after
    if now == after:
        return True
    if now == MISSING:
        return before.kind != after.kind and "folder" in (before.kind, after.kind)
    if now.kind != "folder":
        return False
    if before.kind == "folder":
        return now.mode == before.mode | 0o700
    return after.kind == "folder"


def _only_folders(change: Change) -> bool:
    return {change.before.kind, change.after.kind} <= {"missing", "folder"}
