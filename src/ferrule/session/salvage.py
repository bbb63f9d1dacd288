"""Read all that can be read of a session file, whatever an editor, a crash or another program did to it.

Intact lines are read as they are. Unreadable lines are searched for records: one after a torn write, two on one line,
one over several lines.
"""

import json
import re
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

_BOMS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16", b"\xef\xbb\xbf": "utf-8-sig"}
_PADDING = b" \t\r\0"
"""Bytes around a line: other line ends, and the zeros of a file that grew before it was written."""
_RECORD = re.compile(r'\{\s*"(?:timestamp|type|payload)"')


class Line(msgspec.Struct):
    """One record."""

    type: str
    payload: msgspec.Raw
    origin: msgspec.Raw = msgspec.Raw()
    timestamp: str = ""


class Salvaged(NamedTuple):
    """The records of a file, and the number of lines that could not be read in full."""

    lines: list[Line]
    damaged: int


_decode = msgspec.json.Decoder(Line).decode
_decoder = json.JSONDecoder(strict=False)


def salvage(data: bytes) -> Salvaged:
    """Read a session file. Never raises."""
    encoding = _BOMS.get(data[:2]) or _BOMS.get(data[:3])
    if encoding is not None:
        data = data.decode(encoding, errors="replace").encode(errors="replace")
    lines: list[Line] = []
    damaged = 0
    broken: list[bytes] = []
    before = b""
    for raw in data.split(b"\n"):
        text = raw.strip(_PADDING)
        line = _read(text) if text else None
        if line is None:
            broken += [text] if text else []
            continue
        damaged += _search(broken, lines)
        if text != before or line.type != "response_item":  # a line that an editor copied says nothing new
            lines.append(line)
        broken, before = [], text
    return Salvaged(lines, damaged + _search(broken, lines))


def _read(text: bytes | str) -> Line | None:
    try:
        return _decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None


def _search(broken: list[bytes], lines: list[Line]) -> int:
    """Add the records found in unreadable lines. Return the number of lines that are not read in full."""
    if not broken:
        return 0
    data = b"\n".join(broken)
    text = data.decode(errors="replace")
    found = list(_records(text))
    lines += [line for line, _ in found]
    whole = sum(size for _, size in found) == len("".join(text.split())) and text.encode() == data
    return 0 if whole else max(len(broken) - len(found), 1)


def _records(text: str) -> Iterator[tuple[Line, int]]:
    """Yield the records in a text, each with its number of characters besides white space."""
    at = 0
    while (start := _RECORD.search(text, at)) is not None:
        at = start.start() + 1
        try:
            value, end = _decoder.raw_decode(text, start.start())
        except (ValueError, RecursionError):
            continue
        record = text[start.start() : end]
        line = _read(json.dumps(value, separators=(",", ":")) if "\n" in record else record)
        if line is not None:
            yield line, len("".join(record.split()))
            at = end
