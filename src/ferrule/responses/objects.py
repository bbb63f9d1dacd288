"""The response object, whole from its first event on. Source: `Response` of the Responses API, and Open Responses."""

from collections.abc import Sequence

import msgspec

from ferrule.hosted.network import without_values
from ferrule.protocol.json_text import JsonObject, JsonValue
from ferrule.responses.request import Known, ResponseRequest

_NOT_ECHOED = frozenset({"input", "stream", "stream_options", "include", "type", "stream_id", "generate"})
"""Fields of a request that say how to answer, not what the response is."""
_OURS = frozenset(
    {"id", "object", "created_at", "completed_at", "status", "error", "incomplete_details", "output", "usage"}
)
"""Fields of the object that a request cannot set."""
_NO_IMAGES: JsonObject = {
    "input_tokens": 0,
    "input_tokens_details": {"image_tokens": 0, "text_tokens": 0},
    "output_tokens": 0,
    "total_tokens": 0,
}
_TIERS = {"auto": "default", "fast": "priority"}
_KNOWN = frozenset(Known.__struct_fields__)


def response_object(
    request: ResponseRequest,
    *,
    response_id: str,
    created_at: int,
    model: str,
    tools: Sequence[JsonObject],
    choice: str | JsonObject,
) -> JsonObject:
    """Return the object of a response that begins. `tools` and `choice` are as they are echoed; `created_at` in Unix
    seconds."""
    known, given = request.known, request.given
    unknown = {name: value for name, value in given.items() if name not in _KNOWN | _NOT_ECHOED | _OURS}
    return without_values(unknown) | {
        "id": response_id,
        "object": "response",
        "created_at": created_at,
        "completed_at": None,
        "status": "queued" if request.background else "in_progress",
        "background": request.background,
        "conversation": None if request.conversation is None else {"id": request.conversation},
        "error": None,
        "incomplete_details": None,
        "instructions": known.instructions,
        "max_output_tokens": known.max_output_tokens,
        "max_tool_calls": known.max_tool_calls,
        "metadata": known.metadata or {},
        "model": model,
        "output": [],
        "parallel_tool_calls": known.parallel_tool_calls is not False,
        "previous_response_id": known.previous_response_id,
        "prompt": given.get("prompt"),
        "prompt_cache_key": known.prompt_cache_key,
        "reasoning": {"effort": None, "summary": None} | _object(given.get("reasoning")),
        "safety_identifier": known.safety_identifier,
        "service_tier": _TIERS.get(known.service_tier or "auto", known.service_tier),
        "store": request.store,
        "temperature": _or(known.temperature, 1.0),
        "text": {"format": _format(given), "verbosity": "medium"} | _object(_without_format(given.get("text"))),
        "tool_choice": choice,
        "tools": list(tools),
        "top_logprobs": known.top_logprobs or 0,
        "top_p": _or(known.top_p, 1.0),
        "presence_penalty": known.presence_penalty or 0.0,
        "frequency_penalty": known.frequency_penalty or 0.0,
        "truncation": known.truncation or "disabled",
        "usage": None,
        "user": known.user,
    }


def tool_usage(output: Sequence[JsonObject]) -> JsonObject:
    """Return the field that counts the searches of the web in an output; empty if there was none."""
    actions = [item.get("action") for item in output if item.get("type") == "web_search_call"]
    searches = [action for action in actions if isinstance(action, dict) and action.get("type") == "search"]
    if not searches:
        return {}
    queries = [action.get("queries") for action in searches]
    count = sum(len(found) if isinstance(found, list) and found else 1 for found in queries)
    return {"tool_usage": {"image_gen": _NO_IMAGES, "web_search": {"num_requests": count}}}


def _object(value: JsonValue) -> JsonObject:
    """Return the fields of an object that are not null."""
    return {name: entry for name, entry in value.items() if entry is not None} if isinstance(value, dict) else {}


def _or(value: float | None, default: float) -> float:
    return default if value is None else value


def _format(given: object) -> JsonObject:
    """Return the format of the answer with all its fields."""
    text = given.get("text") if isinstance(given, dict) else None
    form = _object(text.get("format")) if isinstance(text, dict) else {}
    if form.get("type") == "json_schema":
        return {"description": None, "strict": None} | form
    return form or {"type": "text"}


def _without_format(text: JsonValue) -> JsonValue:
    return {name: value for name, value in text.items() if name != "format"} if isinstance(text, dict) else text


def as_bytes(value: JsonValue) -> bytes:
    """Return a value as JSON."""
    return msgspec.json.encode(value)
