"""Patches as coloured diffs with line numbers, also while they are still arriving."""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress

import msgspec
from rich.style import Style
from textual.strip import Strip

from ferrule.doors.terminal.cells import Call
from ferrule.doors.terminal.strips import DIM, GREEN, PLAIN, RED, TITLE, row, wrapped
from ferrule.protocol.events import FileChange
from ferrule.rendering.safe import safe
from ferrule.rendering.width import chopped, cut

DIFF_LINES = 40
"""Lines shown of a folded diff."""
GROWING_LINES = 10
"""Lines shown of the end of a patch that is still arriving."""

KEPT_CHARS = 4096
"""Characters kept of the end of a patch that is arriving."""
LONGEST_ESCAPE = 12
"""Characters of a JSON escape: two surrogates."""

_HUNK = re.compile(r"@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@")
BEGIN = "*** Begin Patch"
_STRING_END = re.compile(r'(?<!\\)(?:\\\\)*"')
_STYLES = {"+": GREEN, "-": RED}


class DiffLine(msgspec.Struct, frozen=True):
    """One line of a diff: its number in the new file (a removed one: in the old), its sign and its text."""

    number: int | None
    sign: str
    text: str


def diff_lines(unified_diff: str) -> Iterator[DiffLine]:
    """Yield the lines of a unified diff of one file; None for a number stands between two hunks."""
    old = new = 0
    begun = False
    for line in unified_diff.rstrip("\n").split("\n"):
        if (hunk := _HUNK.match(line)) is not None:
            old, new = int(hunk[1]), int(hunk[2])
            if begun:
                yield DiffLine(None, " ", "⋮")
            begun = True
        elif begun and line[:1] == "-":
            yield DiffLine(old, "-", line[1:])
            old += 1
        elif begun and line[:1] == "+":
            yield DiffLine(new, "+", line[1:])
            new += 1
        elif begun and line[:1] != "\\":
            yield DiffLine(new, " ", line[1:])
            old, new = old + 1, new + 1


def diff_rows(lines: Sequence[DiffLine], width: int, *, whole: bool) -> list[Strip]:
    """Return the rows of a diff; folded, no more than `DIFF_LINES` of its lines."""
    digits = len(str(max((line.number or 0 for line in lines), default=0)))
    if whole or len(lines) <= DIFF_LINES + 1:
        shown: list[DiffLine | None] = list(lines)
    else:
        shown = [*lines[: DIFF_LINES - 10], None, *lines[-10:]]
    rows: list[Strip] = []
    for line in shown:
        if line is None:
            rows.append(row((f"{'':{digits}} … {len(lines) - DIFF_LINES:,} more lines …", DIM)))
        else:
            rows += _diff_row(line, digits, width, whole=whole)
    return rows


def _diff_row(line: DiffLine, digits: int, width: int, *, whole: bool) -> list[Strip]:
    number = "" if line.number is None else str(line.number)
    style = _STYLES.get(line.sign, PLAIN if line.number else DIM)
    room = width - digits - 3
    text = safe(line.text.rstrip("\r")).expandtabs(4)
    parts = chopped(text, room) if whole else [cut(text, room)]
    first = row((f"{number:>{digits}} ", DIM), (f"{line.sign} ", style), (parts[0], style))
    return [first, *(row((" " * (digits + 3), PLAIN), (part, style)) for part in parts[1:])]


class PatchCell(Call):
    """A patch: the files that it touches and, once it is known, what changes in them."""

    def __init__(self, files: Sequence[str] = ()) -> None:
        super().__init__()
        self.files = list(files)
        self._changes: list[tuple[FileChange, list[DiffLine]]] = []
        self._arriving = ""
        self._escaped: bool | None = None

    def feed(self, delta: str) -> None:
        """Take more of a call whose patch is arriving; only the end of it is kept."""
        self._arriving += delta
        if self._escaped is None and (begin := self._arriving.find(BEGIN)) >= 0:
            self._escaped, self._arriving = begin > 0, self._arriving[begin:]
        if len(self._arriving) > 2 * KEPT_CHARS:
            kept = self._arriving[-KEPT_CHARS:]
            self._arriving = kept[kept.find("\\n" if self._escaped else "\n") :]
        self.forget()

    def change(self, changes: Sequence[FileChange]) -> None:
        """Take what will be written."""
        self._changes = [(change, list(diff_lines(change.unified_diff))) for change in changes]
        self.files = self.files or [change.path for change in changes]
        self._arriving = ""
        self.forget()

    def name(self, changes: Sequence[FileChange]) -> None:
        """Take the files that have been named so far."""
        self.files = [change.path for change in changes]
        self.forget()

    def start(self, files: Sequence[str]) -> None:
        """It has arrived whole."""
        self.files, self._arriving = list(files), ""
        self.forget()

    def head(self, width: int) -> list[Strip]:
        """See `Call`."""
        return wrapped(safe(", ".join(self.files) or "…"), TITLE, width, [("edit ", TITLE)])

    def body(self, width: int) -> list[Strip]:
        """See `Call`."""
        if self._arriving:
            newest = newest_lines(self._arriving, escaped=bool(self._escaped))
            return [row((cut(safe(line).expandtabs(4), width), _STYLES.get(line[:1], DIM))) for line in newest]
        rows: list[Strip] = []
        for change, lines in self._changes:
            rows += _change_head(change, width)
            if change.kind != "delete" or self.is_open:
                rows += diff_rows(lines, width, whole=self.is_open)
        failed = self.verdict is not None and self.verdict[0]
        return [*rows, *super().body(width)] if failed or not rows else rows


def change_title(change: FileChange) -> str:
    """Return what happens to which file."""
    verb = change.kind if change.kind in ("add", "delete") else "change"
    return f"{verb} {change.path} -> {change.move_path}" if change.move_path else f"{verb} {change.path}"


def _change_head(change: FileChange, width: int) -> list[Strip]:
    counts: list[tuple[str, Style]] = [(f" +{change.added}", GREEN), (f" -{change.deleted}", RED)]
    room = width - sum(len(text) for text, _ in counts)
    return [row((cut(safe(change_title(change)), room), PLAIN), *counts)]


def newest_lines(text: str, *, escaped: bool) -> list[str]:
    """Return the lines of a patch's end that has arrived; `escaped`: inside the JSON of a call's arguments."""
    if escaped:
        text = _unescaped(text)
    return text.rstrip("\n").split("\n")[-GROWING_LINES:]


def _unescaped(text: str) -> str:
    """Return the part of a JSON string that has arrived: without its end, and without an escape cut in two."""
    end = _STRING_END.search(text)
    part = text if end is None else text[: end.end() - 1]
    for cut_off in range(min(LONGEST_ESCAPE, len(part)) + 1):
        with suppress(ValueError):
            return str(json.loads(f'"{part[: len(part) - cut_off]}"'))
    return ""
