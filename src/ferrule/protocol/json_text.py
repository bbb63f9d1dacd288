"""JSON from a model and text for the wire: the only decoder and the only encoder."""

import json
import math
import re
from typing import Any, NoReturn

import msgspec

from ferrule.protocol.errors import RespondToModel

JsonValue = Any
"""Any JSON value: the one place where a type cannot be more precise."""
JsonObject = dict[str, JsonValue]

PARSE_ERROR = "failed to parse function arguments: "
"""The start of every refusal of a call's arguments, in words that models know."""

MAX_DEPTH = 200
"""Maximum nesting of a value: the limit of pydantic's JSON reader, far below Python's own."""

_EXCERPT = 40
"""Characters of the offending text quoted in an error: enough to find the place."""

_FENCE = re.compile(r"\s*```[\w-]*[ \t]*\r?\n(.*?)\r?\n?[ \t]*```\s*", re.DOTALL)


def decode(text: str | bytes) -> JsonValue:
    """Decode JSON text. Accepts raw control characters inside strings, and a Markdown fence around the whole.

    Raises `RespondToModel` that says where the text stops being JSON and what stands there.
    """
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return _decode_tolerantly(_readable(text))
    if len(text) > MAX_DEPTH and _brackets(text) > MAX_DEPTH:
        _check_depth(value)
    return value


def _brackets(text: str | bytes) -> int:
    """Count the arrays and objects that `text` can hold at most."""
    if isinstance(text, str):
        return text.count("[") + text.count("{")
    return text.count(b"[") + text.count(b"{")


def _readable(text: str | bytes) -> str:
    try:
        return text if isinstance(text, str) else text.decode()
    except UnicodeDecodeError as error:
        raise _refusal(f"byte {error.start} is not UTF-8") from error


def _decode_tolerantly(text: str) -> JsonValue:
    fenced = _FENCE.fullmatch(text)
    try:
        value = _READER.decode(fenced[1] if fenced else text)
        _check_depth(value)
    except json.JSONDecodeError as error:
        raise _refusal(_explain(error)) from error
    except RecursionError as error:
        raise _refusal(f"the JSON is nested deeper than {MAX_DEPTH} levels") from error
    except ValueError as error:
        raise _refusal(str(error)) from error
    return value


def _check_depth(value: JsonValue) -> None:
    """Refuse excessive nesting, and lone surrogates, which UTF-8 cannot encode."""
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > MAX_DEPTH + 1:
            raise _refusal(f"the JSON is nested deeper than {MAX_DEPTH} levels")
        below: list[JsonValue] = []
        for item in level:
            if isinstance(item, dict):
                below.extend(item)
                below.extend(item.values())
            elif isinstance(item, list):
                below.extend(item)
            elif isinstance(item, str) and encodable(item) is not item:
                raise _refusal(f"half of a surrogate pair in {item[:_EXCERPT]!r}")
        level = below


def _finite(text: str) -> float:
    if math.isinf(value := float(text)):
        raise _refusal(f"the number {text[:_EXCERPT]} is out of range")
    return value


def _no_constant(text: str) -> NoReturn:
    raise _refusal(f"{text} is not JSON")


_READER = json.JSONDecoder(strict=False, parse_float=_finite, parse_constant=_no_constant)


def _refusal(reason: str) -> RespondToModel:
    return RespondToModel(PARSE_ERROR + reason)


def _explain(error: json.JSONDecodeError) -> str:
    if error.msg == "Extra data":
        return (
            f"more than one JSON value, the second from line {error.lineno} column {error.colno}, near {_near(error)}"
        )
    where = f"{error.msg.removesuffix(' starting at')} at line {error.lineno} column {error.colno}"
    if error.pos >= len(error.doc.rstrip()) or error.msg.startswith("Unterminated string"):
        end = error.doc.rstrip()[-_EXCERPT:]
        return f"{where}: the JSON ends too early (was it cut off?), after {end!r}" if end else f"{where}: it is empty"
    return f"{where}, near {_near(error)}"


def _near(error: json.JSONDecodeError) -> str:
    return repr(error.doc[error.pos : error.pos + _EXCERPT])


def encodable(text: str) -> str:
    """Replace lone surrogates in `text` by U+FFFD, so that UTF-8 can encode it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
