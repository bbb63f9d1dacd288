"""JSON-RPC as the Codex app-server speaks it: 2.0 without the key `jsonrpc`, one object a line. Pure."""

import msgspec

from ferrule.doors.app_server.shapes.common import RequestId
from ferrule.doors.app_server.shapes.told import Told
from ferrule.protocol.json_text import JsonValue, encodable
from ferrule.rpc import INVALID_REQUEST, PARSE_ERROR, RpcError, id_in

UNKNOWN_METHOD = -32_601
INTERNAL_ERROR = -32_603
OVERLOADED = -32_001
"""The reference's code for more requests at once than are served."""

_LONGEST_TEXT = 2_000
"""Characters of an error: some repeat what the client gave, however long that is."""


class Call(msgspec.Struct, frozen=True):
    """A request of the client."""

    id: RequestId
    method: str
    params: msgspec.Raw


class Notice(msgspec.Struct, frozen=True):
    """A notification of the client."""

    method: str


class Reply(msgspec.Struct, frozen=True):
    """The client's answer to a request of ours; `result` is None for an error."""

    id: RequestId
    result: msgspec.Raw | None


class _Line(msgspec.Struct):
    id: RequestId | msgspec.UnsetType | None = msgspec.UNSET
    method: str | msgspec.UnsetType = msgspec.UNSET
    params: msgspec.Raw = msgspec.Raw(b"{}")
    result: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    error: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_decode = msgspec.json.Decoder(_Line).decode


def read_line(line: bytes) -> Call | Notice | Reply:
    """Return the message in a line. Raises `RpcError` for a line that is none, with its id where it has one."""
    try:
        read = _decode(line)
    except msgspec.ValidationError as error:
        raise RpcError(f"Invalid request: {error}", INVALID_REQUEST, _known_id(line)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RpcError("this is not JSON in UTF-8", PARSE_ERROR, id_in(line)) from error
    if read.method is not msgspec.UNSET:
        if read.id is None:
            raise RpcError("Invalid request: the id of a request is a string or an integer")
        return Notice(read.method) if read.id is msgspec.UNSET else Call(read.id, read.method, read.params)
    answered = read.result is not msgspec.UNSET or read.error is not msgspec.UNSET
    if answered and read.id is not None and read.id is not msgspec.UNSET:
        return Reply(read.id, None if read.result is msgspec.UNSET or read.error is not msgspec.UNSET else read.result)
    known = None if read.id is msgspec.UNSET else read.id
    raise RpcError("Invalid request: it has neither a method nor a result", INVALID_REQUEST, known)


class _OnlyId(msgspec.Struct):
    id: RequestId | None = None


def _known_id(line: bytes) -> RequestId | None:
    try:
        return msgspec.json.decode(line, type=_OnlyId).id
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


_plain = msgspec.json.Encoder().encode


def _encode(message: JsonValue) -> bytes:
    """Encode a message; halves of characters, which names of files may have, are replaced."""
    try:
        return _plain(message)
    except UnicodeEncodeError:
        return _plain(_whole(msgspec.to_builtins(message)))


def _whole(value: JsonValue) -> JsonValue:
    match value:
        case str():
            return encodable(value)
        case dict():
            return {encodable(key): _whole(part) for key, part in value.items()}
        case list() | tuple():
            return [_whole(part) for part in value]
    return value


def result_line(request_id: RequestId, result: msgspec.Struct) -> bytes:
    """Return the answer to a request, as a line."""
    return _encode({"id": request_id, "result": result}) + b"\n"


def error_line(error: RpcError) -> bytes:
    """Return an error, as a line; its id is null where that of the request could not be read."""
    text = str(error)
    shown = text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}…"
    return _encode({"error": {"code": error.code, "message": shown}, "id": error.request_id}) + b"\n"


def notice_line(params: Told) -> bytes:
    """Return a notification, as a line."""
    return _encode({"method": params.method, "params": params}) + b"\n"


def ask_line(request_id: RequestId, params: Told) -> bytes:
    """Return a request of ours, as a line."""
    return _encode({"method": params.method, "id": request_id, "params": params}) + b"\n"
