"""What must stand in a response and in its items: each field that the API's schema requires, with its type.

Source: the response and item schemas of Open Responses, and the types of OpenAI's SDK.
"""

from typing import Any, Literal

import msgspec

from ferrule.conformance.failures import Failed

Json = dict[str, Any]
Status = Literal["in_progress", "completed", "incomplete"]
Number = int | float


class _InputDetails(msgspec.Struct):
    cached_tokens: int


class _OutputDetails(msgspec.Struct):
    reasoning_tokens: int


class Usage(msgspec.Struct):
    """The tokens of a response."""

    input_tokens: int
    input_tokens_details: _InputDetails
    output_tokens: int
    output_tokens_details: _OutputDetails
    total_tokens: int


class _Format(msgspec.Struct):
    type: str


class _Text(msgspec.Struct):
    format: _Format


class _Error(msgspec.Struct):
    code: str
    message: str


class _Incomplete(msgspec.Struct):
    reason: str


class Response(msgspec.Struct):
    """A response. Each field must be present."""

    id: str
    object: Literal["response"]
    created_at: int
    completed_at: int | None
    status: Literal["queued", "in_progress", "completed", "failed", "incomplete", "cancelled"]
    incomplete_details: _Incomplete | None
    model: str
    previous_response_id: str | None
    instructions: str | list[Json] | None
    output: list[Json]
    error: _Error | None
    tools: list[Json]
    tool_choice: str | Json
    truncation: Literal["auto", "disabled"]
    parallel_tool_calls: bool
    text: _Text
    top_p: Number
    presence_penalty: Number
    frequency_penalty: Number
    top_logprobs: int
    temperature: Number
    reasoning: Json | None
    usage: Usage | None
    max_output_tokens: int | None
    max_tool_calls: int | None
    store: bool
    background: bool
    service_tier: str
    metadata: dict[str, str]
    safety_identifier: str | None
    prompt_cache_key: str | None


class _OutputText(msgspec.Struct, tag="output_text"):
    text: str
    annotations: list[Json]
    logprobs: list[Json]


class _Refusal(msgspec.Struct, tag="refusal"):
    refusal: str


class _Message(msgspec.Struct, tag="message"):
    id: str
    role: Literal["assistant"]
    status: Status
    content: list[_OutputText | _Refusal]


class _SummaryText(msgspec.Struct, tag="summary_text"):
    text: str


class _Reasoning(msgspec.Struct, tag="reasoning"):
    id: str
    summary: list[_SummaryText]


class _FunctionCall(msgspec.Struct, tag="function_call"):
    id: str
    call_id: str
    name: str
    arguments: str
    status: Status


class _CustomCall(msgspec.Struct, tag="custom_tool_call"):
    id: str
    call_id: str
    name: str
    input: str


class _ShellAction(msgspec.Struct):
    commands: list[str]


class _ShellCall(msgspec.Struct, tag="shell_call"):
    id: str
    call_id: str
    action: _ShellAction
    status: Status


class _LocalAction(msgspec.Struct, tag="exec"):
    command: list[str]
    env: dict[str, str]


class _LocalShellCall(msgspec.Struct, tag="local_shell_call"):
    id: str
    call_id: str
    action: _LocalAction
    status: Status


class _Operation(msgspec.Struct):
    type: Literal["create_file", "update_file", "delete_file"]
    path: str


class _PatchCall(msgspec.Struct, tag="apply_patch_call"):
    id: str
    call_id: str
    operation: _Operation
    status: Literal["in_progress", "completed"]


class _ComputerCall(msgspec.Struct, tag="computer_call"):
    id: str
    call_id: str
    pending_safety_checks: list[Json]
    status: Status


class _SearchCall(msgspec.Struct, tag="tool_search_call"):
    id: str
    execution: Literal["server", "client"]
    arguments: Any
    call_id: str | None
    status: Status


class _Compaction(msgspec.Struct, tag="compaction"):
    id: str
    encrypted_content: str


_Item = (
    _Message
    | _Reasoning
    | _FunctionCall
    | _CustomCall
    | _ShellCall
    | _LocalShellCall
    | _PatchCall
    | _ComputerCall
    | _SearchCall
    | _Compaction
)
_KNOWN = frozenset(str(kind.__struct_config__.tag) for kind in _Item.__args__)


def check_response(response: Json, where: str) -> None:
    """Fail unless a response has all of its fields, and so has each of its items."""
    _fits(response, Response, where)
    for number, item in enumerate(response["output"]):
        check_item(item, f"{where}, output[{number}]")


def check_item(item: Json, where: str) -> None:
    """Fail unless an item has all of its fields. One of another type needs an id."""
    if item.get("type") in _KNOWN:
        _fits(item, _Item, where)
    elif not isinstance(item.get("id"), str):
        raise Failed(f"{where}: an item of the type {item.get('type')!r} has no id")


def check_usage(usage: object, where: str) -> Usage:
    """Fail unless token counts are whole; return them."""
    found: Usage = _fits(usage, Usage, where)
    return found


def _fits(value: object, kind: Any, where: str) -> Any:
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise Failed(f"{where}: {error}") from error
