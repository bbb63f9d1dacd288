"""Streams of the Messages API, and requests to it."""

import json
from typing import Any

from ferrule.model.stream import ModelRequest
from ferrule.protocol.items import (
    FunctionCall,
    FunctionCallOutput,
    Origin,
    OutputBody,
    ResponseItem,
    make_item,
    read_item,
)
from tests.model.support import Outcome, Replay, replay, request, sse, wire_model

Json = dict[str, Any]
PNG = "data:image/png;base64,aGk="
START: Json = {"type": "message_start", "message": {"id": "m1", "model": "claude-x", "usage": {"input_tokens": 3}}}
SAID: Json = {"type": "text_delta", "text": "It is."}
END: Json = {"type": "message_stop"}


def block(index: int, opened: Json, *deltas: Json) -> list[Json]:
    return [
        {"type": "content_block_start", "index": index, "content_block": opened},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def stop(reason: str | None, **fields: Any) -> Json:
    return {"type": "message_delta", "delta": {"stop_reason": reason, **fields}, "usage": {"output_tokens": 7}}


def text(index: int, *pieces: str) -> list[Json]:
    return block(index, {"type": "text", "text": ""}, *({"type": "text_delta", "text": piece} for piece in pieces))


def call(index: int, *pieces: str, name: str = "shell", **fields: Any) -> list[Json]:
    opened = {"type": "tool_use", "id": f"toolu_{index}", "name": name, "input": {}, **fields}
    return block(index, opened, *({"type": "input_json_delta", "partial_json": piece} for piece in pieces))


def thinking(index: int, thought: str, signature: str) -> list[Json]:
    told = [{"type": "thinking_delta", "thinking": thought}] if thought else []
    opened = {"type": "thinking", "thinking": "", "signature": ""}
    return block(index, opened, *told, {"type": "signature_delta", "signature": signature})


def said_text(said: str) -> Json:
    return {"type": "text", "text": said}


async def heard(*events: Json, asked: ModelRequest | None = None) -> Outcome:
    return await replay("messages", sse(START, *events), asked or ask())


def sent(asked: ModelRequest, accepts: str = "anthropic") -> Json:
    body: Json = json.loads(wire_model("messages", Replay([]), accepts).body(asked))
    return body


def ask(*items: ResponseItem, **fields: object) -> ModelRequest:
    return request(*items, **{"model": "claude-opus-4-6", **fields})  # type: ignore[arg-type]


def result(call_id: str, output: OutputBody = "ok", *, failed: bool = False) -> ResponseItem:
    return make_item(FunctionCallOutput(call_id=call_id, output=output, failed=failed))


def contents(body: Json) -> list[list[Json]]:
    """What each message holds, without the marks for the cache."""
    unmarked = [
        [{k: v for k, v in one.items() if k != "cache_control"} for one in m["content"]] for m in body["messages"]
    ]
    assert [m["role"] for m in body["messages"]] == ["user", "assistant"] * (len(unmarked) // 2) + ["user"]
    return unmarked


def made(view: Any, response: int = 1, provider: str = "") -> ResponseItem:
    """An item of an earlier answer of the server."""
    item = make_item(view)
    return ResponseItem(item.raw, item.view, Origin(provider or ":Test@test", "claude", response))


def thought(signature: str = "c2ln", **origin: Any) -> ResponseItem:
    raw = {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm"}]}
    return made(read_item(json.dumps(raw | {"message_fields": {"signature": signature}})).view, **origin)


def asked_for(call_id: str, response: int = 1, arguments: str = "{}") -> ResponseItem:
    return made(FunctionCall(call_id=call_id, name="shell", arguments=arguments), response)
