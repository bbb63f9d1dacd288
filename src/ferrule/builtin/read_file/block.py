"""Find the block of code around a line by indentation alone. Pure."""

import re
from collections.abc import Sequence

import msgspec

TAB_COLUMNS = 4
COMMENTS = (b"#", b"//", b"--")
CLOSING = re.compile(rb"[})\]]|</|(?:end(?:if|for|while|case|def|function|class|module)?|fi|done|esac)\b")
"""Beginnings of a line that closes the block above it."""


class Reach(msgspec.Struct, frozen=True):
    """The size of a block: `levels` of enclosing blocks (0 for all), at most `cap` lines."""

    levels: int
    siblings: bool
    header: bool
    cap: int


def block_around(lines: Sequence[bytes], anchor: int, reach: Reach) -> range:
    """Return the indices of the lines in the block of line `anchor`, without blank lines at its ends.

    The block grows alternately by one line up and one line down, as long as these are indented at least as far as the
    outermost wanted block. Of lines with exactly that indentation only the block's head and closing line are taken,
    unless siblings are wanted too; comments above the head are its header.
    """
    if reach.cap == 1:
        return range(anchor, anchor + 1)
    indents = _effective_indents(lines)
    least = _outer_indent(lines, indents, anchor, reach.levels) if reach.levels else 0
    is_head = indents[anchor] == least and not _closes(lines[anchor])
    is_end = indents[anchor] == least and not is_head
    up = _Side(lines, indents, least, reach, upwards=True, complete=is_head)
    down = _Side(lines, indents, least, reach, upwards=False, complete=is_end)
    first = last = anchor
    while last - first + 1 < reach.cap:
        above = first > 0 and up.takes(first - 1)
        first -= above
        if last - first + 1 >= reach.cap:
            break
        below = last + 1 < len(lines) and down.takes(last + 1)
        last += below
        if not above and not below:
            break
    while first < last and not lines[first].strip():
        first += 1
    while last > first and not lines[last].strip():
        last -= 1
    return range(first, last + 1)


def _outer_indent(lines: Sequence[bytes], indents: Sequence[int], anchor: int, levels: int) -> int:
    """Return the indentation of the `levels`-th enclosing block: each is the next smaller one above; 0 for all."""
    indent = indents[anchor]
    for index in range(anchor - 1, -1, -1):
        if levels == 0 or indent == 0:
            break
        if lines[index].strip() and indents[index] < indent:
            indent, levels = indents[index], levels - 1
    return indent if levels == 0 else 0


def _closes(line: bytes) -> bool:
    return CLOSING.match(line.strip()) is not None


class _Side:
    """One direction of growth, which ends at the first refused line. `complete`: the head, or the closing line, has
    been taken."""

    def __init__(
        self,
        lines: Sequence[bytes],
        indents: Sequence[int],
        least: int,
        reach: Reach,
        *,
        upwards: bool,
        complete: bool,
    ) -> None:
        self._lines = lines
        self._indents = indents
        self._least = least
        self._reach = reach
        self._upwards = upwards
        self._complete = complete
        self._over = False

    def takes(self, index: int) -> bool:
        """Tell whether the next line on this side belongs to the block."""
        indent, alone = self._indents[index], not self._reach.siblings
        if self._over or indent < self._least or (alone and self._complete and indent > self._least):
            self._over = True
        elif indent == self._least and alone:
            line = self._lines[index].strip()
            if self._upwards:
                is_header = self._reach.header and line.startswith(COMMENTS)
                self._over = self._complete and not is_header
            else:
                self._over = self._complete or not _closes(line)
            self._complete = True
        return not self._over


def _effective_indents(lines: Sequence[bytes]) -> list[int]:
    """Columns of indentation; a blank line continues that of the line above."""
    indents: list[int] = []
    current = 0
    for line in lines:
        text = line.lstrip()
        if text:
            lead = line[: len(line) - len(text)]
            current = lead.count(b" ") + TAB_COLUMNS * lead.count(b"\t")
        indents.append(current)
    return indents
