"""Item fields that are sent back over the Responses wire: a list for each kind, and for the parts in it.

Servers and bridges send more fields than they accept back, and some refuse a whole request over one unknown field.
Source: the input items of the Responses API.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

Fields = dict[str, msgspec.Raw]

_CALL = frozenset({"type", "id", "call_id", "name", "namespace", "caller"})
_HOSTED = frozenset({"type", "id", "status"})
_OUTPUT = frozenset({"type", "id", "call_id", "output", "caller"})

ITEM_FIELDS: Mapping[str, frozenset[str]] = {
    "message": frozenset({"type", "id", "role", "content", "status", "phase"}),
    "reasoning": frozenset({"type", "id", "summary", "content", "encrypted_content"}),
    "function_call": _CALL | {"arguments"},
    "function_call_output": _OUTPUT,
    "custom_tool_call": _CALL | {"input"},
    "custom_tool_call_output": _OUTPUT,
    "tool_search_call": _HOSTED | {"call_id", "arguments", "execution"},
    "tool_search_output": _HOSTED | {"call_id", "tools", "execution"},
    "local_shell_call": _HOSTED | {"call_id", "action"},
    "local_shell_call_output": _HOSTED | {"call_id", "output"},
    "shell_call": _HOSTED | {"call_id", "action", "environment", "caller"},
    "shell_call_output": _HOSTED | {"call_id", "output", "max_output_length", "caller"},
    "apply_patch_call": _HOSTED | {"call_id", "operation", "caller"},
    "apply_patch_call_output": _HOSTED | {"call_id", "output", "caller"},
    "computer_call": _HOSTED | {"call_id", "action", "actions", "pending_safety_checks"},
    "computer_call_output": _HOSTED | {"call_id", "output", "acknowledged_safety_checks"},
    "web_search_call": _HOSTED | {"action"},
    "file_search_call": _HOSTED | {"queries", "results"},
    "code_interpreter_call": _HOSTED | {"code", "container_id", "outputs"},
    "image_generation_call": _HOSTED
    | {"action", "background", "error", "output_format", "quality", "result", "revised_prompt", "size", "svg_usage"},
    "mcp_list_tools": frozenset({"type", "id", "server_label", "tools", "error"}),
    "mcp_approval_request": frozenset({"type", "id", "server_label", "name", "arguments"}),
    "mcp_approval_response": frozenset({"type", "id", "approval_request_id", "approve", "reason"}),
    "mcp_call": _HOSTED | {"server_label", "name", "arguments", "output", "error", "approval_request_id"},
    "additional_tools": frozenset({"type", "id", "role", "tools"}),
    "compaction": frozenset({"type", "id", "encrypted_content"}),
    "item_reference": frozenset({"type", "id"}),
}
"""By item type. An item of another type is sent back unchanged."""

PLAIN = frozenset(
    {
        "message",
        "reasoning",
        "function_call",
        "function_call_output",
        "custom_tool_call",
        "custom_tool_call_output",
        "tool_search_call",
        "tool_search_output",
    }
)
"""Kinds in which null means no more than an absent field, and is sometimes refused (`content: null` of reasoning)."""

CALLS = frozenset({"function_call", "custom_tool_call"})
"""Kinds whose `status` OpenAI accepts back and others do not."""

_TEXT = frozenset({"type", "text", "prompt_cache_breakpoint"})
PART_FIELDS: Mapping[str, frozenset[str]] = {
    "input_text": _TEXT,
    "output_text": frozenset({"type", "text", "annotations", "logprobs"}),
    "summary_text": frozenset({"type", "text"}),
    "reasoning_text": frozenset({"type", "text"}),
    "refusal": frozenset({"type", "refusal"}),
    "input_image": frozenset({"type", "image_url", "file_id", "detail", "prompt_cache_breakpoint"}),
    "input_file": frozenset(
        {"type", "file_id", "file_url", "file_data", "filename", "detail", "prompt_cache_breakpoint"}
    ),
}
"""By the type of a part of `content`, `summary` or `output`."""

_encode = msgspec.json.encode
_read_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_read_parts = msgspec.json.Decoder(list[dict[str, msgspec.Raw]]).decode


def pruned(raw: bytes, *, status: bool, changes: Mapping[str, bytes | None], without: frozenset[str]) -> bytes:
    """Return an item as sent: `raw` itself if nothing has to be dropped or changed.

    `status`: calls keep theirs. `changes` are new values as JSON, None to drop a field; `without` are names that this
    server refused, in the item and in its parts.
    """
    given = _read_fields(raw)
    kind = _kind(given)
    known = ITEM_FIELDS.get(kind)
    kept = given if known is None else {name: value for name, value in given.items() if name in known}
    if status and kind in CALLS and "status" in given:
        kept["status"] = given["status"]
    if kind in PLAIN:
        kept = {name: value for name, value in kept.items() if bytes(value) != b"null"}
    for name in ("content", "summary", "output"):
        if name in kept and (parts := _pruned_parts(kept[name], without)) is not None:
            kept[name] = msgspec.Raw(parts)
    for name, value in changes.items():
        if name in kept:
            kept[name] = msgspec.Raw(value or b"")
    kept = {name: value for name, value in kept.items() if name not in without and bytes(value)}
    if len(kept) == len(given) and all(kept[name] is given[name] for name in kept):
        return raw
    return _encode(kept)


def _kind(fields: Fields) -> str:
    raw = bytes(fields.get("type", b""))
    kind: Any = msgspec.json.decode(raw) if raw else ""
    return kind if isinstance(kind, str) else ""


def _pruned_parts(raw: msgspec.Raw, without: frozenset[str]) -> bytes | None:
    """Return the parts as sent; None if nothing has to be dropped from them."""
    if not bytes(raw).startswith(b"["):
        return None
    try:
        parts = _read_parts(raw)
    except msgspec.ValidationError:
        return None
    kept = [_pruned_part(part, without) for part in parts]
    if all(one is other for one, other in zip(kept, parts, strict=True)):
        return None
    return _encode(kept)


def _pruned_part(part: Fields, without: frozenset[str]) -> Fields:
    known = PART_FIELDS.get(_kind(part))
    if known is None:
        return part
    kept = {
        name: value for name, value in part.items() if name in known and name not in without and bytes(value) != b"null"
    }
    return part if len(kept) == len(part) else kept
