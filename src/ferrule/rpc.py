"""JSON-RPC of clients, as the doors that serve it share it: the error for what is no message, and whom it answers."""

import json
import re

from ferrule.mcp.lines import MAX_MESSAGE_BYTES
from ferrule.protocol.errors import FerruleError

PARSE_ERROR, INVALID_REQUEST = -32_700, -32_600
TOO_MANY = -32_000
"""The first of JSON-RPC's codes for a server's own errors."""
TOO_LONG = f"a message is longer than {MAX_MESSAGE_BYTES >> 20} MiB"
EDGE = 256
"""Bytes of the beginning of a message that cannot be read, in which its id is looked for."""

_ID = re.compile(rb'"id"\s*:\s*(\d{1,18}|"[\w.:-]{1,64}")')


class RpcError(FerruleError):
    """Why a request, or what is none, gets an error. `request_id` is whose answer this is, as far as that can be
    told."""

    def __init__(self, text: str, code: int = INVALID_REQUEST, request_id: str | int | None = None) -> None:
        super().__init__(text)
        self.code = code
        self.request_id = request_id


def too_long(beginning: bytes) -> RpcError:
    """Return the error for a message that is too long, of which this is the beginning."""
    return RpcError(TOO_LONG, request_id=id_in(beginning))


def id_in(line: bytes) -> str | int | None:
    """Return the id of a message that cannot be read, if it is at its beginning, where clients write it."""
    found = _ID.search(line[:EDGE].partition(b'"params"')[0])
    return None if found is None else json.loads(found[1])
