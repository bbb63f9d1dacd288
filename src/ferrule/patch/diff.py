"""Unified diffs: from edits that are known, or by comparing two texts."""

from collections import Counter
from collections.abc import Iterator, Sequence

from .text import Edit, Text

CONTEXT_LINES = 3
COMPARED_PAIRS = 100_000
"""Pairs of equal lines that a comparison may weigh (equal heads and tails left out), some 0.1 s; beyond it the whole
middle is one block."""

_NO_NEWLINE = "\n\\ No newline at end of file"


def unified(before: Text, after: Text, edits: Sequence[Edit], context: int = CONTEXT_LINES) -> str:
    """The hunks of a unified diff, without file headers; empty when there is no edit. For display: bytes that are not
    UTF-8 show as U+FFFD."""
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
    """Edits that turn one text into the other, nearly the fewest; linear in the lines that heads and tails share."""
    old, new = _keys(before), _keys(after)
    head = _shared(old, new)
    tail = _shared(old[head:][::-1], new[head:][::-1])
    middle_old, middle_new = old[head : len(old) - tail], new[head : len(new) - tail]
    if not middle_old and not middle_new:
        return []
    counts = Counter(middle_new)
    if not 0 < sum(counts[line] for line in middle_old) <= COMPARED_PAIRS:
        return [Edit(head, head + len(middle_old), tuple(after.lines[head : head + len(middle_new)]))]
    from difflib import SequenceMatcher

    return [
        Edit(head + a, head + b, tuple(after.lines[head + c : head + d]))
        for tag, a, b, c, d in SequenceMatcher(None, middle_old, middle_new, autojunk=False).get_opcodes()
        if tag != "equal"
    ]


class _Side:
    """One side's lines as a diff shows them."""

    def __init__(self, text: Text) -> None:
        self._lines = text.lines
        self._open = -1 if text.terminated else len(text.lines) - 1

    def line(self, at: int) -> str:
        return self._lines[at] + _NO_NEWLINE if at == self._open else self._lines[at]


def _keys(text: Text) -> list[str]:
    """Lines to compare by; an unterminated last line differs from a terminated one."""
    if text.terminated or not text.lines:
        return text.lines
    return [*text.lines[:-1], text.lines[-1] + _NO_NEWLINE]


def _shared(left: Sequence[str], right: Sequence[str]) -> int:
    count = 0
    for one, other in zip(left, right, strict=False):
        if one != other:
            break
        count += 1
    return count


def _groups(edits: Sequence[Edit], context: int) -> Iterator[list[Edit]]:
    """Edits whose contexts meet belong in one hunk."""
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
