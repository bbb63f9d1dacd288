"""The block of code around a line, by indentation alone. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

TAB_COLUMNS = 4
LEVEL_COLUMNS = 4
"""Columns of one level of indentation."""
COMMENTS = (b"#", b"//", b"--")


@dataclass(frozen=True, slots=True)
class Reach:
    """How far a block goes. `levels` of enclosing blocks, 0 for all; at most `cap` lines."""

    levels: int
    siblings: bool
    header: bool
    cap: int


def block_around(lines: Sequence[bytes], anchor: int, reach: Reach) -> range:
    """The indices of the lines that belong to the block of line `anchor`, without blank lines at its ends.

    It grows by turns one line up and one line down, while what it meets is indented at least as the outermost block
    that is wanted. Of the lines at exactly that indentation only the first is taken on each side, unless siblings are
    wanted too; above it comments are its header.
    """
    if reach.cap == 1:
        return range(anchor, anchor + 1)
    indents = _effective_indents(lines)
    least = 0 if reach.levels == 0 else max(0, indents[anchor] - LEVEL_COLUMNS * reach.levels)
    up = _Side(lines, indents, least, reach, upwards=True)
    down = _Side(lines, indents, least, reach, upwards=False)
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


class _Side:
    """One direction of growth; once it refused a line it is over."""

    def __init__(
        self, lines: Sequence[bytes], indents: Sequence[int], least: int, reach: Reach, *, upwards: bool
    ) -> None:
        self._lines = lines
        self._indents = indents
        self._least = least
        self._reach = reach
        self._upwards = upwards
        self._at_least = 0
        self._over = False

    def takes(self, index: int) -> bool:
        """Whether the next line on this side belongs to the block."""
        if self._over or self._indents[index] < self._least:
            self._over = True
        elif self._indents[index] == self._least and not self._reach.siblings:
            is_header = self._upwards and self._reach.header and self._lines[index].strip().startswith(COMMENTS)
            self._over = self._at_least > 0 and not is_header
            self._at_least += 1
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
