"""Plain JSON: typed access to decoded values, shared by the wires and the recorder."""

import json
from collections.abc import Mapping, Sequence

JsonObject = Mapping[str, object]

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


def json_text(value: object) -> str:
    """Encode compact JSON with raw non-ASCII characters; only lone surrogates, which UTF-8 cannot encode, are
    escaped."""
    text = _encode(value)
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return "".join(f"\\u{ord(char):04x}" if "\ud800" <= char <= "\udfff" else char for char in text)
    return text


def as_object(value: object) -> JsonObject:
    """Return the value if it is an object, else an empty one."""
    return value if isinstance(value, Mapping) else {}


def as_objects(value: object) -> list[JsonObject]:
    """Return the objects of an array; skip anything else."""
    if not isinstance(value, Sequence) or isinstance(value, str):
        return []
    return [entry for entry in value if isinstance(entry, Mapping)]


def as_text(value: object) -> str:
    """Return the value if it is a string, else an empty one."""
    return value if isinstance(value, str) else ""


def slices(text: str, size: int) -> list[str]:
    """Split the text into pieces of `size` characters, as a server streams deltas. No piece for an empty text."""
    return [text[at : at + size] for at in range(0, len(text), size)]
