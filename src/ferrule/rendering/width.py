"""The width of text on a terminal, in cells, and cuts to it."""

import re
import unicodedata

_WORD = re.compile(r" *[^ ]+ *|^ +$")


def width_of(text: str) -> int:
    """Return the cells of a text without control characters. Rather too many than too few, as for joined emoji."""
    return len(text) if text.isascii() else sum(map(_width, text))


def cut(text: str, width: int) -> str:
    """Return the text, or its beginning with `…`, in at most `width` cells."""
    if width_of(text) <= width:
        return text
    room, kept = width - 1, 0
    for count, char in enumerate(text):
        kept += _width(char)
        if kept > room:
            return f"{text[:count]}…" if width > 0 else ""
    return text


def chopped(text: str, width: int) -> list[str]:
    """Return the rows that a plain line takes on a terminal."""
    rows, row, used = [], "", 0
    for char in text:
        cells = _width(char)
        if used + cells > max(width, 1) and row:
            rows.append(row)
            row, used = "", 0
        row, used = row + char, used + cells
    return [*rows, row]


def _width(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def folded(line: str, width: int) -> list[str]:
    """Return the rows of a line that breaks between words, and inside those that are too long."""
    width = max(width, 1)
    if width_of(line) <= width:
        return [line]
    rows, row, used = [], "", 0
    for word in _WORD.findall(line):
        cells = width_of(word.rstrip(" "))
        if row and used + cells > width:
            rows.append(row.rstrip(" "))
            row, used = "", 0
        *whole, rest = chopped(word, width) if cells > width else [word]
        rows += whole
        row += rest
        used = width_of(row)
    return [*rows, row.rstrip(" ")] if row else rows
