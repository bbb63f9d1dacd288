"""The payload of one event, decoded once into what its wire needs."""

import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

import msgspec

from ferrule.model.stream import ModelError
from ferrule.protocol.json_text import JsonValue, encodable

T = TypeVar("T")


def load(payload: bytes, decoder: msgspec.json.Decoder[T]) -> T | dict[str, JsonValue] | None:
    """The typed event; where it does not fit the type, the plain object; None where it is no object at all.

    Halves of surrogate pairs are kept as they are, for the other half may be in the next delta; in whole items they
    become U+FFFD, as do bytes that are not UTF-8. Raises `ModelError` where the payload is not JSON.
    """
    try:
        return decoder.decode(payload)
    except msgspec.ValidationError:
        pass
    except (msgspec.DecodeError, UnicodeDecodeError):
        value = _tolerantly(payload)
        with suppress(msgspec.ValidationError):
            return msgspec.convert(value, decoder.type)
        payload = msgspec.json.encode(_encodable(value))
        with suppress(msgspec.ValidationError):
            return decoder.decode(payload)
    plain = msgspec.json.decode(payload)
    return plain if isinstance(plain, dict) else None


def _tolerantly(payload: bytes) -> JsonValue:
    try:
        return json.loads(payload.decode(errors="replace"), strict=False)
    except (ValueError, RecursionError) as error:
        excerpt = payload[:80].decode(errors="replace")
        raise ModelError(f"The server sent an event that is not JSON: {excerpt!r}.", retryable=True) from error


def _encodable(value: JsonValue) -> JsonValue:
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, list):
        return [_encodable(entry) for entry in value]
    if isinstance(value, dict):
        return {encodable(key): _encodable(entry) for key, entry in value.items()}
    return value


Json = bytes | tuple[bytes | bytearray, ...]
"""JSON that stands ready, whole or in pieces."""


def json_object(fields: Mapping[str, Json]) -> bytes:
    """The JSON object of fields whose values are JSON already; everything is copied once."""
    pieces: list[bytes | bytearray] = []
    for name, value in fields.items():
        pieces.append(b'%b"%b":' % (b"," if pieces else b"{", name.encode()))
        if isinstance(value, tuple):
            pieces += value
        else:
            pieces.append(value)
    return b"".join([*pieces, b"}"]) if pieces else b"{}"


def without_fields(fields: Mapping[str, Json], paths: Iterable[str]) -> Mapping[str, Json]:
    """The fields of a body without those that `paths` name, such as `stream_options` or `reasoning.summary`."""
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
    """The JSON array of values that are JSON already."""
    return b"[%b]" % b",".join(values)
