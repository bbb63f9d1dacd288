"""The result of a turn."""

from typing import Any

import msgspec

from ferrule.protocol.events import TokenUsage
from ferrule.protocol.items import CustomToolCall, FunctionCall, ItemView, ResponseItem
from ferrule.protocol.payload import (
    CustomPayload,
    FunctionPayload,
    LocalShellPayload,
    McpPayload,
    ToolOutput,
    ToolPayload,
)
from ferrule.tools.context import ToolInvocation
from ferrule.web.marks import Citation


class ToolCall(msgspec.Struct, frozen=True):
    """A call of the turn. `arguments` are JSON, or the input of a freeform tool; `output` is what the model read."""

    name: str
    arguments: str
    call_id: str
    output: str
    success: bool


class TurnResult(msgspec.Struct, frozen=True):
    """What a turn came to.

    `text` is the model's last message, `output` that message as `output_type`. `items` are what the model said and the
    tools answered, `tool_calls` the calls in their order. `usage` is the sum over the turn's requests, `cost` what they
    cost if prices are configured, `duration` in seconds. `diff` is the unified diff of the turn's patches, empty if
    there is none. `aborted`: interrupted. `citations` are the pages that `text` cites.
    `incomplete`: why the last answer was cut short (`max_output_tokens`), None if it is whole.
    """

    text: str
    usage: TokenUsage
    turn_id: str = ""
    aborted: bool = False
    session_id: str = ""
    items: tuple[ResponseItem, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()
    diff: str = ""
    duration: float = 0.0
    output: Any = None
    cost: float | None = None
    citations: tuple[Citation, ...] = ()
    incomplete: str | None = None


def tool_call(view: ItemView, invocation: ToolInvocation, output: ToolOutput) -> ToolCall:
    """Return a call under the name that the model used."""
    named = view.name if isinstance(view, FunctionCall | CustomToolCall) else invocation.tool_name
    return ToolCall(named, _arguments(invocation.payload), invocation.call_id, output.text, output.success is not False)


def _arguments(payload: ToolPayload) -> str:
    match payload:
        case CustomPayload(input=text):
            return text
        case McpPayload(raw_arguments=raw):
            return raw
        case LocalShellPayload(params=params):
            return msgspec.json.encode(params).decode()
        case FunctionPayload(arguments=raw):
            return raw
    return payload.arguments
