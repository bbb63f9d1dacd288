"""Shared by tools that show a part of something: integers from JSON numbers, and lines that are cut."""

from ferrule.protocol.errors import RespondToModel

LINE_BYTES = 500
"""Of one line a model is shown this much; more is mostly data or minified code."""
CUT = " [line cut]"


def whole(value: float | None, name: str, default: int) -> int:
    """Convert a parameter to an integer. Raises `RespondToModel` that names it if it has a fraction."""
    if value is None:
        return default
    number = int(value)
    if number != value:
        raise RespondToModel(f"{name} must be a whole number, not {value:g}")
    return number


def shown_line(line: bytes, limit: int = LINE_BYTES) -> str:
    """Return a line as text without its line end. Bytes that are not UTF-8 become U+FFFD; a line longer than `limit`
    bytes is cut on a character boundary and marked."""
    line = line.removesuffix(b"\r")
    if len(line) <= limit:
        return line.decode(errors="replace")
    kept = line[:limit]
    while kept and 0x80 <= line[len(kept)] < 0xC0 and limit - len(kept) < 4:
        kept = kept[:-1]
    return kept.decode(errors="replace") + CUT


def shown_name(name: str, limit: int = LINE_BYTES) -> str:
    """Return a file name on one line: control characters are escaped, bytes that are not UTF-8 become U+FFFD, and it is
    cut like a line."""
    if not name.isprintable():
        name = "".join(_shown_character(character) for character in name)
    data = name.encode(errors="replace")
    return name if len(data) <= limit else shown_line(data, limit)


def _shown_character(character: str) -> str:
    if "\udc80" <= character <= "\udcff":
        return "\ufffd"
    return character if character.isprintable() else character.encode("unicode_escape").decode()
