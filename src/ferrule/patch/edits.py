"""Turn the chunks of an update into edits of the file's lines."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ferrule.patch.matching import Level, LineIndex
from ferrule.patch.syntax import Chunk
from ferrule.patch.text import Edit, Text


class Placed(NamedTuple):
    """A chunk (1-based `number`) and its place: `start` is a 0-based line; `lines` are the chunk's lines that count,
    without a trailing blank one that was dropped."""

    number: int
    start: int
    end: int
    lines: tuple[str, ...]
    level: Level


class Missed(NamedTuple):
    """A chunk (1-based `number`) that was not found. `anchor` is set if the anchor is missing; `position` is the
    0-based line where the search started."""

    number: int
    chunk: Chunk
    position: int
    anchor: str | None


def index_for(text: Text, chunks: Sequence[Chunk]) -> LineIndex:
    """Prepare the file for everything these chunks search for."""
    wanted = {line[1:] for chunk in chunks for line in chunk.lines if line[0] != "+"}
    wanted.update(anchor for chunk in chunks for anchor in chunk.anchors)
    return LineIndex(text.contents(), wanted)


def place(index: LineIndex, chunks: Sequence[Chunk]) -> list[Placed] | Missed:
    """Find every chunk, in order, each after the one before. All are looked for in the original file."""
    placed: list[Placed] = []
    position = 0
    for number, chunk in enumerate(chunks, start=1):
        for anchor in chunk.anchors:
            found = index.find([anchor], position)
            if found is None:
                return Missed(number, chunk, position, anchor)
            position = found.start + 1
        hit = _place(index, number, chunk, position)
        if hit is None:
            return Missed(number, chunk, position, None)
        placed.append(hit)
        if hit.end > hit.start:
            position = hit.end
    return placed


def _place(index: LineIndex, number: int, chunk: Chunk, position: int) -> Placed | None:
    """Place a chunk by its old lines, or without a blank last one, which may be the blank line before the next
    header."""
    for lines in _readings(chunk.lines):
        old = old_lines(lines)
        if not old:
            start = position if chunk.anchors and not chunk.at_end else index.line_count
            return Placed(number, start, start, lines, Level.EXACT)
        found = index.find(old, position, at_end=chunk.at_end)
        if found:
            return Placed(number, found.start, found.start + len(old), lines, found.level)
    return None


def _readings(lines: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    yield lines
    last = max((at for at, line in enumerate(lines) if line[0] != "+"), default=-1)
    if last >= 0 and len(lines[last]) == 1:
        kept = lines[:last] + lines[last + 1 :]
        yield kept[:-1] if lines[last] == "-" and kept[-1:] == ("+",) else kept


def old_lines(lines: Sequence[str]) -> list[str]:
    """Return the lines that must be in the file, without their signs."""
    return [line[1:] for line in lines if line[0] != "+"]


def edits_of(text: Text, placed: Sequence[Placed]) -> list[Edit]:
    """Return the edits in file order, adjacent ones joined and unchanged lines left out. Context lines are not
    touched, except for the newline that a last line gets when a chunk reaches it."""
    edits = sorted((edit for chunk in placed for edit in _chunk_edits(text, chunk)), key=lambda edit: edit.start)
    count = len(text.lines)
    if not text.terminated and touches_end(text, placed) and not any(edit.start < count == edit.end for edit in edits):
        at = next((at for at, edit in enumerate(edits) if edit.start == count), len(edits))
        edits.insert(at, Edit(count - 1, count, (text.ended(text.lines[-1]),)))
    return [small for edit in _joined(edits) if (small := _trimmed(text, edit))]


def touches_end(text: Text, placed: Sequence[Placed]) -> bool:
    """Return whether some chunk contains the file's last line or adds after it."""
    return any(chunk.end == len(text.lines) and chunk.lines for chunk in placed)


def _chunk_edits(text: Text, placed: Placed) -> Iterator[Edit]:
    """Yield the runs of signed lines between context lines."""
    start = end = placed.start
    added: list[str] = []
    for line in placed.lines:
        if line[0] == "+":
            added.append(text.ended(line[1:]))
        elif line[0] == "-":
            end += 1
        else:
            if end > start or added:
                yield Edit(start, end, tuple(added))
            start = end = end + 1
            added = []
    if end > start or added:
        yield Edit(start, end, tuple(added))


def _joined(edits: Sequence[Edit]) -> Iterator[Edit]:
    current: Edit | None = None
    for edit in edits:
        if current and edit.start == current.end:
            current = Edit(current.start, edit.end, current.added + edit.added)
            continue
        if current:
            yield current
        current = edit
    if current:
        yield current


def _trimmed(text: Text, edit: Edit) -> Edit | None:
    """Trim equal lines at the edit's head and tail; None if nothing is left. An unterminated last line equals none,
    since an edit that reaches it terminates it."""
    start, end, added = edit.start, edit.end, edit.added
    first, last = 0, len(added)
    comparable = end if text.terminated else min(end, len(text.lines) - 1)
    while start < comparable and first < last and text.lines[start] == added[first]:
        start, first = start + 1, first + 1
    while comparable == end > start and last > first and text.lines[end - 1] == added[last - 1]:
        end, last, comparable = end - 1, last - 1, comparable - 1
    return Edit(start, end, added[first:last]) if start < end or first < last else None
