"""The Messages wire of Anthropic: the same items as content blocks, whole or as stream events.

Reasoning becomes a `thinking` block whose signature is its `encrypted_content`, else a made-up one; calls become
`tool_use`. A refusal becomes the stop reason that it is here. An item whose type is a block's (`redacted_thinking`,
`server_tool_use`, ...) is sent as it is. Items of tools that run on OpenAI's servers are left out.

Fields and the order of events follow the API as typed by its Python SDK 2.14.
"""

import json
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from ferrule.testing.calls import called
from ferrule.testing.items import Item
from ferrule.testing.plain import JsonObject, as_objects, as_text, json_text, slices
from ferrule.testing.sse import Event
from ferrule.testing.steps import End, Failed, Step, StreamError, Usage

_OWN_BLOCKS = ("redacted_thinking", "server_tool_use", "container_upload", "mcp_tool_use", "compaction")
_OURS = frozenset({"id", "status"})
"""Keys that every item of a script gets, and blocks do not have."""


class _Block(msgspec.Struct, frozen=True):
    """A content block: as it opens, and its deltas, which are applied to it one after the other."""

    opened: JsonObject
    deltas: tuple[JsonObject, ...] = ()
    whole: JsonObject = {}

    @property
    def closed(self) -> Item:
        """The whole block."""
        return {**self.opened, **self.whole}


def message(body: JsonObject, message_id: str, step: Step, output: Sequence[Item], usage: Usage) -> Item:
    """Build the answer to a request without `stream`."""
    blocks = [block.closed for block in _blocks(output, step.delta_chars)]
    reason = _stop_reason(step.end, blocks, output)
    return {
        "id": message_id,
        "type": "message",
        "role": "assistant",
        "model": body.get("model"),
        "content": blocks,
        "stop_reason": reason,
        "stop_sequence": None,
        "stop_details": _refused(output) if reason == "refusal" else None,
        "usage": usage_object(usage),
    }


def usage_object(usage: Usage) -> Item:
    """Return token counts in the spelling of the Messages API, where `input_tokens` are only the new ones."""
    return {
        "input_tokens": usage.input_tokens - usage.cached_tokens - usage.written_tokens,
        "cache_creation_input_tokens": usage.written_tokens,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"thinking_tokens": usage.reasoning_tokens},
        "service_tier": "standard",
    }


def stream(whole: JsonObject, step: Step, output: Sequence[Item]) -> list[Event]:
    """Return every event from `message_start` to `message_stop` that leads to the message `whole`."""
    usage = dict(whole["usage"]) if isinstance(whole["usage"], Mapping) else {}
    opened = {**whole, "content": [], "stop_reason": None, "stop_details": None, "usage": {**usage, "output_tokens": 1}}
    events = [_event("message_start", message=opened), _event("ping")]
    for index, block in enumerate(_blocks(output, step.delta_chars)):
        events.append(_event("content_block_start", index=index, content_block=block.opened))
        events += [_event("content_block_delta", index=index, delta=delta) for delta in block.deltas]
        events.append(_event("content_block_stop", index=index))
    if isinstance(step.end, Failed | StreamError):
        return [*events, _event("error", error=_error(step.end))]
    if step.end != "missing":
        ended = {name: whole[name] for name in ("stop_reason", "stop_sequence", "stop_details")}
        events += [_event("message_delta", delta=ended, usage=usage), _event("message_stop")]
    return events


def _event(kind: str, **fields: object) -> Event:
    return Event(kind, {"type": kind, **fields}, named=True)


def _error(end: Failed | StreamError) -> Item:
    if isinstance(end, Failed):
        return {"type": "api_error", "message": end.message}
    return {"type": end.type or end.code or "api_error", "message": end.message, **end.more}


def _stop_reason(end: End, blocks: Sequence[Item], output: Sequence[JsonObject]) -> str:
    if end == "max_output_tokens":
        return "max_tokens"
    if end == "content_filter" or _refused(output):
        return "refusal"
    return "tool_use" if any(block["type"] == "tool_use" for block in blocks) else "end_turn"


def _refused(output: Sequence[JsonObject]) -> Item | None:
    """Return the details of a refusal; None without one."""
    parts = [part for item in output for part in as_objects(item.get("content")) if part.get("type") == "refusal"]
    said = as_text(parts[0].get("refusal")) if parts else None
    return {"type": "refusal", "category": None, "explanation": said} if parts else None


def _blocks(output: Sequence[JsonObject], size: int) -> Iterator[_Block]:
    for number, item in enumerate(output, 1):
        kind = as_text(item["type"])
        call = called(item)
        if call is not None:
            opened: Item = {"type": "tool_use", "id": call.id, "name": call.name, "input": {}}
            yield _with_input(opened, call.arguments, size)
        elif kind == "message":
            yield from (_text(part, size) for part in as_objects(item.get("content")) if "text" in part)
        elif kind == "reasoning":
            yield _thinking(item, number, size)
        elif kind in _OWN_BLOCKS or kind.endswith("_tool_result"):
            yield _verbatim(item, size)


def _text(part: JsonObject, size: int) -> _Block:
    """Return a text block; its citations are the part's annotations."""
    said, cited = as_text(part.get("text")), as_objects(part.get("annotations"))
    deltas: list[Item] = [{"type": "citations_delta", "citation": note} for note in cited]
    deltas += [{"type": "text_delta", "text": piece} for piece in slices(said, size)]
    whole = {"text": said, "citations": cited or None}
    return _Block({"type": "text", "text": "", "citations": [] if cited else None}, tuple(deltas), whole)


def _thinking(item: JsonObject, number: int, size: int) -> _Block:
    parts = [part for key in ("summary", "content") for part in as_objects(item.get(key))]
    said = "\n".join(as_text(part.get("text")) for part in parts)
    signature = as_text(item.get("encrypted_content")) or f"signature_{number}"
    deltas: list[Item] = [{"type": "thinking_delta", "thinking": piece} for piece in slices(said, size)]
    deltas.append({"type": "signature_delta", "signature": signature})
    whole = {"thinking": said, "signature": signature}
    return _Block({"type": "thinking", "thinking": "", "signature": ""}, tuple(deltas), whole)


def _with_input(opened: JsonObject, arguments: str, size: int) -> _Block:
    """Return a call. Arguments that are no object, as the stream may hold them, are an empty one in a whole message."""
    pieces = [] if arguments == "{}" else slices(arguments, size)
    deltas = tuple({"type": "input_json_delta", "partial_json": piece} for piece in ("", *pieces))
    return _Block(opened, deltas, {"input": _object(arguments)})


def _object(text: str) -> object:
    try:
        value = json.loads(text)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _verbatim(item: JsonObject, size: int) -> _Block:
    """Return an item that is a block already. A call of the server's keeps its id."""
    block = {key: value for key, value in item.items() if key not in _OURS}
    if "id" in item and str(item["type"]).endswith("_use"):
        opened = {**block, "id": item["id"], "input": {}}
        return _with_input(opened, json_text(block.get("input", {})), size)
    return _Block(block)
