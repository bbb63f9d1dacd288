"""Find `structuredContent` in a result's content, so that the model reads it once. Pure.

Servers repeat it in many ways: as the JSON that the specification asks for, indented, in a fence, behind a sentence, in
a resource, as a text per entry of a list, and some mirror the content blocks themselves.
"""

import json
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from ferrule.protocol.json_text import JsonValue

MAX_STARTS = 16
"""Places of one text searched for JSON: it is at the beginning, or follows a few words."""

_decoder = json.JSONDecoder()


def says(blocks: Sequence[JsonValue], structured: JsonValue) -> bool:
    """Return whether the blocks contain all of `structured`: one has its JSON, or together they are its value."""
    if not blocks:
        return False
    texts = [text for block in blocks if (text := _text_of(block)) is not None]
    if any(_same(value, structured) for text in texts for value in _values_in(text)):
        return True
    if not isinstance(structured, Mapping) or len(structured) != 1:
        return False
    only = next(iter(structured.values()))  # servers wrap what is no object: {"result": ...}
    wanted = only if isinstance(only, list) else [only]
    if _same(_without_nulls(wanted), _without_nulls(list(blocks))):
        return True
    return bool(texts) and any(_same(candidate, wanted) for candidate in _candidates(texts))


def _text_of(block: JsonValue) -> str | None:
    if not isinstance(block, Mapping):
        return None
    kind = block.get("type")
    holder = block.get("resource") if kind == "resource" else block if kind == "text" else None
    text = holder.get("text") if isinstance(holder, Mapping) else None
    return text if isinstance(text, str) else None


def _candidates(texts: list[str]) -> Iterator[list[JsonValue]]:
    """Yield the readings of the texts together: values, plain texts, or one list."""
    values = [_parsed(text) for text in texts]
    yield values
    yield list(texts)
    if len(values) == 1 and isinstance(values[0], list):
        yield values[0]


def _values_in(text: str) -> Iterator[JsonValue]:
    """Yield the text as JSON, the JSON within a JSON string, and the JSON between other words."""
    whole = _parsed(text)
    yield whole
    if whole is not text:
        if isinstance(whole, str):
            yield _parsed(whole)
        return
    start = -1
    for _ in range(MAX_STARTS):
        start = text.find("{", start + 1)
        if start < 0:
            return
        try:
            value, end = _decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            continue
        yield value
        start = end - 1


def _parsed(text: str) -> JsonValue:
    """Return the value of a JSON text; the text itself if it is not JSON."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return text


def _same(one: JsonValue, other: JsonValue) -> bool:
    """Compare as JSON: 1 equals 1.0 but not true."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(_same(value, other[key]) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    return isinstance(one, bool) is isinstance(other, bool) and one == other


def _without_nulls(blocks: Sequence[JsonValue]) -> list[JsonValue]:
    """Drop null fields from content blocks: servers mirror blocks with or without them."""
    return [
        {key: value for key, value in block.items() if value is not None} if isinstance(block, Mapping) else block
        for block in blocks
    ]
