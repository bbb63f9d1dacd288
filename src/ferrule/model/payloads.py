"""Decode each event's payload once, for its wire. Nothing that a server can send raises here."""

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar, get_args

import msgspec

from ferrule.protocol.json_text import JsonValue, encodable

T = TypeVar("T")

UNREADABLE = (msgspec.MsgspecError, ValueError, OverflowError, RecursionError)
"""Errors on decoding a server's value: no JSON, no UTF-8, numbers out of range, endless nesting."""

_QUOTED = 80
"""Characters of a payload quoted in a message."""
_WIDEST_INTEGER = 2**63
"""Larger integers are read as floats, as JavaScript does."""
_PLAIN_WORDS = re.compile(rb"[\w .:;!-]{0,60}")
"""Text that proxies send to keep a connection open."""


class Unread(msgspec.Struct, frozen=True):
    """A payload without meaning for us. `kind`: what is wrong with it; empty for the text of a keep-alive."""

    kind: str
    excerpt: str


def load(payload: bytes, decoder: msgspec.json.Decoder[T]) -> T | dict[str, JsonValue] | Unread:
    """Decode the typed event, or the plain object if it does not fit the type."""
    try:
        return decoder.decode(payload)
    except UNREADABLE:
        return load_odd(payload, decoder)


def load_odd(payload: bytes, decoder: msgspec.json.Decoder[T]) -> T | dict[str, JsonValue] | Unread:
    """Decode like `load` an event that `decoder` has refused as it stands.

    Lone surrogates are kept, because the other half may be in the next delta; in whole items they become U+FFFD, as do
    bytes that are not UTF-8.
    """
    try:
        value = _tolerantly(payload)
        if not isinstance(value, dict):
            return unread(payload, "is not a JSON object")
        with suppress(msgspec.ValidationError):
            return msgspec.convert(value, decoder.type)
        plain: dict[str, JsonValue] = _encodable(value)
        with suppress(msgspec.ValidationError):
            return decoder.decode(msgspec.json.encode(plain))
    except RecursionError:
        return unread(payload, "is nested too deeply")
    except UNREADABLE:
        return unread(payload, "is not JSON")
    return plain


def is_object(text: str) -> bool:
    """Return whether a text is a whole JSON object."""
    try:
        return isinstance(msgspec.json.decode(text), dict)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return False


def unread(payload: bytes, kind: str) -> Unread:
    """Build the result for a skipped payload."""
    words = "" if _PLAIN_WORDS.fullmatch(payload) and kind == "is not JSON" else kind
    return Unread(words, payload[:_QUOTED].decode(errors="replace"))


def _tolerantly(payload: bytes) -> JsonValue:
    return json.loads(payload.decode(errors="replace"), strict=False)


def _encodable(value: JsonValue) -> JsonValue:
    """Reduce the value to what JSON can carry: no lone surrogates, no NaN, no integer beyond 64 bits."""
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, list):
        return [_encodable(entry) for entry in value]
    if isinstance(value, dict):
        return {encodable(key): _encodable(entry) for key, entry in value.items()}
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, int) and abs(value) >= _WIDEST_INTEGER:
        return float(value)
    return value


def fitting(value: Mapping[str, JsonValue], kind: type[T]) -> T:
    """Convert an object to a struct, dropping fields and list entries that do not fit."""
    read: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):  # type: ignore[arg-type]
        if field.encode_name in value:
            with suppress(*UNREADABLE):
                read[field.name] = _fitting(value[field.encode_name], field.type)
    return kind(**read)


def _fitting(value: JsonValue, kind: Any) -> Any:
    options = [kind, *get_args(kind)]
    if msgspec.Raw in options and not isinstance(value, list):
        return msgspec.Raw(msgspec.json.encode(value))
    if isinstance(value, list):
        entries = next((get_args(option)[0] for option in options if _origin(option) is list), None)
        if entries is not None:
            return [entry for part in value for entry in _entry(part, entries)]
    try:
        return msgspec.convert(value, kind, strict=False)
    except msgspec.ValidationError:
        structs = [option for option in options if isinstance(option, type) and issubclass(option, msgspec.Struct)]
        if not isinstance(value, dict) or len(structs) != 1:
            raise
        return fitting(value, structs[0])


def _entry(value: JsonValue, kind: Any) -> Iterable[Any]:
    if value is not None:
        with suppress(*UNREADABLE):
            yield _fitting(value, kind)


def _origin(kind: Any) -> object:
    return getattr(kind, "__origin__", None)


Json = bytes | tuple[bytes | bytearray, ...]
"""Encoded JSON, whole or in pieces."""


def json_object(fields: Mapping[str, Json]) -> bytes:
    """Build a JSON object from fields with encoded values; everything is copied once."""
    pieces: list[bytes | bytearray] = []
    for name, value in fields.items():
        pieces.append(b'%b"%b":' % (b"," if pieces else b"{", name.encode()))
        if isinstance(value, tuple):
            pieces += value
        else:
            pieces.append(value)
    return b"".join([*pieces, b"}"]) if pieces else b"{}"


def without_fields(fields: Mapping[str, Json], paths: Iterable[str]) -> Mapping[str, Json]:
    """Remove the fields at `paths`, such as `stream_options` or `reasoning.summary`, from a body."""
    kept = dict(fields)
    for path in paths:
        name, _, below = path.partition(".")
        if name in kept and below:
            rest = _without(msgspec.json.decode(_whole(kept[name])), below.split("."))
            kept |= {name: msgspec.json.encode(rest)} if rest else {}
        else:
            rest = None
        if not rest:
            kept.pop(name, None)
    return kept


def _whole(value: Json) -> bytes:
    return b"".join(value) if isinstance(value, tuple) else value


def _without(value: JsonValue, path: Sequence[str]) -> JsonValue:
    if not isinstance(value, dict) or path[0] not in value:
        return value
    below = None if len(path) == 1 else _without(value[path[0]], path[1:])
    rest = {name: entry for name, entry in value.items() if name != path[0]}
    return rest | {path[0]: below} if below else rest


def json_array(values: Iterable[bytes]) -> bytes:
    """Build a JSON array from encoded values."""
    return b"[%b]" % b",".join(values)
