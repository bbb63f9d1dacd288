"""Unified diffs, from known edits or by comparing two texts."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence

from ferrule.patch.text import LF, Edit, Text

CONTEXT_LINES = 3
COMPARED_PAIRS = 100_000
"""Pairs of equal lines that a close comparison may consider, some 0.1 s; beyond it the whole run is one block."""

_NO_NEWLINE = "\n\\ No newline at end of file"


def unified(before: Text, after: Text, edits: Sequence[Edit], context: int = CONTEXT_LINES) -> str:
    """Return the hunks of a unified diff, without file headers; empty if there is no edit. For display: bytes that are
    not UTF-8 show as U+FFFD."""
    old, new = _Side(before), _Side(after)
    lines: list[str] = []
    shift = 0
    for group in _groups(edits, context):
        low = max(group[0].start - context, 0)
        high = min(group[-1].end + context, len(before.lines))
        grown = sum(len(edit.added) - (edit.end - edit.start) for edit in group)
        lines.append(f"@@ -{_span(low, high - low)} +{_span(low + shift, high - low + grown)} @@")
        position = low
        for edit in group:
            lines += [" " + old.line(at) for at in range(position, edit.start)]
            lines += ["-" + old.line(at) for at in range(edit.start, edit.end)]
            lines += ["+" + new.line(edit.start + shift + at) for at in range(len(edit.added))]
            position = edit.end
            shift += len(edit.added) - (edit.end - edit.start)
        lines += [" " + old.line(at) for at in range(position, high)]
    text = "".join(line + "\n" for line in lines)
    return text if text.isascii() else text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def compare(before: Text, after: Text) -> list[Edit]:
    """Find edits that turn one text into the other, nearly the fewest. Lines that occur once in each text are paired
    first (patience), so that the cost stays near linear; lines between two pairs are compared closely."""
    old, new = _keys(before), _keys(after)
    head = _shared(old, new)
    tail = _shared(old[head:][::-1], new[head:][::-1])
    ends = (len(old) - tail, len(new) - tail)
    edits: list[Edit] = []
    a, b = head, head
    for next_a, next_b in (*_pairs(old[head : ends[0]], new[head : ends[1]], head), ends):
        for start, end, added, until in _close(old[a:next_a], new[b:next_b]):
            edits.append(Edit(a + start, a + end, tuple(after.lines[b + added : b + until])))
        a, b = next_a + 1, next_b + 1
    return edits


def _pairs(old: list[str], new: list[str], offset: int) -> list[tuple[int, int]]:
    """Pair lines that are unique on both sides: the longest run in an order that both share; `offset` is added."""
    old_counts, new_counts = Counter(old), Counter(new)
    once = {line: at for at, line in enumerate(new) if new_counts[line] == 1 and old_counts[line] == 1}
    found = [(at, once[line]) for at, line in enumerate(old) if line in once]
    return [(a + offset, b + offset) for a, b in _rising(found)]


def _rising(pairs: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the longest subsequence whose second numbers rise."""
    lasts: list[int] = []
    at_last: list[int] = []
    previous: list[int] = []
    for at, (_, number) in enumerate(pairs):
        length = bisect_left(lasts, number)
        previous.append(at_last[length - 1] if length else -1)
        lasts[length : length + 1] = [number]
        at_last[length : length + 1] = [at]
    chain: list[tuple[int, int]] = []
    at = at_last[-1] if at_last else -1
    while at >= 0:
        chain.append(pairs[at])
        at = previous[at]
    return chain[::-1]


def _close(old: list[str], new: list[str]) -> list[tuple[int, int, int, int]]:
    """Return the blocks (old start, end, new start, end) in which two short runs differ."""
    if old == new:
        return []
    counts = Counter(new)
    if not 0 < sum(counts[line] for line in old) <= COMPARED_PAIRS:
        return [(0, len(old), 0, len(new))]
    from difflib import SequenceMatcher

    blocks = SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    return [(a, b, c, d) for tag, a, b, c, d in blocks if tag != "equal"]


class _Side:
    """One side's lines as a diff shows them."""

    def __init__(self, text: Text) -> None:
        self._lines = text.lines
        self._open = -1 if text.terminated else len(text.lines) - 1

    def line(self, at: int) -> str:
        return self._lines[at] + _NO_NEWLINE if at == self._open else self._lines[at]


def _keys(text: Text) -> list[str]:
    """Return lines as comparison keys, which differ where line ends do: an unterminated last line, a bare `\\r`."""
    lines = text.lines if text.newline == LF else [line + text.newline for line in text.lines]
    if text.terminated or not lines:
        return lines
    return [*lines[:-1], text.lines[-1] + _NO_NEWLINE]


def _shared(left: Sequence[str], right: Sequence[str]) -> int:
    count = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        count += 1
    return count


def _groups(edits: Sequence[Edit], context: int) -> Iterator[list[Edit]]:
    """Group edits whose contexts meet into one hunk."""
    group: list[Edit] = []
    for edit in edits:
        if group and edit.start - group[-1].end > 2 * context:
            yield group
            group = []
        group.append(edit)
    if group:
        yield group


def _span(start: int, length: int) -> str:
    if length == 1:
        return str(start + 1)
    return f"{start + 1 if length else start},{length}"
