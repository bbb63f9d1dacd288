"""Ready-made edits that imitate faults of real servers' streams, one function each. `step(..., edits=[...])`."""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence

from ferrule.testing.items import Item
from ferrule.testing.plain import JsonObject, as_object, as_objects, json_text
from ferrule.testing.sse import Edit, Event


def drop(*kinds: str) -> Edit:
    """Leave out every event of these kinds."""
    return lambda events: [event for event in events if event.kind not in kinds]


def change(kind: str, edit: Callable[[Item], JsonObject]) -> Edit:
    """Replace the payload of every event of this kind by `edit(payload)`, which gets its own copy."""

    def apply(events: Sequence[Event]) -> Iterator[Event]:
        for event in events:
            yield Event(kind, edit(_copy(event)), event.named) if event.kind == kind else event

    return apply


def insert(payload: JsonObject | str, *, before: str) -> Edit:
    """Send one more payload (a text is sent unchanged) before the first event of kind `before`, or at the end."""

    def apply(events: Sequence[Event]) -> list[Event]:
        named = isinstance(payload, dict) and isinstance(payload.get("type"), str)
        extra = Event(str(payload["type"]) if named and isinstance(payload, dict) else "inserted", payload, named)
        at = next((number for number, event in enumerate(events) if event.kind == before), len(events))
        return [*events[:at], extra, *events[at:]]

    return apply


def without_deltas(events: Sequence[Event]) -> Iterable[Event]:
    """Responses: texts and arguments are sent only whole, in their `done` events."""
    return [event for event in events if not event.kind.endswith(".delta")]


def without_item_done(events: Sequence[Event]) -> Iterable[Event]:
    """Responses: items are opened and never closed; only the final response contains them whole."""
    return drop("response.output_item.done")(events)


def without_item_added(events: Sequence[Event]) -> Iterable[Event]:
    """Responses: items are closed without having been opened."""
    return drop("response.output_item.added", "response.content_part.added")(events)


def empty_deltas(events: Sequence[Event]) -> Iterator[Event]:
    """All wires: an empty delta before every delta."""
    for event in events:
        if event.kind == "content_block_delta":
            yield Event(event.kind, _emptied(event), event.named)
        if event.kind.endswith(".delta"):
            yield Event(event.kind, {**_copy(event), "delta": ""}, event.named)
        elif event.kind in ("content", "tool_call"):
            yield _with_delta(event, lambda _delta: {})
        yield event


def without_response_id(events: Sequence[Event]) -> Iterable[Event]:
    """Responses: the response objects have no id. Chat: the chunks have none."""
    for event in events:
        if isinstance(event.data, str):
            yield event
            continue
        data = {key: value for key, value in event.data.items() if key != "id"}
        if "response" in data:
            data["response"] = {key: value for key, value in as_object(data["response"]).items() if key != "id"}
        yield Event(event.kind, data, event.named)


def same_index(events: Sequence[Event]) -> Iterable[Event]:
    """Chat: every parallel call has `index` 0."""
    return _each_call(events, lambda call: {**call, "index": 0})


def repeated_names(events: Sequence[Event]) -> Iterable[Event]:
    """Chat: id and name are in every delta of a call, not only in the first."""
    opened: dict[object, JsonObject] = {}

    def repeat(call: JsonObject) -> JsonObject:
        first = opened.setdefault(call["index"], call)
        return {**first, "function": {**as_object(first["function"]), **as_object(call["function"])}}

    return _each_call(events, repeat)


def ids_in_function(events: Sequence[Event]) -> Iterable[Event]:
    """Chat: the call's id is inside `function`."""

    def move(call: JsonObject) -> JsonObject:
        rest = {key: value for key, value in call.items() if key != "id"}
        inside = {"id": call["id"]} if "id" in call else {}
        return {**rest, "function": {**inside, **as_object(call["function"])}}

    return _each_call(events, move)


def null_arguments(events: Sequence[Event]) -> Iterable[Event]:
    """Chat: calls open with `arguments: null` where OpenAI sends an empty string."""

    def empty(call: JsonObject) -> JsonObject:
        function = as_object(call["function"])
        return {**call, "function": {**function, "arguments": function.get("arguments") or None}}

    return _each_call(events, empty)


def double_finish(events: Sequence[Event]) -> Iterator[Event]:
    """Chat: the chunk with the finish reason is sent twice, the second time with usage."""
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    for event in events:
        yield event
        if event.kind == "finish":
            yield Event("finish", {**_copy(event), "usage": usage})


def finish_reason(reason: str | None) -> Edit:
    """Chat: end with this finish reason, whatever the response contains."""

    def edit(data: Item) -> Item:
        return {**data, "choices": [{**choice, "finish_reason": reason} for choice in as_objects(data["choices"])]}

    return change("finish", edit)


def stop_reason(reason: str | None) -> Edit:
    """Messages: end with this stop reason, whatever the message contains."""
    return change("message_delta", lambda data: {**data, "delta": {**as_object(data["delta"]), "stop_reason": reason}})


def azure_frames(events: Sequence[Event]) -> Iterator[Event]:
    """Chat: a chunk without choices comes first, one with usage last, as Azure sends them."""
    yield Event("inserted", {"id": "", "object": "", "model": "", "choices": [], "prompt_filter_results": []})
    yield from insert({"choices": [], "usage": {"total_tokens": 5}}, before="done")(events)


# The edits that a script file can name.
NAMED: dict[str, Edit] = {
    edit.__name__: edit
    for edit in (
        without_deltas,
        without_item_done,
        without_item_added,
        empty_deltas,
        without_response_id,
        same_index,
        repeated_names,
        ids_in_function,
        null_arguments,
        double_finish,
        azure_frames,
    )
}


def _copy(event: Event) -> Item:
    """Return a copy of a payload, which can be changed without affecting other events."""
    if isinstance(event.data, str):
        return {}
    copied: Item = json.loads(json_text(event.data))
    return copied


def _emptied(event: Event) -> Item:
    """Return a delta of a content block without its text."""
    data = _copy(event)
    blank = {name: "" for name in ("text", "thinking", "partial_json") if name in as_object(data["delta"])}
    return {**data, "delta": {**as_object(data["delta"]), **blank}}


def _with_delta(event: Event, edit: Callable[[JsonObject], JsonObject]) -> Event:
    data = _copy(event)
    data["choices"] = [{**choice, "delta": edit(as_object(choice["delta"]))} for choice in as_objects(data["choices"])]
    return Event(event.kind, data)


def _each_call(events: Sequence[Event], edit: Callable[[JsonObject], JsonObject]) -> Iterator[Event]:
    def delta(given: JsonObject) -> JsonObject:
        return {**given, "tool_calls": [edit(call) for call in as_objects(given["tool_calls"])]}

    for event in events:
        yield _with_delta(event, delta) if event.kind == "tool_call" else event
