"""Carry out a plan: all of it, or nothing."""

import errno
import os
from collections.abc import Callable
from functools import partial
from typing import NamedTuple, Protocol

from ferrule.patch.errors import ApplyError
from ferrule.patch.files import Entry, FileLayer, Kind, PlainFiles
from ferrule.patch.parser import parse
from ferrule.patch.planner import Operation, Place, Plan, plan, reason

_BESIDE = ".ferrule-"
"""Prefix of the files that exist only while a patch is applied."""

_NOT_HERE = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY})
"""Errors on writing a file's replacement beside it or renaming over it, although the file itself may be writable: the
folder's permissions, or a mount point."""


class Journal(Protocol):
    """Told what a killed process would leave half done, before it is done, so that another one can put it right. It
    never raises."""

    def beside(self, path: str, original: str | None = None) -> None:
        """A file of ours is about to stand here for a moment; with `original`, it is that one, put aside."""
        ...

    def rewriting(self, path: str, before: bytes, after: bytes) -> None:
        """A file is about to be rewritten in place."""
        ...

    def applied(self) -> None:
        """The patch is applied; only our own files have to go."""
        ...

    def ended(self) -> None:
        """Nothing is half done any more."""
        ...


def apply(plan: Plan, files: FileLayer, *, overwrite: bool = False, journal: Journal | None = None) -> None:
    """Carry out a plan. A file is written beside its target and renamed over it, so that nobody sees half of it; mode
    and links stay. A file that a rename would impair (`Entry.in_place`) is rewritten in place, with a saved copy
    beside it meanwhile.

    Raises `ApplyError`: a file changed since the plan was made, a file would be destroyed and `overwrite` is not set,
    or the system refuses. Then everything is as before, created folders included; if even that failed, the text lists
    what is left.
    """
    if plan.overwrites and not overwrite:
        raise ApplyError(
            f"{plan.overwrites[0]} already exists, and the patch would destroy its content. Change it with "
            "'*** Update File: ', or choose another path; to replace it whole, delete it first in the same patch."
        )
    try:
        _Run(files, journal).carry_out(plan)
    finally:
        if journal is not None:
            journal.ended()


class _Undo(NamedTuple):
    """One undo step: what it restores, how, and the saved copy it needs."""

    what: str
    step: Callable[[], None]
    saved: str | None = None


class _Run:
    """One application of a plan: its undo steps, and the temporary files to remove at the end."""

    def __init__(self, files: FileLayer, journal: Journal | None) -> None:
        self._files = files
        self._journal = journal
        self._undo: list[_Undo] = []
        self._beside: list[str] = []
        self._final = False

    def carry_out(self, plan: Plan) -> None:
        self._verify(plan)
        acts = [(operation, act) for operation in plan.operations for act in self._acts(operation)]
        try:
            for number, (operation, act) in enumerate(acts, start=1):
                self._final = number == len(acts)
                act(operation)
        except OSError as error:
            left = self._roll_back()
            raise ApplyError(f"Failed to {_verb(operation)} {_where(operation)}: {reason(error)}{left}") from error
        except BaseException:
            self._roll_back()
            raise
        if self._journal is not None:
            self._journal.applied()
        stray = self._sweep()
        if stray:
            raise ApplyError(f"The patch was applied, but these left-overs could not be removed: {', '.join(stray)}")

    def _verify(self, plan: Plan) -> None:
        """Check that nobody has touched the files since the plan was made."""
        for operation in plan.operations:
            for place in (operation.source, operation.destination):
                if place and place.fresh and self._look(place) != place.entry:
                    raise ApplyError(f"{place.absolute} changed since the patch was checked. Read it and patch again.")

    def _look(self, place: Place) -> Entry:
        try:
            return self._files.look(place.absolute)
        except OSError as error:
            raise ApplyError(f"Failed to read {place.absolute}: {reason(error)}") from error

    def _acts(self, operation: Operation) -> tuple[Callable[[Operation], None], ...]:
        if operation.after is None:
            return (self._remove,)
        if not operation.destination:
            return (self._write,)
        entry = operation.source.entry
        is_twin = entry.identity is not None and entry.identity == operation.destination.entry.identity
        if operation.before == operation.after and entry.name == entry.real:
            return (self._remove,) if is_twin else (self._move,)  # rename(2) does nothing between two links of a file
        return (self._write, self._remove)

    def _write(self, operation: Operation) -> None:
        """Give the target its new content."""
        data = operation.after or b""
        place = operation.destination or operation.source
        entry = place.entry if place.fresh else self._files.look(place.absolute)
        mode = self._files.look(operation.source.absolute).mode if operation.destination else None
        if entry.kind is Kind.MISSING:
            self._create(entry.real, data, mode)
            return
        before = (operation.replaced if operation.destination else operation.before) or b""
        mode = entry.mode if mode is None else mode
        if entry.in_place or not self._replace(entry.real, before, data, mode):
            self._rewrite(entry.real, before, data, mode)

    def _create(self, path: str, data: bytes, mode: int | None) -> None:
        self._make_parents(path)
        self._files.create(path, data, mode)
        self._undo.append(_Undo(path, partial(self._files.unlink, path)))

    def _make_parents(self, path: str) -> None:
        for folder in self._files.make_parents(path):
            self._undo.append(_Undo(folder, partial(self._files.rmdir, folder)))

    def _replace(self, path: str, before: bytes, data: bytes, mode: int) -> bool:
        """Rename a new file over the old; return False if the folder does not allow that."""
        new = self._name_beside(path)
        try:
            self._files.create(new, data, mode)
            saved = None if self._final else self._save(path, before, mode)
            self._files.rename(new, path)
        except OSError as error:
            if error.errno in _NOT_HERE:
                return False
            raise
        self._beside.remove(new)
        if saved:
            self._undo.append(_Undo(path, partial(self._files.rename, saved, path), saved))
        return True

    def _rewrite(self, path: str, before: bytes, data: bytes, mode: int) -> None:
        """Rewrite in place, with a copy beside it meanwhile if the folder allows."""
        saved: str | None = self._name_beside(path)
        try:
            self._files.create(saved or "", before, mode)
        except OSError as error:
            if error.errno not in _NOT_HERE:
                raise
            saved = None
        self._undo.append(_Undo(path, partial(self._files.rewrite, path, before), saved))
        if self._journal is not None:
            self._journal.rewriting(path, before, data)
        self._files.rewrite(path, data)

    def _save(self, path: str, before: bytes, mode: int) -> str:
        """Create a second name for the old file, or a copy if the file system has no links."""
        saved = self._name_beside(path)
        try:
            self._files.link(path, saved)
        except OSError:
            self._files.create(saved, before, mode)
        return saved

    def _remove(self, operation: Operation) -> None:
        """Remove the source: put it aside while something may still fail."""
        name = operation.source.entry.name
        if self._final:
            self._files.unlink(name)
            return
        saved = self._name_beside(name, original=name)
        self._files.rename(name, saved)
        self._undo.append(_Undo(name, partial(self._files.rename, saved, name), saved))

    def _move(self, operation: Operation) -> None:
        """Rename only; across file systems, copy."""
        if operation.destination is None:
            return
        source, target = operation.source.entry.name, operation.destination.entry.real
        self._make_parents(target)
        saved = None if self._final or operation.replaced is None else self._save(target, operation.replaced, 0o600)
        try:
            self._files.rename(source, target)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            self._copy_over(operation)
            return
        if saved:
            self._undo.append(_Undo(target, partial(self._files.rename, saved, target), saved))
        self._undo.append(_Undo(source, partial(self._files.rename, target, source)))

    def _copy_over(self, operation: Operation) -> None:
        final, self._final = self._final, False
        self._write(operation)
        self._final = final
        self._remove(operation)

    def _name_beside(self, path: str, original: str | None = None) -> str:
        name = os.path.join(os.path.dirname(path), _BESIDE + os.urandom(6).hex())
        self._beside.append(name)
        if self._journal is not None:
            self._journal.beside(name, original)
        return name

    def _roll_back(self) -> str:
        """Undo everything, last step first; return what could not be undone."""
        left: list[str] = []
        for undo in reversed(self._undo):
            try:
                undo.step()
            except OSError as error:
                kept = f", its old content is in {undo.saved}" if undo.saved else ""
                left.append(f"{undo.what} ({reason(error)}{kept})")
                if undo.saved:
                    self._beside.remove(undo.saved)
        left += self._sweep()
        return f". NOT restored: {'; '.join(left)}" if left else ". Nothing was changed."

    def _sweep(self) -> list[str]:
        """Remove the temporary files; return those that stay."""
        stay: list[str] = []
        for name in self._beside:
            try:
                self._files.unlink(name)
            except FileNotFoundError:
                continue
            except OSError:
                stay.append(name)
        return stay


def _verb(operation: Operation) -> str:
    return "delete file" if operation.after is None else "write file"


def _where(operation: Operation) -> str:
    return (operation.destination or operation.source).absolute


def apply_patch(text: str, cwd: str, files: FileLayer | None = None, *, overwrite: bool = False) -> str:
    """Parse, plan and apply in one call; relative paths start at `cwd`. Returns the summary. Raises `PatchError`, and
    then nothing was changed."""
    layer = PlainFiles() if files is None else files
    planned = plan(parse(text), layer, os.path.abspath(cwd))
    apply(planned, layer, overwrite=overwrite)
    return planned.summary()
