"""Input that a client adds while a response runs: what may be added, and what its client is told of it.

Source: `response.steer` of the WebSocket mode of `/v1/responses`.
"""

from collections.abc import Mapping, Sequence

import msgspec

from ferrule.model.calls import random_id
from ferrule.protocol.json_text import JsonObject, JsonValue
from ferrule.responses.errors import INVALID, ApiError
from ferrule.responses.ledger import Ledger
from ferrule.responses.request import ResponseRequest, read
from ferrule.responses.transcript import read_input

MAX_PENDING = 16
"""Additions that wait for the end of one response: more than anybody types meanwhile."""

_FIELDS = frozenset({"type", "role", "content"})
_OUTPUTS: Mapping[str, str] = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "computer_call": "computer_call_output",
    "shell_call": "shell_call_output",
    "local_shell_call": "local_shell_call_output",
    "apply_patch_call": "apply_patch_call_output",
}


class SteerRefused(Exception):
    """An addition that cannot be taken. `code` is the API's word for the reason."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class SteerMessage(msgspec.Struct, frozen=True):
    """A client's message, as it came."""

    previous_response_id: str
    input: str | tuple[JsonObject, ...]

    @property
    def items(self) -> list[JsonValue]:
        """What is added, as items."""
        return list(self.input) if isinstance(self.input, tuple) else [{"role": "user", "content": self.input}]

    def check(self) -> None:
        """Check that it adds a user's messages and nothing else. Raises `SteerRefused`."""
        if not self.input:
            raise SteerRefused("invalid_input", "input: there is nothing to add")
        for at, item in enumerate(self.input if isinstance(self.input, tuple) else ()):
            if item.get("role") != "user" or item.get("type", "message") != "message" or not item.keys() <= _FIELDS:
                raise SteerRefused("invalid_input", f"input[{at}]: only messages of the user can be added")
        try:
            read_input(tuple(msgspec.Raw(msgspec.json.encode(item)) for item in self.items))
        except ApiError as error:
            raise SteerRefused("invalid_input", str(error)) from error


class Steer(msgspec.Struct, frozen=True):
    """An addition that was accepted."""

    id: str
    message: SteerMessage


def read_steer(body: bytes) -> SteerMessage:
    """Read a message. Raises `ApiError` if it has not even the right shape."""
    return read(body, SteerMessage)


def new_steer(message: SteerMessage) -> Steer:
    """Return an accepted addition."""
    return Steer(f"steer_{random_id()}", message)


def can_be_steered(request: ResponseRequest) -> bool:
    """Return whether what continues a response can follow by itself."""
    return request.conversation is None and not request.known.context_management


def accepted(steer: Steer) -> JsonObject:
    """Return the event for an addition that waits for its place."""
    return _event("accepted", {"id": steer.id, "previous_response_id": steer.message.previous_response_id})


def failed(message: SteerMessage, code: str, why: str, steer_id: str | None = None) -> JsonObject:
    """Return the event for an addition that got no place; it is given back."""
    given: JsonValue = message.input if isinstance(message.input, str) else list(message.input)
    told: JsonObject = {"previous_response_id": message.previous_response_id, "input": given}
    error: JsonObject = {"code": code, "message": why, "type": INVALID}
    return {**_event("failed", told if steer_id is None else {"id": steer_id, **told}), "error": error}


def pending(steer: Steer, required: Sequence[JsonObject]) -> JsonObject:
    """Return the event for an addition that waits for outputs of the client."""
    told: JsonObject = {"id": steer.id, "previous_response_id": steer.message.previous_response_id}
    return {**_event("pending", told), "reason": "waiting_for_required_input", "required_input": list(required)}


def _event(kind: str, steer: JsonObject) -> JsonObject:
    return {"type": f"response.steer.{kind}", "sequence_number": 0, "steer": steer}


def required_input(ledger: Ledger) -> list[JsonObject]:
    """Return the outputs that a response waits for, as stubs to fill in."""
    return [stub for item in ledger.output if (stub := _stub(item)) is not None]


def _stub(item: JsonObject) -> JsonObject | None:
    kind = str(item.get("type"))
    if kind == "mcp_approval_request":
        return {"type": "mcp_approval_response", "approval_request_id": item.get("id")}
    if kind == "tool_search_call" and item.get("execution") == "client":
        return {"type": "tool_search_output", "execution": "client", "call_id": item.get("call_id")}
    if kind not in _OUTPUTS or item.get("environment", {"type": "local"}) not in (None, {"type": "local"}):
        return None
    stub: JsonObject = {"type": _OUTPUTS[kind], "call_id": item.get("call_id")}
    return {**stub, "name": item.get("name")} if kind == "function_call" else stub


def continued(body: bytes, steers: Sequence[Steer], after: str | None = None) -> bytes:
    """Return a request with additions before its own input. `after`: it is what follows this response by itself, with
    the additions alone."""
    fields: JsonObject = msgspec.json.decode(body)
    added = [item for steer in steers for item in steer.message.items]
    if after is not None:
        return msgspec.json.encode({**fields, "previous_response_id": after, "input": added})
    given = fields.get("input") or []
    own: list[JsonValue] = [{"role": "user", "content": given}] if isinstance(given, str) else list(given)
    return msgspec.json.encode({**fields, "input": [*added, *own]})
