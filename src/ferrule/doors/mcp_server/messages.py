"""Read JSON-RPC messages of a client, and say plainly what is none. Pure."""

import json

from mcp_types import (
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

from ferrule.protocol.json_text import JsonValue
from ferrule.rpc import INVALID_REQUEST, PARSE_ERROR, RpcError


def answer_of(error: RpcError) -> JSONRPCError:
    """Return the error to answer with."""
    return JSONRPCError(jsonrpc="2.0", id=error.request_id, error=ErrorData(code=error.code, message=str(error)))


def read_message(data: bytes) -> JSONRPCMessage:
    """Return the message. An answer that is none is one that failed: its question must not wait for ever.

    Raises `RpcError`.
    """
    try:
        message = jsonrpc_message_adapter.validate_json(data, by_name=False)
    except ValidationError as error:
        return _unreadable(data, error)
    if isinstance(message, JSONRPCNotification) and b'"id"' in data and _has_id(data):
        raise RpcError("the id of a request is a string or an integer")
    return message


def _unreadable(data: bytes, error: ValidationError) -> JSONRPCMessage:
    value = _decoded(data)
    named = value.get("id") if isinstance(value, dict) else None
    known = named if isinstance(named, str | int) and not isinstance(named, bool) else None
    if isinstance(value, dict) and "method" not in value and known is not None:
        failed = ErrorData(code=INVALID_REQUEST, message="the answer is no JSON-RPC answer")
        return JSONRPCError(jsonrpc="2.0", id=known, error=failed)
    if any(fault["type"] == "json_invalid" for fault in error.errors(include_url=False, include_input=False)):
        raise RpcError("this is not JSON in UTF-8", PARSE_ERROR, known) from error
    if isinstance(value, list):
        raise RpcError("batches are not served: send each message by itself") from error
    raise RpcError("this is no JSON-RPC 2.0 message", INVALID_REQUEST, known) from error


def _has_id(data: bytes) -> bool:
    value = _decoded(data)
    return isinstance(value, dict) and "id" in value


def _decoded(data: bytes) -> JsonValue:
    """Return the value of what some read as JSON: with halves of characters, or bytes that are no UTF-8."""
    try:
        return json.loads(data.decode(errors="replace"))
    except (ValueError, RecursionError):
        return None
