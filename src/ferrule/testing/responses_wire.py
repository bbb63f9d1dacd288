"""The Responses wire: turns completed items into stream events and the response object.

Event order and fields follow the OpenAI Responses API as typed by its Python SDK 3.57.
"""

import time
from collections.abc import Callable, Sequence

from ferrule.testing.items import Item
from ferrule.testing.plain import JsonObject, as_object, as_objects, as_text, slices
from ferrule.testing.sse import DONE, Event
from ferrule.testing.steps import Failed, Step, StreamError, Usage

# Request fields that the response object repeats, with the API's defaults.
_ECHOED: JsonObject = {
    "background": False,
    "frequency_penalty": 0.0,
    "instructions": None,
    "max_output_tokens": None,
    "max_tool_calls": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "presence_penalty": 0.0,
    "previous_response_id": None,
    "prompt_cache_key": None,
    "reasoning": {"effort": None, "summary": None},
    "safety_identifier": None,
    "service_tier": "default",
    "store": True,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_logprobs": 0,
    "top_p": 1.0,
    "truncation": "disabled",
}


def response_object(body: JsonObject, response_id: str, step: Step, output: Sequence[Item], usage: Usage) -> Item:
    """Build the final response object, which answers a request without `stream`."""
    status, error, incomplete = "completed", None, None
    if isinstance(step.end, Failed):
        status, error = "failed", {"code": step.end.code, "message": step.end.message}
    elif step.end in ("max_output_tokens", "content_filter"):
        status, incomplete = "incomplete", {"reason": step.end}
    now = int(time.time())
    return {
        "id": response_id,
        "object": "response",
        "created_at": now,
        "status": status,
        "completed_at": now if status == "completed" else None,
        "error": error,
        "incomplete_details": incomplete,
        "model": body.get("model"),
        "output": list(output),
        "usage": None if status == "failed" else usage_object(usage),
        **{key: default if body.get(key) is None else body[key] for key, default in _ECHOED.items()},
    }


def usage_object(usage: Usage) -> Item:
    """Return token counts in the spelling of the Responses API."""
    return {
        "input_tokens": usage.input_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": usage.written_tokens},
        "output_tokens": usage.output_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.input_tokens + usage.output_tokens,
    }


def stream(final: JsonObject, step: Step) -> list[Event]:
    """Return every event from `response.created` to `[DONE]` that leads to the response object `final`."""
    out = _Stream(step.delta_chars)
    started = {**final, "status": "in_progress", "completed_at": None, "error": None, "output": [], "usage": None}
    started["incomplete_details"] = None
    out.add("response.created", response=started)
    out.add("response.in_progress", response=started)
    for index, item in enumerate(as_objects(final["output"])):
        out.item(index, item)
    if isinstance(step.end, StreamError):
        out.error(step.end)
    elif step.end != "missing":
        out.add(f"response.{final['status']}", response=final)
        out.events.append(DONE)
    return out.events


class _Stream:
    """A numbered list of events."""

    def __init__(self, delta_chars: int) -> None:
        self.events: list[Event] = []
        self._delta_chars = delta_chars

    def add(self, kind: str, **fields: object) -> None:
        self.events.append(Event(kind, {"type": kind, "sequence_number": len(self.events), **fields}, named=True))

    def error(self, error: StreamError) -> None:
        if error.nested:
            self.add("error", error=error.fields())
        else:
            self.add("error", **{"param": None, **error.fields(), "type": "error"})

    def item(self, index: int, item: JsonObject) -> None:
        """Add the events of one item, from added to done."""
        kind = as_text(item["type"])
        opened = dict(item)
        if "status" in item:
            opened["status"] = "in_progress"
        body = _BODIES.get(kind)
        if body is not None:
            opened |= body.emptied(item)
        self.add("response.output_item.added", output_index=index, item=opened)
        if body is not None:
            body.play(_Place(self, index, as_text(item.get("id"))), item)
        self.add("response.output_item.done", output_index=index, item=item)

    def deltas(self, text: str) -> list[str]:
        return slices(text, self._delta_chars)


class _Place:
    """The position of an event: adds `item_id` and `output_index` to each."""

    def __init__(self, out: _Stream, index: int, item_id: str) -> None:
        self._out = out
        self._fields = {"item_id": item_id, "output_index": index}

    def add(self, kind: str, **fields: object) -> None:
        self._out.add(f"response.{kind}", **self._fields, **fields)

    def add_without_id(self, kind: str, **fields: object) -> None:
        self._out.add(f"response.{kind}", output_index=self._fields["output_index"], **fields)

    def text(self, kind: str, value: str, done_key: str, **fields: object) -> None:
        """Add `KIND.delta` for each piece, then `KIND.done` with the whole under `done_key`."""
        for piece in self._out.deltas(value):
            self.add(f"{kind}.delta", delta=piece, **fields)
        self.add(f"{kind}.done", **{done_key: value}, **fields)

    def command(self, number: int, line: str) -> None:
        self.add_without_id("shell_call_command.added", command_index=number, command="")
        for piece in self._out.deltas(line):
            self.add_without_id("shell_call_command.delta", command_index=number, delta=piece)
        self.add_without_id("shell_call_command.done", command_index=number, command=line)


class _Body:
    """The part of an item streamed between `added` and `done`, and the item's form before that."""

    def __init__(self, emptied: Callable[[JsonObject], Item], play: Callable[[_Place, JsonObject], None]) -> None:
        self.emptied = emptied
        self.play = play


def _message(place: _Place, item: JsonObject) -> None:
    for number, part in enumerate(as_objects(item.get("content"))):
        is_text = part.get("type") == "output_text"
        blank = {"text": "", "annotations": []} if is_text else {"refusal": ""}
        place.add("content_part.added", content_index=number, part={**part, **blank})
        if is_text:
            place.text("output_text", as_text(part.get("text")), "text", content_index=number, logprobs=[])
            for at, note in enumerate(as_objects(part.get("annotations"))):
                place.add("output_text.annotation.added", content_index=number, annotation_index=at, annotation=note)
        else:
            place.text("refusal", as_text(part.get("refusal")), "refusal", content_index=number)
        place.add("content_part.done", content_index=number, part=part)


def _reasoning(place: _Place, item: JsonObject) -> None:
    for number, part in enumerate(as_objects(item.get("summary"))):
        place.add("reasoning_summary_part.added", summary_index=number, part={**part, "text": ""})
        place.text("reasoning_summary_text", as_text(part.get("text")), "text", summary_index=number)
        place.add("reasoning_summary_part.done", summary_index=number, part=part)
    for number, part in enumerate(as_objects(item.get("content"))):
        place.text("reasoning_text", as_text(part.get("text")), "text", content_index=number)


def _function(place: _Place, item: JsonObject) -> None:
    place.text("function_call_arguments", as_text(item.get("arguments")), "arguments")


def _custom(place: _Place, item: JsonObject) -> None:
    place.text("custom_tool_call_input", as_text(item.get("input")), "input")


def _shell(place: _Place, item: JsonObject) -> None:
    lines = as_object(item.get("action")).get("commands")
    for number, line in enumerate(lines if isinstance(lines, list) else []):
        place.command(number, as_text(line))


def _code(place: _Place, item: JsonObject) -> None:
    place.add("code_interpreter_call.in_progress")
    place.text("code_interpreter_call_code", as_text(item.get("code")), "code")
    place.add("code_interpreter_call.interpreting")
    place.add("code_interpreter_call.completed")


def _mcp_call(place: _Place, item: JsonObject) -> None:
    place.add("mcp_call.in_progress")
    place.text("mcp_call_arguments", as_text(item.get("arguments")), "arguments")
    place.add("mcp_call.failed" if item.get("error") else "mcp_call.completed")


def _stages(*kinds: str) -> Callable[[_Place, JsonObject], None]:
    def play(place: _Place, _item: JsonObject) -> None:
        for kind in kinds:
            place.add(kind)

    return play


def _nothing(_item: JsonObject) -> Item:
    return {}


def _without(**blank: object) -> Callable[[JsonObject], Item]:
    return lambda item: {key: value for key, value in blank.items() if key in item}


_BODIES = {
    "message": _Body(_without(content=[]), _message),
    "reasoning": _Body(_without(summary=[], content=[]), _reasoning),
    "function_call": _Body(_without(arguments=""), _function),
    "custom_tool_call": _Body(_without(input=""), _custom),
    "shell_call": _Body(lambda item: {"action": {**as_object(item.get("action")), "commands": []}}, _shell),
    "code_interpreter_call": _Body(_without(code="", outputs=None), _code),
    "mcp_call": _Body(_without(arguments="", output=None), _mcp_call),
    "mcp_list_tools": _Body(_without(tools=[]), _stages("mcp_list_tools.in_progress", "mcp_list_tools.completed")),
    "web_search_call": _Body(
        _nothing, _stages(*(f"web_search_call.{stage}" for stage in ("in_progress", "searching", "completed")))
    ),
    "file_search_call": _Body(
        _nothing, _stages(*(f"file_search_call.{stage}" for stage in ("in_progress", "searching", "completed")))
    ),
    "image_generation_call": _Body(
        _without(result=None),
        _stages(*(f"image_generation_call.{stage}" for stage in ("in_progress", "generating", "completed"))),
    ),
}
