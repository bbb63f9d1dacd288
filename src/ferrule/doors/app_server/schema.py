"""The JSON Schema of all messages, generated from their types."""

from collections.abc import Iterator

import msgspec

from ferrule.doors.app_server.methods import METHODS
from ferrule.doors.app_server.shapes.common import RequestId
from ferrule.doors.app_server.shapes.requests import InitializeParams, InitializeResult
from ferrule.doors.app_server.shapes.told import ASKED, NOTIFICATIONS
from ferrule.protocol.json_text import JsonObject, JsonValue

DIALECT = "https://json-schema.org/draft/2020-12/schema"


def schema() -> JsonObject:
    """Return one schema: each message in `oneOf`, who sends it in `title`, the types in `definitions`."""
    types = [kind for kind, *_ in _messages()] + [kind for *_, kind in _messages() if kind is not None]
    shapes, definitions = msgspec.json.schema_components([*types, RequestId], ref_template="#/definitions/{name}")
    of = dict(zip([*types, RequestId], shapes, strict=True))
    return {
        "$schema": DIALECT,
        "title": "Messages of `ferrule app-server`, one JSON object a line",
        "oneOf": [
            _message(title, method, of[params], of[RequestId] if result else None, of[result] if result else None)
            for params, title, method, result in _messages()
        ],
        "definitions": definitions,
    }


def _messages() -> Iterator[tuple[type, str, str, type | None]]:
    """Yield each message: its params, who sends it, its method, and the result of a request."""
    yield InitializeParams, "ClientRequest", "initialize", InitializeResult
    for method, served in METHODS.items():
        yield served.params, "ClientRequest", method, served.result
    for asked, answer in ASKED.items():
        yield asked, "ServerRequest", asked.method, answer
    for told in NOTIFICATIONS:
        yield told, "ServerNotification", told.method, None


def _message(title: str, method: str, params: JsonObject, request_id: JsonValue, result: JsonValue) -> JsonObject:
    fields: JsonObject = {"method": {"const": method}, "params": params}
    message: JsonObject = {"title": title, "type": "object", "properties": fields, "required": ["method", "params"]}
    if request_id is not None:
        fields["id"] = request_id
        message["required"] = ["id", "method", "params"]
        message["x-result"] = result
    return message
