"""What real servers refuse in a history, on both wires: stricter than `ScriptedModel`."""

from collections.abc import Iterator
from typing import Any

from ferrule.testing import Request


def refusals(request: Request) -> list[str]:
    """What is wrong with a request's history: a call without its one output, an output without a call, ids that come
    twice."""
    return list((_chat if request.wire == "chat" else _responses)(request.items))


def _responses(items: list[Any]) -> Iterator[str]:
    """Each call has one output, later than the call."""
    calls: set[str] = set()
    answered: set[str] = set()
    for item in items:
        kind, call_id = item.get("type", "message"), item.get("call_id")
        if kind.endswith("_call"):
            if call_id in calls:
                yield f"two calls have the id {call_id}"
            calls.add(call_id)
        elif kind.endswith("_call_output"):
            if call_id not in calls:
                yield f"no call found for the output of {call_id}"
            if call_id in answered:
                yield f"two outputs of {call_id}"
            answered.add(call_id)
        elif kind == "message" and item.get("role") == "user" and calls - answered:
            yield f"the user speaks before the outputs of {sorted(calls - answered)}"
    yield from (f"no output found for the call {call_id}" for call_id in sorted(calls - answered))


def _chat(messages: list[Any]) -> Iterator[str]:
    """After a message with calls come its outputs, all of them, and nothing else before them."""
    calls: set[str] = set()
    waiting: set[str] = set()
    for message in messages:
        role = message.get("role")
        if role == "tool":
            if message.get("tool_call_id") not in waiting:
                yield f"the output of {message.get('tool_call_id')} follows no message with its call"
            waiting.discard(message.get("tool_call_id"))
            continue
        if waiting:
            yield f"{role} speaks before the outputs of {sorted(waiting)}"
        waiting = set()
        for call in message.get("tool_calls") or ():
            if call["id"] in calls:
                yield f"two calls have the id {call['id']}"
            calls.add(call["id"])
            waiting.add(call["id"])
        if role == "assistant" and not message.get("content") and not message.get("tool_calls"):
            yield "an assistant says nothing"
    if waiting:
        yield f"no outputs found for {sorted(waiting)}"
