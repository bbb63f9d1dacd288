"""Turn a patch into a plan: every change is computed in memory before anything is written."""

import errno
import os
from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from ferrule.patch.diff import CONTEXT_LINES, compare, unified
from ferrule.patch.edits import Missed, edits_of, index_for, place, touches_end
from ferrule.patch.encoding import PLAIN, Encoding, unwritable
from ferrule.patch.errors import MatchError
from ferrule.patch.files import Entry, FileLayer, Kind
from ferrule.patch.matching import Level
from ferrule.patch.paths import unexpanded
from ferrule.patch.syntax import AddFile, DeleteFile, Hunk, Patch, UpdateFile
from ferrule.patch.text import Edit, Text


class OperationKind(StrEnum):
    """The effect on a path. Add File over an existing file is an `update` that overwrites."""

    CREATE = "create"
    DELETE = "delete"
    UPDATE = "update"


class Place(NamedTuple):
    """A path as the patch writes it, its absolute form (links not resolved), and the current entry there. `fresh`: no
    earlier operation of the plan touched it, so `entry` must still be true when the plan is applied."""

    path: str
    absolute: str
    entry: Entry
    fresh: bool = True


class Operation(NamedTuple):
    """One file of a plan. `before` is None for a create, `after` None for a delete; for a move both are the source's
    and the destination's content. `added` and `deleted` count lines. `replaced` is the content of another file that
    a move destroys. `notes` tell the model where a match was forgiving, and of an encoding that is not UTF-8.
    `encodings` are those of `before` and `after`; None: the bytes tell."""

    kind: OperationKind
    source: Place
    destination: Place | None
    before: bytes | None
    after: bytes | None
    added: int
    deleted: int
    overwrites: bool = False
    replaced: bytes | None = None
    notes: tuple[str, ...] = ()
    edits: tuple[Edit, ...] | None = None
    encodings: tuple[Encoding | None, Encoding | None] = (None, None)

    @property
    def path(self) -> str:
        """The path as the patch writes it."""
        return self.source.path

    @property
    def move_to(self) -> str | None:
        """The destination as the patch writes it."""
        return self.destination.path if self.destination else None

    @property
    def target(self) -> str:
        """The absolute path that finally changes: the destination of a move."""
        return (self.destination or self.source).absolute

    @property
    def targets(self) -> tuple[str, ...]:
        """The real absolute paths that are written or removed, all of which must be allowed."""
        if self.destination:
            return (self.source.entry.name, self.destination.entry.real)
        return (self.source.entry.real if self.after is not None else self.source.entry.name,)

    @property
    def shared(self) -> bool:
        """Whether a file that is rewritten in place has other hard links, which will show the new content too."""
        place = self.destination or self.source
        return self.after is not None and place.entry.links > 1

    def unified_diff(self, context: int = CONTEXT_LINES) -> str:
        """Return the change as hunks of a unified diff, without file headers."""
        before, after = (
            Text.read(data or b"", encoding)
            for data, encoding in zip((self.before, self.after), self.encodings, strict=True)
        )
        edits = compare(before, after) if self.edits is None else self.edits
        return unified(before, after, edits, context)


class Plan(NamedTuple):
    """All operations, in the order of the patch, worked out against the files as they were."""

    operations: tuple[Operation, ...]

    @property
    def overwrites(self) -> tuple[str, ...]:
        """Paths whose present content the patch does not know and would destroy."""
        return tuple(each.move_to or each.path for each in self.operations if each.overwrites)

    def summary(self) -> str:
        """Return the success text: `A`, then `M`, then `D` lines, paths as in the patch. A file that is deleted and
        recreated counts as changed."""
        gone: set[str] = set()
        last = {each.target: at for at, each in enumerate(self.operations)}
        letters: dict[str, list[str]] = {"A": [], "M": [], "D": []}
        for at, each in enumerate(self.operations):
            letter = _LETTERS[each.kind]
            if letter == "A" and each.target in gone:
                letter = "M"
            if letter == "D":
                gone.add(each.target)
            if letter != "D" or at == last[each.target]:
                letters[letter].append(each.move_to or each.path)
        lines = [f"{letter} {path}" for letter, paths in letters.items() for path in paths]
        return "\n".join(["Success. Updated the following files:", *lines]) + "\n"


def plan(patch: Patch, files: FileLayer, cwd: str) -> Plan:
    """Match the whole patch against the files; relative paths start at `cwd` (absolute). Changes nothing.

    Raises `MatchError`: a file is missing or no regular file, a hunk is not found, nothing would change.
    """
    if not patch.hunks:
        raise MatchError("No files were modified.")
    planner = _Planner(files, cwd)
    for hunk in patch.hunks:
        planner.add(hunk)
    return Plan(tuple(planner.operations))


class _Seen(NamedTuple):
    """A place and its content at this point of the plan; None when there is no file."""

    place: Place
    content: bytes | None


class _Planner:
    """Plans hunk after hunk over a picture of the files as the earlier hunks leave them."""

    def __init__(self, files: FileLayer, cwd: str) -> None:
        self._files = files
        self._cwd = cwd
        self._changed: dict[str | tuple[int, int] | None, _Seen] = {}
        self._deleted: dict[str, Operation] = {}
        self.operations: list[Operation] = []

    def add(self, hunk: Hunk) -> None:
        match hunk:
            case AddFile():
                operation = self._create(hunk)
            case DeleteFile():
                operation = self._delete(hunk)
            case UpdateFile():
                operation = self._update(hunk)
        self.operations.append(operation)

    def _create(self, hunk: AddFile) -> Operation:
        seen = self._look(hunk.path, "Failed to write file")
        text = Text(list(hunk.lines))
        after = text.write()
        self._check_parents(seen.place)
        deleted = self._deleted.get(seen.place.entry.name)
        if deleted is not None:
            return self._replace(deleted, text)
        if seen.content is None:
            self._set(seen.place, after)
            new = (Edit(0, 0, hunk.lines),) if hunk.lines else ()
            return Operation(OperationKind.CREATE, seen.place, None, None, after, len(hunk.lines), 0, edits=new)
        before = Text.read(seen.content)
        edits = tuple(compare(before, text))
        added, removed = _counts(edits)
        self._set(seen.place, after)
        return Operation(
            OperationKind.UPDATE,
            seen.place,
            None,
            seen.content,
            after,
            added,
            removed,
            overwrites=True,
            edits=edits,
            encodings=(before.encoding, PLAIN),
        )

    def _replace(self, deleted: Operation, text: Text) -> Operation:
        """Rewrite a file that the patch deletes and adds again, so that it keeps its mode."""
        self.operations.remove(deleted)
        before = Text.read(deleted.before or b"")
        edits = tuple(compare(before, text))
        added, removed = _counts(edits)
        after = text.write()
        self._set(deleted.source, after)
        return deleted._replace(
            kind=OperationKind.UPDATE,
            after=after,
            added=added,
            deleted=removed,
            edits=edits,
            encodings=(before.encoding, PLAIN),
        )

    def _delete(self, hunk: DeleteFile) -> Operation:
        seen = self._look(hunk.path, "Failed to delete file")
        if seen.content is None:
            raise self._missing("Failed to delete file", seen.place)
        lines = Text.read(seen.content).lines
        edits = (Edit(0, len(lines), ()),) if lines else ()
        self._remove(seen.place)
        operation = Operation(OperationKind.DELETE, seen.place, None, seen.content, None, 0, len(lines), edits=edits)
        entry = seen.place.entry
        if entry.name == entry.real and entry.links == 1:  # else a rewrite would reach another name of the file
            self._deleted[entry.name] = operation
        return operation

    def _update(self, hunk: UpdateFile) -> Operation:
        seen = self._look(hunk.path, "Failed to read file to update")
        if seen.content is None:
            raise self._missing("Failed to read file to update", seen.place)
        before = Text.read(seen.content)
        if not before.encoding.is_utf8 and _names_bytes(hunk):
            before = Text.read(seen.content, PLAIN)
        after, edits, notes = self._changed_text(hunk, seen.place, before)
        content = seen.content if after is before else _written(after, edits, seen.place)
        destination = self._destination(hunk, seen.place)
        if content == seen.content and not destination:
            raise MatchError(
                f"The hunks for {seen.place.absolute} change nothing: the file already holds what they would write. "
                "Leave them out, or read the file again."
            )
        added, deleted = _counts(edits)
        if not destination:
            if not seen.place.entry.writable:  # a rename would bypass that
                raise MatchError(f"Failed to write file {seen.place.absolute}: it is read-only")
            self._set(seen.place, content)
        else:
            self._remove(seen.place)
            self._set(destination.place, content)
        return Operation(
            kind=OperationKind.UPDATE,
            source=seen.place,
            destination=destination.place if destination else None,
            before=seen.content,
            after=content,
            added=added,
            deleted=deleted,
            overwrites=bool(destination and destination.content is not None),
            replaced=destination.content if destination else None,
            notes=notes,
            edits=edits,
            encodings=(before.encoding, before.encoding),
        )

    def _changed_text(
        self, hunk: UpdateFile, place_: Place, before: Text
    ) -> tuple[Text, tuple[Edit, ...], tuple[str, ...]]:
        if not hunk.chunks:
            return before, (), ()
        index = index_for(before, hunk.chunks)
        placed = place(index, hunk.chunks)
        if isinstance(placed, Missed):
            from ferrule.patch.diagnosis import explain_missed

            raise MatchError(explain_missed(placed, len(hunk.chunks), before, index, place_.absolute))
        edits = tuple(edits_of(before, placed))
        if not edits:
            return before, (), ()
        after = before.edited(edits, terminated=before.terminated or touches_end(before, placed))
        notes = tuple(
            f"Hunk {each.number} of {place_.path} matched at line {each.start + 1} only with {_FORGIVEN[each.level]}; "
            "added lines were written as given."
            for each in placed
            if each.level in _FORGIVEN and any(line[0] == "+" for line in each.lines)
        )
        return after, edits, (*notes, *_encoding_note(before.encoding, place_))

    def _destination(self, hunk: UpdateFile, source: Place) -> _Seen | None:
        """Return the destination of a move; None if the file stays, also if the destination is the file itself."""
        if hunk.move_to is None:
            return None
        seen = self._look(hunk.move_to, "Failed to write file")
        if seen.place.entry.name == source.entry.name or _is_respelled(source.entry, seen.place.entry):
            return None
        self._check_parents(seen.place)
        return seen

    def _look(self, path: str, failure: str) -> _Seen:
        absolute = os.path.join(self._cwd, path)
        refusal = unexpanded(path, self._cwd)
        if refusal is not None:
            raise MatchError(f"{failure} {path}: {refusal}")
        if path.endswith("/"):
            raise MatchError(f"{failure} {absolute}: the path names a directory")
        try:
            entry = self._files.look(absolute)
            known = self._known(entry)
            if known:
                return _Seen(Place(path, absolute, known.place.entry, fresh=False), known.content)
            if entry.kind is Kind.MISSING:
                return _Seen(Place(path, absolute, entry), None)
            if entry.kind is not Kind.FILE:
                what = "a directory" if entry.kind is Kind.DIRECTORY else "a device, socket or pipe"
                raise MatchError(f"{failure} {absolute}: path `{absolute}` is not a file but {what}")
            return _Seen(Place(path, absolute, entry), self._files.read(absolute))
        except OSError as error:
            raise MatchError(f"{failure} {absolute}: {reason(error)}") from error

    def _known(self, entry: Entry) -> _Seen | None:
        keys = (entry.name, entry.real, entry.identity)
        return next((self._changed[key] for key in keys if key in self._changed), None)

    def _set(self, place_: Place, content: bytes) -> None:
        seen = _Seen(place_, content)
        self._deleted.pop(place_.entry.name, None)
        self._changed[place_.entry.real] = seen
        if place_.entry.links > 1:
            self._changed[place_.entry.identity] = seen

    def _remove(self, place_: Place) -> None:
        name = place_.entry.name
        self._changed[name] = _Seen(Place(place_.path, place_.absolute, Entry(name, name, Kind.MISSING)), None)

    def _check_parents(self, place_: Place) -> None:
        """Raise if a component above a new file is not a directory."""
        if place_.entry.kind is not Kind.MISSING:
            return
        failure = f"Failed to create parent directories for {place_.absolute}"
        folder = os.path.dirname(place_.entry.real)
        while folder != os.path.dirname(folder):
            try:
                entry = self._files.look(folder)
            except OSError as error:
                raise MatchError(f"{failure}: {reason(error)}") from error
            known = self._known(entry)
            if known is None and entry.kind is Kind.DIRECTORY:
                return
            if known.content is not None if known else entry.kind is not Kind.MISSING:
                raise MatchError(f"{failure}: {folder} is not a directory")
            folder = os.path.dirname(folder)

    def _missing(self, failure: str, place_: Place) -> MatchError:
        from ferrule.patch.diagnosis import explain_missing_file

        hint = explain_missing_file(place_.path, self._cwd, self._files)
        return MatchError(f"{failure} {place_.absolute}: No such file or directory (os error {errno.ENOENT}){hint}")


_LETTERS = {OperationKind.CREATE: "A", OperationKind.UPDATE: "M", OperationKind.DELETE: "D"}
_FORGIVEN = {
    Level.BLANKS: "other indentation",
    Level.PUNCTUATION: "other quotes, dashes or spaces",
    Level.UNICODE: "another Unicode form",
}


def reason(error: OSError) -> str:
    """Return the system's message without the path, in the reference's form."""
    return f"{error.strerror} (os error {error.errno})" if error.errno else str(error)


def _names_bytes(hunk: UpdateFile) -> bool:
    """Return whether the patch itself was read with surrogate escapes for bytes that are not UTF-8."""
    return any("\udc80" <= char <= "\udcff" for chunk in hunk.chunks for line in chunk.lines for char in line)


def _written(text: Text, edits: Sequence[Edit], place_: Place) -> bytes:
    try:
        return text.write()
    except UnicodeEncodeError:
        added = "".join(line for edit in edits for line in edit.added)
        raise MatchError(f"Failed to write file {place_.absolute}: {unwritable(added, text.encoding)}") from None


def _encoding_note(encoding: Encoding, place_: Place) -> tuple[str, ...]:
    return () if encoding.is_utf8 else (f"{place_.path} is {encoding.described}, and stays so.",)


def _is_respelled(one: Entry, other: Entry) -> bool:
    """Return whether both names are one file, which a case-insensitive file system shows under two spellings."""
    return one.identity is not None and one.identity == other.identity and one.links == 1 and one.name == one.real


def _counts(edits: Sequence[Edit]) -> tuple[int, int]:
    return sum(len(edit.added) for edit in edits), sum(edit.end - edit.start for edit in edits)
