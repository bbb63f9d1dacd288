"""Viewing and editing text files by strings and line numbers: what `file_editor` and its likes share."""

import os
import re
from collections import defaultdict
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple

from ferrule.builtin.apply_patch import write_plan
from ferrule.builtin.lines import MAX_TEXT, Source, binary, count_lines, lines_from, read_lines, skip_lines
from ferrule.builtin.output_text import REPLACEMENT
from ferrule.builtin.paging import shown_line, shown_name
from ferrule.builtin.tree import Tree
from ferrule.patch import Entry, Kind, Operation, OperationKind, Place, Plan
from ferrule.patch.diff import compare
from ferrule.patch.encoding import PLAIN, Encoding, unwritable
from ferrule.patch.miscopied import meanings
from ferrule.patch.planner import reason
from ferrule.patch.text import CR, LF, Text, decoded, ends_with_cr
from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.truncation import byte_length
from ferrule.tools.context import ToolContext
from ferrule.tools.turn_diff import TurnDiffTracker

MAX_UNDO = 10
"""Edits of one file that can be taken back."""
SNIPPET_LINES = 4
"""Lines shown before and after an edit."""
LINE_BYTES = 4000
"""Of one line an editor shows this much."""
QUOTED_CHARS = 200
"""Of the text that was not found once: enough to know it again."""
NAMED_PLACES = 20
"""Lines of a text that stands there more than once; whoever needs more of them must ask otherwise."""
GUTTER_BYTES = 8
"""Bytes that `cat -n` adds to a line: six columns, a tab, a line end."""
CLIPPED = "<response clipped>"
"""Models know this mark from the tool's description."""
_BOM = "\ufeff"
VIEW_DEPTH = 2
"""Levels of a directory that `view` shows: what models know from the tool's description."""


class Editor:
    """The editor of one session, which remembers what its edits replaced."""

    def __init__(self, tracker: TurnDiffTracker) -> None:
        self._tracker = tracker
        self._undo: dict[str, list[tuple[bytes | None, bytes]]] = defaultdict(list)

    def view(self, path: str, view_range: Sequence[int] | None, ctx: ToolContext) -> str:
        """Show a file like `cat -n`, or a directory two levels deep. Blocks: call it on a thread."""
        entry = _looked_at(path, ctx)
        if entry.kind is Kind.DIRECTORY:
            if view_range:
                raise invalid("view_range", str(list(view_range)), "It is not allowed for a directory.")
            return _view_folder(path, ctx)
        _check_file(path, entry)
        if not view_range and entry.size > MAX_TEXT:
            raise RespondToModel(f"{_too_large(path, entry)}; set `view_range` to view a part of it.")
        return _view_file(path, view_range, ctx)

    async def create(self, path: str, text: str, ctx: ToolContext) -> str:
        """Write a new file; the answer says so."""
        entry = _entry(path, ctx)
        if entry.kind is not Kind.MISSING or os.path.lexists(path):
            raise invalid("path", path, "It exists already, and `create` overwrites nothing.")
        after = text.encode()
        await self._apply(path, entry, None, after, ctx)
        self._remember(entry, None, after)
        return f"File created successfully at: {shown_name(path)}"

    async def replace(self, path: str, old: str, new: str, ctx: ToolContext) -> str:
        """Replace the only occurrence of `old`; the answer shows the place."""
        if not old:
            raise invalid("old_str", "", "It must not be empty; `insert` adds text without replacing any.")
        if old == new:
            raise invalid("new_str", new, "No replacement was performed: it must differ from `old_str`.")
        now = self._read(path, ctx)
        found = list(_pattern(old).finditer(now.text))
        if len(found) != 1:
            raise RespondToModel(_not_once(path, old, now, [match.start() for match in found]))
        written = now.ended(new)
        start, end = found[0].span()
        after = now.text[:start] + written + now.text[end:]
        await self._write(path, now, now.encoded(after, path), ctx)
        first = now.text.count("\n", 0, start) + 1
        return _edited(path, now, after, first, first + written.count("\n"))

    async def insert(self, path: str, line: int, new: str, ctx: ToolContext) -> str:
        """Insert lines after line `line` (0: before the first); the answer shows the place."""
        now = self._read(path, ctx)
        lines = now.text.split("\n")
        count = len(lines) - (not lines[-1])
        if not 0 <= line <= count:
            raise invalid("insert_line", str(line), f"It should be within [0, {count}], the lines of the file.")
        added = now.ended(new.replace("\r\n", "\n").removesuffix("\n")).split("\n")
        if line == len(lines):  # the last line has no newline yet
            lines.append("")
        if now.crlf:
            added[-1] += "\r"
            if line and line == count and lines[line - 1] and not lines[line - 1].endswith("\r"):
                lines[line - 1] += "\r"
        lines[line:line] = added
        after = "\n".join(lines)
        await self._write(path, now, now.encoded(after, path), ctx)
        return _edited(path, now, after, line + 1, line + len(added))

    async def undo(self, path: str, ctx: ToolContext) -> str:
        """Take the last edit back; of an edit that created the file nothing is left."""
        now = self._read(path, ctx)
        if not self._undo[now.entry.real]:
            raise RespondToModel(f"No edit history found for {path}.")
        before, after = self._undo[now.entry.real][-1]
        if now.data != after:
            raise RespondToModel(f"{path} was changed by something else after its last edit here; nothing was undone.")
        await self._apply(path, now.entry, now.data, before, ctx)
        self._undo[now.entry.real].pop()
        if before is None:
            return f"Last edit to {path} undone successfully: the file that it created is removed."
        return f"Last edit to {path} undone successfully. {_numbered(path, Text.read(before).contents(), 1)}"

    def _read(self, path: str, ctx: ToolContext) -> "_Now":
        entry = _looked_at(path, ctx)
        if entry.kind is Kind.DIRECTORY:
            raise invalid("path", path, "It is a directory, and only `view` works on directories.")
        _check_file(path, entry)
        if entry.size > MAX_TEXT:
            raise RespondToModel(f"{_too_large(path, entry)}; edit it with a command.")
        try:
            with ctx.files.open(path) as file:
                data = file.readall()
        except OSError as error:
            raise RespondToModel(f"{path} cannot be read: {reason(error)}") from error
        text, encoding = decoded(data)
        if "\0" in text:
            raise RespondToModel(f"{binary(path, data)}. It cannot be edited as text.")
        marked, text = text.startswith(_BOM), text.removeprefix(_BOM)
        if ends_with_cr(text):
            return _Now(entry, data, text.replace(CR, LF), encoding, marked, newline=CR)
        return _Now(entry, data, text, encoding, marked)

    async def _write(self, path: str, now: "_Now", after: bytes, ctx: ToolContext) -> None:
        await self._apply(path, now.entry, now.data, after, ctx)
        self._remember(now.entry, now.data, after)

    def _remember(self, entry: Entry, before: bytes | None, after: bytes) -> None:
        history = self._undo[entry.real]
        history.append((before, after))
        del history[:-MAX_UNDO]

    async def _apply(
        self, path: str, entry: Entry, before: bytes | None, after: bytes | None, ctx: ToolContext
    ) -> None:
        if not entry.writable:
            raise RespondToModel(f"{path} is read-only.")
        old = Text.read(before or b"")
        new = Text.read(after or b"", old.encoding)
        edits = tuple(compare(old, new))
        operation = Operation(
            kind=_kind(before, after),
            source=Place(path, path, entry),
            destination=None,
            before=before,
            after=after,
            added=sum(len(edit.added) for edit in edits),
            deleted=sum(edit.end - edit.start for edit in edits),
            edits=edits,
            encodings=(old.encoding, old.encoding),
        )
        await write_plan(Plan((operation,)), ctx, self._tracker, ctx.cwd, None)


class _Now(NamedTuple):
    """A file as it is now: its bytes, and its text without a byte order mark (`marked` if it has one). The text has
    line feeds even if the file's `newline` is another."""

    entry: Entry
    data: bytes
    text: str
    encoding: Encoding
    marked: bool
    newline: str = LF

    @property
    def crlf(self) -> bool:
        """Tell whether most lines end in CRLF."""
        return Text.read(self.data, self.encoding).crlf

    def ended(self, text: str) -> str:
        """Return a new text with the line ends of this file."""
        text = text.replace("\r\n", "\n")
        return text.replace("\n", "\r\n") if self.crlf else text

    def encoded(self, text: str, path: str) -> bytes:
        """Encode a new text. Raises `RespondToModel` if the encoding lacks a character."""
        ended = text.replace(LF, self.newline)
        try:
            return self.encoding.encode(_BOM + ended if self.marked else ended)
        except UnicodeEncodeError as error:
            raise RespondToModel(f"{path} was not edited: {unwritable(text, self.encoding)}") from error


def invalid(parameter: str, value: str, hint: str) -> RespondToModel:
    """Build the refusal of one parameter."""
    return RespondToModel(f"Invalid `{parameter}` parameter: {value}. {hint}")


def missing(parameter: str, command: str) -> RespondToModel:
    """Build the refusal of a call that lacks a parameter of its command."""
    return RespondToModel(f"Parameter `{parameter}` is required for command: {command}.")


def _check_absolute(path: str, ctx: ToolContext) -> None:
    if os.path.isabs(path):
        return
    meant = ctx.files.path(path)
    hint = f" Maybe you meant {meant}?" if os.path.lexists(meant) else ""
    raise invalid("path", path, f"The path should be an absolute path, starting with `/`.{hint}")


def _entry(path: str, ctx: ToolContext) -> Entry:
    _check_absolute(path, ctx)
    try:
        return ctx.files.look(path)
    except OSError as error:
        raise RespondToModel(f"{path} cannot be read: {reason(error)}") from error


def _looked_at(path: str, ctx: ToolContext) -> Entry:
    entry = _entry(path, ctx)
    if entry.kind is Kind.MISSING:
        link = " It is a link to something that does not exist." if os.path.islink(path) else ""
        raise invalid("path", path, f"The path does not exist.{link} Please provide a valid path.")
    return entry


def _check_file(path: str, entry: Entry) -> None:
    if entry.kind is not Kind.FILE:
        raise invalid("path", path, "It is no regular file (a FIFO, socket or device) and was not opened.")


def _too_large(path: str, entry: Entry) -> str:
    return f"{path} is too large: {entry.size / 1024 / 1024:.1f} MB, at most {MAX_TEXT // 1024 // 1024} MB"


def _view_folder(path: str, ctx: ToolContext) -> str:
    tree = Tree(ctx.files.shown_path(path), VIEW_DEPTH, hidden=False, shown=ctx.files.shown)
    head = f"Here's the files and directories up to 2 levels deep in {path}, excluding hidden items:"
    root = shown_name(path.rstrip("/"))
    lines = [head, f"{root}/"]
    room = ctx.output_budget.bytes
    try:
        for entry in tree:
            lines.append(f"{root}/{shown_name(entry.path)}{'/' if entry.label == '/' else ''}")
            room -= byte_length(lines[-1]) + 1
            if room < 0:
                lines.append(CLIPPED)
                break
    except OSError as error:
        raise RespondToModel(f"{path} cannot be read: {reason(error)}") from error
    return "\n".join(lines)


def _view_file(path: str, view_range: Sequence[int] | None, ctx: ToolContext) -> str:
    first, last = _range(view_range)
    most = None if last is None else last - first + 1
    clipped = False

    def take(file: Source) -> list[bytes]:
        nonlocal clipped
        lines: list[bytes] = []
        room = ctx.output_budget.bytes
        found = skip_lines(file, first - 1)
        for line in islice(lines_from(file), most) if found else ():
            lines.append(line)
            room -= byte_length(shown_line(line, LINE_BYTES)) + GUTTER_BYTES
            clipped = room < 0
            if clipped:
                break
        if not lines and view_range:
            hint = f"Its first element should be within [1, {count_lines(file)}], the lines of the file."
            raise invalid("view_range", str(list(view_range)), hint)
        return lines

    try:
        with ctx.files.open(path) as file:
            lines, encoding = read_lines(file, path, take)
    except OSError as error:
        raise RespondToModel(f"{path} cannot be read: {reason(error)}") from error
    shown = [shown_line(line, LINE_BYTES) for line in lines]
    note = "" if encoding.is_utf8 else f"NOTE: the file is {encoding.described}. Edits keep that.\n"
    if most is not None and not clipped and len(shown) < most:
        note += f"NOTE: the file has only {first + len(shown) - 1} lines.\n"
    return note + _numbered(path, [*shown, CLIPPED] if clipped else shown, first)


def _range(view_range: Sequence[int] | None) -> tuple[int, int | None]:
    """First and last line; None is the end of the file."""
    if not view_range:
        return 1, None
    given = str(list(view_range))
    if len(view_range) != 2:
        raise invalid("view_range", given, "It should be a list of two integers.")
    first, last = view_range
    if first < 1:
        raise invalid("view_range", given, "Its first element should be at least 1.")
    if last != -1 and last < first:
        raise invalid("view_range", given, "Its second element should be -1 or not less than the first.")
    return first, None if last == -1 else last


def _numbered(what: str, lines: Sequence[str], first: int) -> str:
    """Lines as `cat -n` shows them."""
    head = f"Here's the result of running `cat -n` on {what}:"
    return "\n".join([head, *(f"{number:6}\t{line}" for number, line in enumerate(lines, first))]) + "\n"


def _edited(path: str, now: _Now, after: str, first: int, last: int) -> str:
    """Build the answer of an edit: the changed lines `first` to `last` with some around them."""
    lines = after.split("\n")
    if not lines[-1]:
        lines.pop()
    start = max(first - SNIPPET_LINES, 1)
    shown = [shown_line(PLAIN.encode(line), LINE_BYTES) for line in lines[start - 1 : last + SNIPPET_LINES]]
    kept = "" if now.encoding.is_utf8 else f"It is {now.encoding.described}, and stays so. "
    snippet = _numbered(f"a snippet of {path}", shown, start)
    return f"The file {path} has been edited. {kept}{snippet}Review the changes, and edit the file again if necessary."


def _not_once(path: str, old: str, now: _Now, starts: Sequence[int]) -> str:
    quoted = f"`{old}`" if len(old) <= QUOTED_CHARS else f"`{old[:QUOTED_CHARS]}...`"
    if starts:
        lines = ", ".join(str(now.text.count("\n", 0, start) + 1) for start in starts[:NAMED_PLACES])
        return (
            f"No replacement was performed: old_str {quoted} occurs {len(starts)} times in {path}, in lines {lines}. "
            "Add lines around it until it is unique."
        )
    why = _near(old, now.text) + _unreadable(old, now)
    return f"No replacement was performed: old_str {quoted} did not appear verbatim in {path}.{why}"


def _near(old: str, text: str) -> str:
    """Say where the text stands with other white space, or how it stood before something changed it."""
    place = _loosely(old, text)
    if place:
        return f" {place} differ from it only in white space."
    for meant in meanings(old):
        place = _loosely(meant.text, text)
        if place:
            return f" {meant.how[0].upper()}{meant.how[1:]} it is in {place.lower()}. {meant.advice}"
    return ""


def _loosely(old: str, text: str) -> str:
    """Return the lines that hold the text apart from white space; empty if there are none."""
    found = re.search(r"\s+".join(map(re.escape, old.split())), text) if old.strip() else None
    if found is None:
        return ""
    first, last = (text.count("\n", 0, at) + 1 for at in found.span())
    return f"Lines {first} to {last}"


def _unreadable(old: str, now: _Now) -> str:
    """Say how a file differs from plain UTF-8, after a text was not found in it."""
    if not now.encoding.is_utf8:
        return f" The file is {now.encoding.described}."
    if now.text.isascii() or REPLACEMENT not in old:
        return ""
    return f" {REPLACEMENT} stands for bytes that are not UTF-8, and matches nothing: leave it out of old_str."


def _pattern(old: str) -> "re.Pattern[str]":
    """Match the text whatever the line ends are."""
    return re.compile("\r?\n".join(map(re.escape, old.replace("\r\n", "\n").split("\n"))))


def _kind(before: bytes | None, after: bytes | None) -> OperationKind:
    if before is None:
        return OperationKind.CREATE
    return OperationKind.DELETE if after is None else OperationKind.UPDATE
