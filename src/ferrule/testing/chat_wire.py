"""The Chat Completions wire: the same items as chunks or as one message.

Calls that this wire cannot express become function calls. Reasoning is sent as `reasoning_content`. Items of tools that
run on the server have no counterpart and are left out.
"""

import time
from collections.abc import Iterator, Sequence

import msgspec

from ferrule.testing.calls import ToolCall, called
from ferrule.testing.items import Item
from ferrule.testing.plain import JsonObject, as_object, as_objects, as_text, slices
from ferrule.testing.sse import DONE, Event
from ferrule.testing.steps import Failed, Step, StreamError, Usage


class _Text(msgspec.Struct, frozen=True):
    """A piece of the message and its key: `content`, `refusal` or `reasoning_content`."""

    key: str
    text: str


_KINDS = {"content": "content", "refusal": "refusal", "reasoning_content": "reasoning"}


def completion(body: JsonObject, completion_id: str, step: Step, output: Sequence[Item], usage: Usage) -> Item:
    """Build the answer to a request without `stream`."""
    pieces = list(_pieces(output))
    message: Item = {"role": "assistant", "content": None, "refusal": None}
    for piece in pieces:
        if isinstance(piece, _Text):
            message[piece.key] = as_text(message.get(piece.key)) + piece.text
    calls = [piece for piece in pieces if isinstance(piece, ToolCall)]
    if calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in calls
        ]
    choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish_reason(step, bool(calls))}
    return {**_frame(body, completion_id, "chat.completion"), "choices": [choice], "usage": usage_object(usage)}


def usage_object(usage: Usage) -> Item:
    """Return token counts in the spelling of Chat Completions."""
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }


def stream(body: JsonObject, completion_id: str, step: Step, output: Sequence[Item], usage: Usage) -> list[Event]:
    """Return every chunk from the role to `[DONE]`; a usage chunk if `stream_options.include_usage` asks for it."""
    frame = _frame(body, completion_id, "chat.completion.chunk")
    wants_usage = as_object(body.get("stream_options")).get("include_usage") is True
    if wants_usage:
        frame["usage"] = None
    pieces = list(_pieces(output))
    events = [_chunk(frame, "role", {"role": "assistant", "content": "", "refusal": None})]
    calls = 0
    for piece in pieces:
        if isinstance(piece, _Text):
            parts = slices(piece.text, step.delta_chars)
            events += [_chunk(frame, _KINDS[piece.key], {piece.key: part}) for part in parts]
        else:
            events += [_chunk(frame, "tool_call", delta) for delta in _call_deltas(calls, piece, step.delta_chars)]
            calls += 1
    if step.end == "missing":
        return events
    if isinstance(step.end, Failed | StreamError):
        return [*events, Event("error", {"error": _error(step.end)}), DONE]
    events.append(_chunk(frame, "finish", {}, _finish_reason(step, calls > 0)))
    if wants_usage:
        events.append(Event("usage", {**frame, "choices": [], "usage": usage_object(usage)}))
    return [*events, DONE]


def _frame(body: JsonObject, completion_id: str, kind: str) -> Item:
    return {
        "id": completion_id,
        "object": kind,
        "created": int(time.time()),
        "model": body.get("model"),
        "service_tier": "default",
        "system_fingerprint": "fp_scripted",
    }


def _chunk(frame: JsonObject, kind: str, delta: JsonObject, finish_reason: str | None = None) -> Event:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
    return Event(kind, {**frame, "choices": [choice]})


def _call_deltas(index: int, call: ToolCall, delta_chars: int) -> Iterator[Item]:
    opening = {"index": index, "id": call.id, "type": "function", "function": {"name": call.name, "arguments": ""}}
    yield {"tool_calls": [opening]}
    for part in slices(call.arguments, delta_chars):
        yield {"tool_calls": [{"index": index, "function": {"arguments": part}}]}


def _finish_reason(step: Step, called: bool) -> str:
    if step.end == "max_output_tokens":
        return "length"
    if step.end == "content_filter":
        return "content_filter"
    return "tool_calls" if called else "stop"


def _error(end: Failed | StreamError) -> Item:
    return end.fields() if isinstance(end, StreamError) else {"code": end.code, "message": end.message}


def _pieces(output: Sequence[JsonObject]) -> Iterator[_Text | ToolCall]:
    spoken: set[str] = set()
    for item in output:
        for piece in _texts(item):
            # The message has a single text: line breaks separate what several items said.
            yield _Text(piece.key, "\n" + piece.text) if piece.key in spoken else piece
            spoken.add(piece.key)
        call = called(item)
        if call is not None:
            yield call


def _texts(item: JsonObject) -> Iterator[_Text]:
    if item["type"] == "message":
        for part in as_objects(item.get("content")):
            key = "refusal" if part.get("type") == "refusal" else "content"
            yield _Text(key, as_text(part.get("text") if key == "content" else part.get("refusal")))
    elif item["type"] == "reasoning":
        text = "\n".join(
            as_text(part.get("text")) for key in ("summary", "content") for part in as_objects(item.get(key))
        )
        if text:
            yield _Text("reasoning_content", text)
