"""Plain JSON: the few typed steps through decoded values that the wires and the recorder share."""

import json
from collections.abc import Mapping, Sequence

JsonObject = Mapping[str, object]

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def json_text(value: object) -> str:
    """Compact JSON with raw non-ASCII characters; only lone surrogates, which UTF-8 cannot carry, are escaped."""
    text = _encode(value)
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return "".join(f"\\u{ord(char):04x}" if "\ud800" <= char <= "\udfff" else char for char in text)
    return text


def as_object(value: object) -> JsonObject:
    """The value if it is an object, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def as_objects(value: object) -> list[JsonObject]:
    """The objects of an array; anything else is passed over."""
    if not isinstance(value, Sequence) or isinstance(value, str):
        return []
    return [entry for entry in value if isinstance(entry, Mapping)]


def as_text(value: object) -> str:
    """The value if it is a string, else an empty one."""
    return value if isinstance(value, str) else ""


def slices(text: str, size: int) -> list[str]:
    """The text in pieces of `size` characters: what a server streams as deltas. No piece for an empty text."""
    return [text[at : at + size] for at in range(0, len(text), size)]
