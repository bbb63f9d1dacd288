"""The way back: put each path into the state that it had before, if it still is as the turn left it.

A path at a time. One that somebody has changed since is left alone, and so is one that may not be written now. What a
kill interrupts is completed by doing the same again: a path that is as before counts as done.
"""

import errno
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from ferrule.patch.files import PlainFiles
from ferrule.patch.writer import Journal
from ferrule.protocol.events import LeftAlone
from ferrule.undo.states import MISSING, Change, Content, State, capture, digest_of

CHANGED = "it was changed afterwards"
NOT_KEPT = "its content from before was not kept: it was too large"
NO_FILE = "it was no file, link or folder before, and nothing else can be brought back"
ONLY_COPY = "it may be the only copy of a file from before that cannot be brought back"
_PASSING = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ENOMEM, errno.EMFILE, errno.ENFILE})
"""Errors that have nothing to do with the path and may be gone at the next try."""
_BESIDE = ".ferrule-undo-"
"""Prefix of the file that is written beside a path and renamed over it. The rest comes from the path, so that the one
that a kill left behind is found."""


class Outcome(msgspec.Struct, frozen=True):
    """The files and links that are as before the turn now, and the paths that were left alone. `failed`: the system
    refused some of them (a full disk), and another try may bring them back."""

    restored: tuple[str, ...] = ()
    left: tuple[LeftAlone, ...] = ()
    failed: bool = False


def take_back(
    changes: Mapping[str, Change],
    files: PlainFiles,
    content: Callable[[str], bytes | None],
    journal: Journal | None = None,
) -> Outcome:
    """Take changes back through `files`, which says what may be written. `content` returns what is kept under a digest.
    `journal` is told what a kill would leave half done.

    What was created goes first, the deepest path first; then folders come back, and what was in them.
    """
    try:
        return _Return(changes, files, content, journal).run()
    finally:
        if journal is not None:
            journal.ended()


class _Return:
    def __init__(
        self,
        changes: Mapping[str, Change],
        files: PlainFiles,
        content: Callable[[str], bytes | None],
        journal: Journal | None,
    ) -> None:
        self._changes = changes
        self._files = files
        self._content = content
        self._journal = journal
        self._left: dict[str, str] = {}
        self._failed = False
        self._lost = {
            _gist(change.before)
            for path, change in changes.items()
            if self._is_lost(change.before) or (change.before.kind == "file" and self._is_refused(path))
        }

    def run(self) -> Outcome:
        changes = self._changes
        todo = [path for path, change in sorted(changes.items()) if self._is_to_do(path, change)]
        for step in (self._open, self._clear, self._restore, self._close):
            deepest_first = step in (self._clear, self._close)
            for path in reversed(todo) if deepest_first else todo:
                self._try(path, changes[path], step)
        done = (path for path, change in changes.items() if path not in self._left and not _only_folders(change))
        left = tuple(LeftAlone(path, self._left[path]) for path in sorted(self._left))
        return Outcome(tuple(sorted(done)), left, self._failed)

    def _is_to_do(self, path: str, change: Change) -> bool:
        """Return whether a path is to be changed: it is as the turn left it. Note why it is left alone otherwise."""
        try:
            now = capture(path) if self._is_reached(path) else Content(MISSING)
        except OSError as error:
            self._left[path] = str(error)
            return False
        if now.state == change.before:
            return False
        reason = self._reason_against(change, now.state)
        if reason is not None:
            self._left[path] = reason
        return reason is None

    def _reason_against(self, change: Change, now: State) -> str | None:
        if not _is_ours(now, change):
            return CHANGED
        if change.doubt:
            return change.doubt
        if change.before.kind == "other":
            return NO_FILE
        if self._is_lost(change.before):
            return NOT_KEPT
        return ONLY_COPY if now.kind == "file" and _gist(now) in self._lost else None

    def _is_lost(self, before: State) -> bool:
        return before.kind == "file" and self._kept(before) is None

    def _is_refused(self, path: str) -> bool:
        """Return whether a path may not be written."""
        try:
            with self._files.at(path):
                return False
        except PermissionError:
            return True
        except OSError:
            return False  # its folder comes back first

    def _is_reached(self, path: str) -> bool:
        """Return whether a path is reached without a link; one that the turn put in place of a folder is not followed:
        nothing stands behind it. Raises `OSError` if it leads elsewhere otherwise."""
        above = os.path.dirname(path)
        if os.path.realpath(above) == above:
            return True
        if any(self._is_turns_link(str(folder)) for folder in Path(path).parents):
            return False
        raise OSError(f"{above} leads elsewhere now")

    def _is_turns_link(self, path: str) -> bool:
        change = self._changes.get(path)
        if change is None or path in self._left or change.after.kind != "link" or change.before.kind != "folder":
            return False
        return capture(path).state == change.after

    def _kept(self, state: State) -> bytes | None:
        return self._content(state.digest) if state.digest else None

    def _try(self, path: str, change: Change, step: Callable[[str, Change], None]) -> None:
        if path in self._left:
            return
        try:
            if self._is_reached(path):
                step(path, change)
        except OSError as error:
            self._left[path] = error.strerror or str(error)
            self._failed |= error.errno in _PASSING

    def _open(self, path: str, change: Change) -> None:
        """Let a folder be written until all is back in it."""
        if change.before.kind == "folder" and capture(path).state.kind == "folder":
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
            self._rewrite(path, data)
            self._chmod(path, mode)
        else:
            with self._beside(path) as new:
                self._files.create(new, data, mode)

    def _rewrite(self, path: str, data: bytes) -> None:
        """Rewrite in place. What fails or is killed on the way leaves the file as it is now."""
        now = capture(path).data
        if now is not None and self._journal is not None:
            self._journal.rewriting(path, now, data)
        try:
            self._files.rewrite(path, data)
        except OSError:
            if now is not None:
                self._files.rewrite(path, now)
            raise

    @contextmanager
    def _beside(self, path: str) -> Iterator[str]:
        """Rename over the path what the body writes beside it, unless the path was changed meanwhile."""
        before = capture(path).state
        new = os.path.join(os.path.dirname(path), _BESIDE + digest_of(os.fsencode(path))[:16])
        if self._journal is not None:
            self._journal.beside(new)
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


def _gist(file: State) -> bytes:
    """Return what a copy of a file has in common with it, as far as it is known: of one that was not read, the size."""
    return file.digest.encode() or file.mark.partition(b" ")[0]


def _only_folders(change: Change) -> bool:
    return {change.before.kind, change.after.kind} <= {"missing", "folder"}
