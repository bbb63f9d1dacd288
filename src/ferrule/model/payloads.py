"""The payload of one event, decoded once into what its wire needs."""

import json
from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec

from ferrule.model.stream import ModelError
from ferrule.protocol.json_text import JsonValue, encodable

T = TypeVar("T")


def load(payload: bytes, decoder: msgspec.json.Decoder[T]) -> T | dict[str, JsonValue] | None:
    """The typed event; where it does not fit the type, the plain object; None where it is no object at all.

    Text that UTF-8 cannot carry is read with U+FFFD in its place. Raises `ModelError` where it is not JSON.
    """
    try:
        return decoder.decode(payload)
    except msgspec.ValidationError:
        pass
    except (msgspec.DecodeError, UnicodeDecodeError):
        payload = _cleaned(payload)
        try:
            return decoder.decode(payload)
        except msgspec.ValidationError:
            pass
    plain = msgspec.json.decode(payload)
    return plain if isinstance(plain, dict) else None


def _cleaned(payload: bytes) -> bytes:
    try:
        value = json.loads(payload.decode(errors="replace"), strict=False)
    except (ValueError, RecursionError) as error:
        excerpt = payload[:80].decode(errors="replace")
        raise ModelError(f"The server sent an event that is not JSON: {excerpt!r}.", retryable=True) from error
    return msgspec.json.encode(_encodable(value))


def _encodable(value: JsonValue) -> JsonValue:
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, list):
        return [_encodable(entry) for entry in value]
    if isinstance(value, dict):
        return {encodable(key): _encodable(entry) for key, entry in value.items()}
    return value


def json_object(fields: Mapping[str, bytes]) -> bytes:
    """The JSON object of fields whose values are JSON already."""
    return b"{%b}" % b",".join([b'"%b":%b' % (name.encode(), value) for name, value in fields.items()])


def json_array(values: Iterable[bytes]) -> bytes:
    """The JSON array of values that are JSON already."""
    return b"[%b]" % b",".join(values)
