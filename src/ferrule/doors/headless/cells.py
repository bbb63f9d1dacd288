"""The width of text on a terminal, in cells, and cuts to it."""

import unicodedata


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
