"""Find a run of lines in a file, from exact to forgiving, in linear time.

Every line that some hunk looks for is assigned one character, and the file becomes a string of these characters (NUL
for any other line). Searching for a run of lines is then one `str.find`, whose worst case is linear.
"""

from collections.abc import Callable, Iterable, Sequence
from enum import IntEnum
from itertools import repeat
from typing import NamedTuple

from ferrule.patch.errors import MatchError

MAX_WANTED = 0x10FFFF
"""Different lines that the hunks of one file may look for: Unicode has no more characters."""

_OTHER = "\0"
_SCANNED = 16
"""Occurrences of one line tried before the whole file is prepared: a limit, so that searching stays linear."""

_PUNCTUATION = str.maketrans(
    {
        **dict.fromkeys("‐‑‒–—―−", "-"),
        **dict.fromkeys("‘’‚‛", "'"),
        **dict.fromkeys("“”„‟", '"'),
        **dict.fromkeys(map(chr, (0xA0, *range(0x2002, 0x200B), 0x202F, 0x205F, 0x3000)), " "),
    }
)


class Level(IntEnum):
    """How forgiving a search is; each level is tried over the whole file before the next."""

    EXACT = 0
    TRAILING_BLANKS = 1
    BLANKS = 2
    PUNCTUATION = 3
    UNICODE = 4


class Found(NamedTuple):
    """The start of a found run of lines (0-based), and how forgiving the search had to be."""

    start: int
    level: Level


class LineIndex:
    """A file prepared for searches. `wanted` are all the lines that will be searched for; any other line is never
    found."""

    def __init__(self, lines: list[str], wanted: Iterable[str]) -> None:
        self._lines = lines
        self._wanted = frozenset(wanted)
        if len(self._wanted) > MAX_WANTED:
            raise MatchError(f"The hunks for one file ask for more than {MAX_WANTED:,} different lines")
        self._levels: dict[Level, _Level] = {}
        self._ascii: bool | None = None
        self._scanning = True

    @property
    def line_count(self) -> int:
        """Lines of the file."""
        return len(self._lines)

    def find(self, run: list[str], start: int, *, at_end: bool = False) -> Found | None:
        """Return the first match of `run` at or after line `start`; with `at_end`, only at the end of the file."""
        if at_end:
            start = max(start, len(self._lines) - len(run))
        if self._scanning:
            position = self._scan(run, start)
            if position >= 0:
                return Found(position, Level.EXACT)
            self._scanning = False
        for level in Level:
            prepared = self.at(level)
            if prepared is None:
                break
            position = prepared.find(run, start)
            if position >= 0:
                return Found(position, level)
        return None

    def _scan(self, run: list[str], start: int) -> int:
        """Find an exact match by the run's longest line; -1 if that is not found soon. If every run is found this way,
        no level needs preparing."""
        offset = max(range(len(run)), key=lambda at: len(run[at]))
        at = start + offset - 1
        for _ in range(_SCANNED):
            try:
                at = self._lines.index(run[offset], at + 1)
            except ValueError:
                return -1
            if self._lines[at - offset : at - offset + len(run)] == run:
                return at - offset
        return -1

    def at(self, level: Level) -> "_Level | None":
        """Return the file at this level; None if it cannot differ from the level before."""
        if level not in self._levels:
            if level >= Level.PUNCTUATION and self._is_ascii():
                return None
            self._levels[level] = _Level(_NORMALISERS[level], self._lines, self._wanted)
        return self._levels[level]

    def _is_ascii(self) -> bool:
        if self._ascii is None:
            self._ascii = all(map(str.isascii, self._lines)) and all(map(str.isascii, self._wanted))
        return self._ascii


class _Level:
    """The file as a string, one character a line, under one way to normalise lines."""

    def __init__(self, normalise: Callable[[str], str] | None, lines: Sequence[str], wanted: Iterable[str]) -> None:
        self._normalise = normalise or _same
        forms = wanted if normalise is None else dict.fromkeys(map(normalise, wanted))
        self._codes = {form: chr(code) for code, form in enumerate(forms, start=1)}
        seen = lines if normalise is None else map(normalise, lines)
        self.text = "".join(map(self._codes.get, seen, repeat(_OTHER)))

    def encode(self, run: Sequence[str]) -> str:
        """Return the run as characters of `text`."""
        return "".join([self._codes[self._normalise(line)] for line in run])

    def find(self, run: Sequence[str], start: int) -> int:
        """Return the position of the run at or after `start`, or -1."""
        return self.text.find(self.encode(run), start)


def _same(line: str) -> str:
    return line


def _folded(line: str) -> str:
    line = line.strip()
    return line if line.isascii() else line.translate(_PUNCTUATION)


def _composed(line: str) -> str:
    line = _folded(line)
    if line.isascii():
        return line
    from unicodedata import normalize

    return normalize("NFC", line)


_NORMALISERS: tuple[Callable[[str], str] | None, ...] = (None, str.rstrip, str.strip, _folded, _composed)
