"""Read JSON-RPC messages of a client, and say plainly what is none; write ours. Pure."""

import json

import msgspec

from ferrule.protocol.json_text import JsonObject, encodable
from ferrule.rpc import PARSE_ERROR, RpcError, id_in, too_long

INVALID_PARAMS = -32_602
NOT_FOUND = -32_002
"""ACP's code for a resource, such as a session, that does not exist."""
FAILED = -32_603

LONGEST_TEXT = 2_000
"""Characters of an error: some repeat what the client gave, however long that is."""
SHOWN_FAULTS = 3
"""Faults of one request's parameters that are told: a union of five shapes has a fault for each."""


def answer_of(error: RpcError) -> JsonObject:
    """Return the error to answer with."""
    return {"jsonrpc": "2.0", "id": error.request_id, "error": {"code": error.code, "message": str(error)}}


def read_message(line: bytes, *, whole: bool = True) -> JsonObject:
    """Return the request, notification or answer in a line, its parts in the shapes of JSON-RPC. `whole`: it is not
    just the beginning of an overlong one. Raises `RpcError`."""
    if not whole:
        raise too_long(line)
    try:
        value = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise RpcError("this is not JSON in UTF-8", PARSE_ERROR, id_in(line)) from error
    if isinstance(value, list):
        raise RpcError("batches are not served: send each message by itself")
    if not isinstance(value, dict):
        raise RpcError("a message is a JSON object")
    known = value.get("id")
    request_id = known if isinstance(known, str | int) and not isinstance(known, bool) else None
    if "id" in value and request_id is None:
        raise RpcError("the id of a message is a string or an integer")
    if (fault := _fault_of(value)) is not None:
        raise RpcError(fault, request_id=request_id)
    if isinstance(params := value.get("params"), dict):
        params.pop("_meta", None)  # nothing of ours; the SDK would pass it on as arguments
    return value


def _fault_of(value: JsonObject) -> str | None:
    """Return what is wrong with a message whose id is none or as it should be."""
    if "method" in value:
        if not isinstance(value["method"], str):
            return "the method of a message is a string"
        return None if isinstance(value.get("params", {}), dict | None) else "params are an object"
    if "id" not in value:
        return "a message has a method, or it answers by an id"
    error = value.get("error")
    if "result" not in value and not (isinstance(error, dict) and isinstance(error.get("code"), int)):
        return "an answer has a result, or an error with a code"
    return None


def encode_message(message: JsonObject) -> bytes:
    """Return a message as its line. Halves of characters, as file names have them, become U+FFFD."""
    if isinstance(error := message.get("error"), dict):
        message = {**message, "error": _short(error)}
    try:
        return msgspec.json.encode(message) + b"\n"
    except UnicodeEncodeError:
        return encodable(json.dumps(message, ensure_ascii=False)).encode() + b"\n"


def _short(error: JsonObject) -> JsonObject:
    """Return an error without what the SDK repeats of the request: it says what is wrong in the message instead."""
    code, data = error.get("code"), error.get("data")
    faults = data.get("errors") if isinstance(data, dict) else None
    if isinstance(faults, list):
        said = [f"{'.'.join(map(str, fault['loc'])) or 'params'}: {fault['msg']}" for fault in faults[:SHOWN_FAULTS]]
        return {"code": code, "message": f"Invalid params: {'; '.join(said)}"}
    text = str(error.get("message", ""))
    shown = text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}…"
    return {key: value for key, value in {**error, "message": shown}.items() if value is not None}
