"""Streams of each provider's shape, and seeded mutations of them. `python -m tests.model.mutations COUNT [SEED]`."""

import asyncio
import json
import random
import sys
from collections.abc import Sequence
from typing import Any

from ferrule.model.stream import ItemDone
from ferrule.protocol.items import FunctionCall
from ferrule.protocol.specs import Wire
from tests.model.support import Outcome, function, replay, request

ARGUMENTS = '{"cmd": "printf \\"ä 🔧\\"; ls -la /tmp"}'
PIECES = (ARGUMENTS[:4], ARGUMENTS[4:17], ARGUMENTS[17:30], ARGUMENTS[30:])
ITEM = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "shell"}
Event = dict[str, Any]

THOUGHTS: dict[str, Event] = {
    "openai": {}, "deepseek": {"reasoning_content": "hm"}, "groq": {"reasoning": "hm"},
    "openrouter": {"reasoning": "hm", "reasoning_details": [{"type": "reasoning.text", "text": "hm", "index": 0}]},
    "gemini": {"extra_content": {"google": {"thought_signature": "SIG"}}},
    "mistral": {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]},
    "moonshot": {"reasoning_content": "hm"}, "zai": {"reasoning_content": "hm"},
    "minimax": {"content": "<think>hm</think>"},
    "ollama": {"reasoning": "hm"}, "llamacpp": {"reasoning_content": "hm"}, "dashscope": {"reasoning_content": "hm"},
    "azure": {"content_filter_results": {"hate": {"filtered": False}}}, "lmstudio": {"reasoning_content": "hm"},
    "vllm": {"reasoning_content": "hm", "reasoning": "hm"}, "sglang": {"reasoning_content": "hm"},
    "litellm": {"reasoning_content": "hm", "thinking_blocks": [{"type": "thinking", "thinking": "hm"}]},
    "anthropic": {"content": "Let me look."}, "xai": {"reasoning_content": "hm"}, "generic": {},
}  # fmt: skip
"""What a provider sends before its call."""
AT_ONCE = ("gemini", "mistral", "ollama", "xai")
"""Providers that send a call in one piece."""


def chat(provider: str) -> list[Event]:
    """The stream of one call over Chat Completions."""
    pieces = (ARGUMENTS,) if provider in AT_ONCE else ("", *PIECES)
    deltas: list[Event] = [{"role": "assistant", "content": ""}, THOUGHTS[provider]]
    for number, piece in enumerate(pieces):
        call: Event = {"index": 0, "function": {"arguments": piece}}
        if not number:
            call |= {"id": "call_1", "type": "function", "function": {"name": "shell", "arguments": piece}}
        deltas.append({"tool_calls": [call]})
    choices: list[Event] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": "tool_calls"})
    events: list[Event] = [{"id": "c1", "object": "chat.completion.chunk", "choices": [each]} for each in choices]
    if provider == "azure":
        events.insert(0, {"id": "", "choices": [], "prompt_filter_results": [{"prompt_index": 0}]})
    return [*events, {"id": "c1", "choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}}]


def responses() -> list[Event]:
    """The stream of one call over the Responses API."""
    place: Event = {"item_id": "fc_1", "output_index": 0}
    whole = {**ITEM, "arguments": ARGUMENTS, "status": "completed"}
    kind = "response.function_call_arguments"
    events: list[Event] = [
        {"type": "response.created", "response": {"id": "r1"}},
        {"type": "response.output_item.added", "output_index": 0, "item": {**ITEM, "arguments": ""}},
        *({"type": f"{kind}.delta", **place, "delta": piece} for piece in PIECES),
        {"type": f"{kind}.done", **place, "arguments": ARGUMENTS},
        {"type": "response.output_item.done", "output_index": 0, "item": whole},
        {"type": "response.completed", "response": {"id": "r1", "status": "completed", "output": [whole]}},
    ]
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


def messages() -> list[Event]:
    """The stream of one call over the Messages API."""
    head: Event = {"id": "m1", "type": "message", "role": "assistant", "model": "m", "content": []}
    head |= {"stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 5, "output_tokens": 1}}
    call: Event = {"type": "tool_use", "id": "call_1", "name": "shell", "input": {}}
    pieces = [{"type": "input_json_delta", "partial_json": piece} for piece in ("", *PIECES)]
    ended: Event = {"stop_reason": "tool_use", "stop_sequence": None}
    return [
        {"type": "message_start", "message": head},
        {"type": "content_block_start", "index": 0, "content_block": call},
        *({"type": "content_block_delta", "index": 0, "delta": piece} for piece in pieces),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": ended, "usage": {"output_tokens": 20}},
        {"type": "message_stop"},
    ]


SHAPES: dict[str, tuple[Wire, list[Event]]] = {
    "responses": ("responses", responses()), "messages": ("messages", messages()),
    **{name: ("chat", chat(name)) for name in THOUGHTS},
}  # fmt: skip


def parallel(chance: random.Random, calls: int = 3) -> list[Event]:
    """Calls without ids over Chat Completions, whose pieces come in any order but each call's own."""
    turns = [number for number in range(calls) for _ in PIECES]
    chance.shuffle(turns)
    left = {number: iter(PIECES) for number in range(calls)}
    seen: set[int] = set()
    events: list[Event] = []
    for number in turns:
        function: Event = {"arguments": next(left[number])}
        function |= {} if number in seen else {"name": "shell"}
        seen.add(number)
        delta = {"tool_calls": [{"index": number, "function": function}]}
        events.append({"id": "c1", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    return [*events, {"id": "c1", "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}]


def noise(chance: random.Random, wire: Wire) -> Event | str:
    """An event that says nothing about the call."""
    said: list[Event | str] = [
        {}, {"type": "ping"}, "", " ", "ping", {"choices": [], "usage": None}, {"choices": None, "usage": {}},
    ]  # fmt: skip
    if wire == "responses":
        said += [
            {"type": "response.in_progress", "response": {"id": "r1"}},
            {"type": "keepalive", "sequence_number": 0},
        ]
        return chance.choice(said)
    if wire == "messages":
        return chance.choice([*said, {"type": "content_block_of_tomorrow", "index": 0}])
    usage = {"prompt_tokens": 5, "completion_tokens": None, "prompt_tokens_details": None}
    deltas: list[Event] = [
        {}, {"role": "assistant"}, {"content": ""}, {"content": None, "tool_calls": None}, {"tool_calls": []},
    ]  # fmt: skip
    said += [{"id": "c1", "choices": None, "usage": usage}, {"id": "c1", "choices": [], "usage": usage}]
    said += [{"id": "c1", "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    said.append({"id": "c1", "choices": [{"index": 0, "delta": None, "logprobs": None}]})
    said.append({"id": "c1", "choices": [{"index": 0, "delta": {}, "finish_reason": ""}]})
    return chance.choice(said)


def _finished_again(chance: random.Random, events: list[Event]) -> list[Event]:
    """Further reasons to finish behind the first one, and a call that comes whole once more."""
    reason = chance.choice(["stop", "tool_calls", "function_call", "eos"])
    delta = chance.choice([{}, {"content": ""}, {"role": "assistant", "content": None}])
    return [*events, *[{"id": "c1", "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}] * 2]


def framed(chance: random.Random, payloads: Sequence[object]) -> bytes:
    """The payloads as a stream, in one of the forms that the standard allows."""
    end = chance.choice(["\n", "\r\n", "\r"])
    space = chance.choice(["", " "])
    text = chance.choice(["", "\ufeff"])
    for payload in payloads:
        ascii_only = chance.random() < 0.5
        body = payload if isinstance(payload, str) else json.dumps(
            payload, ensure_ascii=ascii_only, indent=chance.choice([None, 1])
        )  # fmt: skip
        lines = [f"data:{space}{line}" for line in body.split("\n")]
        for extra in (": a comment", "id: 7", "retry: 100", "event: message", ":", "unknown: field", "data-x: 1"):
            if chance.random() < 0.1:
                lines.insert(chance.randrange(len(lines) + 1), extra)
        text += end.join(lines) + end * chance.choice([2, 2, 2, 3])
        text += chance.choice(["", "", "", f": comment{end}{end}", f"event: ping{end}{end}"])
    return text.encode(errors="backslashreplace")


def shuffled(chance: random.Random, value: Any) -> Any:
    """Reordered fields with unknown ones between them."""
    if isinstance(value, list):
        return [shuffled(chance, entry) for entry in value]
    if not isinstance(value, dict):
        return value
    fields = [(name, shuffled(chance, entry)) for name, entry in value.items()]
    fields.append((f"x_{chance.randrange(9)}", chance.choice([None, 1, "a", [], {"b": [2]}])))
    chance.shuffle(fields)
    return dict(fields)


def chunked(chance: random.Random, data: bytes) -> Sequence[bytes]:
    cuts = sorted(chance.sample(range(1, len(data)), chance.randrange(min(40, len(data) - 1))))
    return [data[start:end] for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]


def called(found: Outcome) -> list[tuple[str, str]]:
    views = [event.item.view for event in found.events if isinstance(event, ItemDone)]
    return [(view.name, view.arguments) for view in views if isinstance(view, FunctionCall)]


async def check(name: str, seed: int) -> None:
    """One mutated stream; raises AssertionError where it gives something else than it may."""
    chance = random.Random(seed)
    wire, events = SHAPES[name]
    events = list(events)
    expected = [("shell", ARGUMENTS)]
    kind = chance.choice(["same", "fields", "noise", "again", "parallel", "twice", "lost", "swapped"])
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
    elif kind == "noise":
        for _ in range(chance.randrange(1, 6)):
            events.insert(chance.randrange(len(events)), noise(chance, wire))  # type: ignore[arg-type]
    elif kind == "again" and wire == "chat":
        events = _finished_again(chance, events)
    elif kind == "parallel" and wire == "chat":
        events, expected = parallel(chance), expected * 3
    data = framed(chance, [*events, *(["[DONE]"] if wire == "chat" else [])])
    found = await asyncio.wait_for(replay(wire, chunked(chance, data), request(tools=(function("shell"),))), 10)
    came = called(found)
    where = f"{name}, seed {seed}, {kind} at {place}: {json.dumps(came)}, {found.error}"
    if kind not in ("twice", "lost", "swapped") or (kind == "twice" and wire == "responses"):
        assert came == expected and found.error is None, where
    elif wire == "responses":
        assert came == expected or (came == [] and found.error is not None), where


async def main(count: int, seed: int) -> None:
    names = list(SHAPES)
    for number in range(count):
        await check(names[number % len(names)], seed + number)
    print(f"{count} mutated streams of {len(names)} shapes from seed {seed}: all as they should be")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0))
