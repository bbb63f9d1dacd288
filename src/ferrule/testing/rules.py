"""Checks of real servers on requests, so that a test fails here and not in production."""

from collections import Counter
from collections.abc import Iterator

from ferrule.testing.items import CALL_TYPES
from ferrule.testing.messages_rules import complaints
from ferrule.testing.plain import JsonObject, as_objects, as_text
from ferrule.testing.request import Request, call_output


def complaint(request: Request) -> str | None:
    """Return the first problem in the request's history, or None.

    Every client-side call has exactly one output, later than the call. On the chat wire an assistant message contains
    text or a call; `messages_rules` has those of the Messages wire.
    """
    if request.wire == "messages":
        return next(complaints(request.body, request.headers), None)
    if request.body.get("previous_response_id") or request.body.get("conversation"):
        return None  # Only a real server has the history with the calls.
    return next(filter(None, (*_empty_turns(request), _pairing(request))), None)


def _empty_turns(request: Request) -> Iterator[str]:
    for number, item in enumerate(request.items):
        silent = item.get("role") == "assistant" and item.get("content") is None and not item.get("tool_calls")
        if request.wire == "chat" and silent:
            yield f"messages.{number}: an assistant message without content needs tool_calls"


def _pairing(request: Request) -> str | None:
    unanswered: Counter[str] = Counter()
    item_ids: dict[str, str] = {}
    for item in request.items:
        for call_id, item_id in _calls(item):
            unanswered[call_id] += 1
            item_ids[item_id] = call_id
        output = call_output(item)
        if output is None or not output.call_id:
            continue
        call_id = output.call_id if output.call_id in unanswered else item_ids.get(output.call_id, output.call_id)
        if unanswered[call_id] == 0:
            return f"No tool call found for the output with call_id {output.call_id}."
        unanswered[call_id] -= 1
    missing = [call_id for call_id, count in unanswered.items() if count]
    return f"No tool output found for the call {missing[0]}." if missing else None


def _calls(item: JsonObject) -> Iterator[tuple[str, str]]:
    if item.get("type") in CALL_TYPES or (as_text(item.get("type")).endswith("_call") and item.get("call_id")):
        yield as_text(item.get("call_id")), as_text(item.get("id"))
    for call in as_objects(item.get("tool_calls")):
        yield as_text(call.get("id")), ""
