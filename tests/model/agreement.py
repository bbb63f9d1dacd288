"""Mutated streams of the Messages API, read by us and by Anthropic's SDK. `python -m tests.model.agreement COUNT
[SEED]`."""

import asyncio
import json
import random
import sys
from typing import Any

from anthropic.lib.streaming._messages import accumulate_event

from ferrule.history.pairs import in_place
from ferrule.model.messages.request import MessagesBody
from ferrule.model.payloads import is_object
from ferrule.model.profiles import load_profiles
from ferrule.model.recipient import Recipient
from ferrule.protocol.items import FunctionCall, ResponseItem
from tests.model.mutations import Event, chunked, framed, noise, shuffled
from tests.model.support import function, replay, request, user

WORDS = ("Look", " ä 🔧", "\n\n", " and", ' "then"', "", " ", "\\")
CITATION: Event = {"type": "web_search_result_location", "url": "u", "title": "t", "encrypted_index": "e"}
INPUTS = ('{"cmd": "ls \\"ä\\" -la"}', "{}", "", '{"a": [1, {"b": null}], "c": -2.5}', '{"text": "🔧\\n"}')
REASONS = ("end_turn", "tool_use", "stop_sequence", "pause_turn")


def _pieces(chance: random.Random, text: str) -> list[str]:
    cuts = sorted(chance.sample(range(len(text) + 1), min(len(text), chance.randrange(4))))
    return [text[start:end] for start, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]


def _block(chance: random.Random, number: int) -> tuple[Event, list[Event]]:
    """A block as it begins, and its deltas."""
    kind = chance.choice(
        ["text", "text", "thinking", "redacted_thinking", "tool_use", "tool_use", "server_tool_use", "result"]
    )
    said = [chance.choice(WORDS) for _ in range(chance.randrange(5))]
    if kind == "text":
        cited = [{"type": "citations_delta", "citation": {**CITATION, "cited_text": text}} for text in said[:1]]
        return {"type": kind, "text": ""}, [
            *(cited if chance.random() < 0.3 else []), *({"type": "text_delta", "text": text} for text in said),
        ]  # fmt: skip
    if kind == "thinking":
        signed = {"type": "signature_delta", "signature": f"c2ln{number}"}
        thought: list[Event] = [{"type": "thinking_delta", "thinking": text} for text in said]
        return {"type": kind, "thinking": "", "signature": ""}, [*thought, signed]
    if kind == "redacted_thinking":
        return {"type": kind, "data": f"c2VjcmV0{number}"}, []
    if kind == "result":
        return {"type": "web_search_tool_result", "tool_use_id": f"srv_{number}", "content": []}, []
    pieces = _pieces(chance, chance.choice(INPUTS))
    deltas: list[Event] = [{"type": "input_json_delta", "partial_json": piece} for piece in pieces]
    name = "shell" if kind == "tool_use" else "web_search"
    return {"type": kind, "id": f"id_{number}", "name": name, "input": {}}, deltas


def stream(chance: random.Random) -> list[Event]:
    """The events of one message."""
    usage = {"input_tokens": 5, "output_tokens": 1}
    head: Event = {"id": "m1", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": usage}
    events: list[Event] = [{"type": "message_start", "message": {**head, "stop_reason": None, "stop_sequence": None}}]
    for index in range(chance.randrange(1, 6)):
        opened, deltas = _block(chance, index)
        events.append({"type": "content_block_start", "index": index, "content_block": opened})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    calls = any(event.get("content_block", {}).get("type") in ("tool_use", "server_tool_use") for event in events)
    reason = chance.choice([reason for reason in REASONS if calls or reason != "tool_use"])
    ended = {"stop_reason": reason, "stop_sequence": None}
    return [
        *events, {"type": "message_delta", "delta": ended, "usage": {"output_tokens": 9}}, {"type": "message_stop"},
    ]  # fmt: skip


def accumulated(events: list[Event]) -> list[Event] | None:
    """The content that the SDK makes of a stream; None where it refuses it."""
    message: Any = None
    buffers: dict[int, bytes] = {}
    try:
        for event in events:
            message = accumulate_event(event=event, current_snapshot=message, json_bufs=buffers)
    except (RuntimeError, ValueError, IndexError, AttributeError):
        return None
    return None if message is None else [_plain(block.to_dict(warnings=False)) for block in message.content]


def _plain(block: Event) -> Event:
    """A block without what is not there, and without the marks of mutations."""
    return {
        k: v for k, v in block.items() if v is not None and not k.startswith("x_") and not (k == "citations" and not v)
    }


def ours(items: list[ResponseItem]) -> list[Event]:
    """The content that we send back of an answer."""
    to = Recipient(load_profiles().providers["messages"], ":Test@test", "m", "messages")
    blocks = [block for item in items for block in MessagesBody(to)._blocks(item)]
    return [_plain(block) for block in json.loads(json.dumps(blocks, default=lambda raw: json.loads(bytes(raw))))]


def _is_said(block: Event) -> bool:
    return block["type"] != "text" or bool(block["text"].strip())


async def check(seed: int) -> str:
    """One mutated stream; raises AssertionError where we and the SDK disagree. Returns how it went."""
    chance = random.Random(seed)
    events = stream(chance)
    kind = chance.choice(["same", "fields", "noise", "twice", "lost", "swapped"])
    place = chance.randrange(len(events))
    if kind == "fields":
        events = [shuffled(chance, event) for event in events]
    elif kind == "twice":
        events.insert(place, events[place])
    elif kind == "lost":
        del events[place]
    elif kind == "swapped":
        other = chance.randrange(len(events))
        events[place], events[other] = events[other], events[place]
    payloads: list[Event | str] = list(events)
    if kind == "noise":
        for _ in range(chance.randrange(1, 6)):
            payloads.insert(chance.randrange(len(payloads) + 1), noise(chance, "messages"))
    asked = request(user("go"), model="m", tools=(function("shell"),))
    found = await asyncio.wait_for(replay("messages", chunked(chance, framed(chance, payloads)), asked), 10)
    theirs = accumulated(events)
    where = f"seed {seed}, {kind} at {place}: {found.error}"
    if kind in ("same", "fields", "noise"):
        assert found.error is None and theirs is not None, where
    if found.error is not None:
        assert found.error.retryable, where
        return "asked again"
    unread = [view for view in found.views if isinstance(view, FunctionCall) and not is_object(view.arguments)]
    if unread:
        assert kind not in ("same", "fields", "noise"), where
        return "told to the model"
    assert theirs is not None, where
    said = ours(in_place(found.items))
    assert [_same(block) for block in said] == [_same(block) for block in theirs if _is_said(block)], where
    return "the same"


def _same(block: Event) -> Event:
    """A call without its id, which we make unique, and with the fields of mutations taken out of its input."""
    kept = {name: value for name, value in block.items() if name != "id"}
    if isinstance(kept.get("input"), dict):
        kept["input"] = {name: value for name, value in kept["input"].items() if not name.startswith("x_")}
    return kept


async def main(count: int, seed: int) -> None:
    told: dict[str, int] = {}
    for number in range(count):
        how = await check(seed + number)
        told[how] = told.get(how, 0) + 1
    print(f"{count} mutated streams from seed {seed}, as Anthropic's SDK reads them: {told}")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0))
