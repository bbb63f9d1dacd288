"""JSON that comes from a model and text that goes to the wire: one decoder, one encoder, no other way."""

import json
from typing import Any

import msgspec

from ferrule.protocol.errors import RespondToModel

JsonValue = Any
"""Any JSON value: the one place where a type cannot say more."""


def decode(text: str | bytes) -> JsonValue:
    """The JSON value of `text`. Raw control characters inside strings are accepted, as models write them.

    Raises `RespondToModel` that says where the text stops being JSON and what stands there.
    """
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        pass
    try:
        readable = text if isinstance(text, str) else text.decode()
        return json.loads(readable, strict=False)
    except json.JSONDecodeError as error:
        raise RespondToModel(f"failed to parse function arguments: {_explain(error)}") from error
    except UnicodeDecodeError as error:
        raise RespondToModel(f"failed to parse function arguments: byte {error.start} is not UTF-8") from error
    except RecursionError as error:
        raise RespondToModel("failed to parse function arguments: the JSON is nested too deeply") from error


_EXCERPT = 40
"""Characters of the offending text that an error quotes: enough to find the place."""


def _explain(error: json.JSONDecodeError) -> str:
    where = f"{error.msg} at line {error.lineno} column {error.colno}"
    if error.pos >= len(error.doc.rstrip()):
        return f"{where}: the JSON ends there (was it cut off?)"
    return f"{where}, near {error.doc[error.pos : error.pos + _EXCERPT]!r}"


def encodable(text: str) -> str:
    """`text` with lone surrogates replaced by U+FFFD, so that UTF-8 can carry it."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
