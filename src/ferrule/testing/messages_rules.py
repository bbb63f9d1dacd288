"""What the Messages API refuses in a request, so that a test fails here and not in production.

Sources: the request types of its Python SDK 2.14, its documentation of tool use, thinking and prompt caching, and the
messages of its errors as users report them.
"""

import re
from collections.abc import Iterator, Mapping, Sequence

from ferrule.testing.plain import JsonObject, as_object, as_objects, as_text

MOST_BREAKPOINTS = 4
LEAST_BUDGET = 1024
_ID = re.compile(r"[a-zA-Z0-9_-]+")
_THOUGHTS = ("thinking", "redacted_thinking")


def complaints(body: JsonObject, headers: Mapping[str, str]) -> Iterator[str]:
    """Yield what is wrong with a request."""
    if "anthropic-version" not in {name.lower() for name in headers}:
        yield "anthropic-version: header is required"
    for field in ("model", "max_tokens", "messages"):
        if field not in body:
            yield f"{field}: Field required"
    messages = [(as_text(entry.get("role")), _content(entry)) for entry in as_objects(body.get("messages"))]
    if not messages:
        yield "messages: at least one message is required"
    for number, (role, blocks) in enumerate(messages):
        yield from _message(f"messages.{number}", role, blocks)
    yield from _pairing(messages)
    yield from _thinking(body, messages)
    yield from _breakpoints(body, messages)


def _content(entry: JsonObject) -> list[JsonObject]:
    said = entry.get("content")
    return [{"type": "text", "text": said}] if isinstance(said, str) else as_objects(said)


def _message(place: str, role: str, blocks: Sequence[JsonObject]) -> Iterator[str]:
    if role not in ("user", "assistant"):
        yield f"{place}: Unexpected role {role!r}. Allowed roles are 'user' and 'assistant'."
    if not blocks:
        yield f"{place}: all messages must have non-empty content"
    for number, block in enumerate(blocks):
        yield from _block(f"{place}.content.{number}", role, block)
    kinds = [block.get("type") for block in blocks]
    if role == "user" and "tool_result" in kinds[len([kind for kind in kinds if kind == "tool_result"]) :]:
        yield f"{place}: `tool_result` blocks must stand before everything else"
    if role == "assistant" and kinds and kinds[-1] in _THOUGHTS:
        yield f"{place}: The final block in an assistant message cannot be `{kinds[-1]}`."


def _block(place: str, role: str, block: JsonObject) -> Iterator[str]:
    kind = block.get("type")
    if kind == "text" and not as_text(block.get("text")).strip():
        yield f"{place}: text content blocks must be non-empty"
    if kind == "thinking" and not as_text(block.get("signature")):
        yield f"{place}.thinking.signature: Field required"
    if (kind in ("tool_use", *_THOUGHTS) and role != "assistant") or (kind == "tool_result" and role != "user"):
        yield f"{place}: `{kind}` blocks can not stand in a message of the role {role!r}"
    if kind == "tool_use" and not isinstance(block.get("input"), Mapping):
        yield f"{place}.tool_use.input: Input should be a valid dictionary"
    for field in ("id", "tool_use_id"):
        if field in block and not _ID.fullmatch(as_text(block[field])):
            yield f"{place}.{kind}.{field}: String should match pattern '^[a-zA-Z0-9_-]+$'"
    if kind == "tool_result":
        parts = as_objects(block.get("content"))
        if block.get("is_error") and any(part.get("type") != "text" for part in parts):
            yield f'{place}.tool_result: all content must be type "text" if "is_error" is true'
        for number, part in enumerate(parts):
            yield from _block(f"{place}.tool_result.content.{number}", role, part)


def _pairing(messages: Sequence[tuple[str, list[JsonObject]]]) -> Iterator[str]:
    """Every call has its result in the next message, and nothing else has one."""
    seen: set[str] = set()
    open_ids: list[str] = []
    for number, (_, blocks) in enumerate(messages):
        results = [as_text(block.get("tool_use_id")) for block in blocks if block.get("type") == "tool_result"]
        for lost in [call_id for call_id in open_ids if call_id not in results]:
            yield (
                f"messages.{number - 1}: `tool_use` ids were found without `tool_result` blocks immediately after: "
                f"{lost}. Each `tool_use` block must have a corresponding `tool_result` block in the next message."
            )
        for result in results:
            if result not in open_ids or results.count(result) > 1:
                yield (
                    f"messages.{number}: unexpected `tool_use_id` found in `tool_result` blocks: {result}. Each "
                    "`tool_result` block must have a corresponding `tool_use` block in the previous message."
                )
        open_ids = [as_text(block.get("id")) for block in blocks if block.get("type") == "tool_use"]
        for call_id in open_ids:
            if call_id in seen:
                yield f"messages.{number}: `tool_use` ids must be unique: {call_id}"
            seen.add(call_id)
    if open_ids:
        yield f"messages.{len(messages) - 1}: `tool_use` ids were found without `tool_result` blocks: {open_ids[0]}"


def _thinking(body: JsonObject, messages: Sequence[tuple[str, list[JsonObject]]]) -> Iterator[str]:
    thinking, forced = as_object(body.get("thinking")), as_object(body.get("tool_choice")).get("type")
    if thinking.get("type") not in ("enabled", "adaptive"):
        return
    if forced in ("any", "tool"):
        yield "Thinking may not be enabled when tool_choice forces tool use."
    if body.get("temperature", 1) != 1:
        yield "`temperature` may only be set to 1 when thinking is enabled."
    budget, limit = thinking.get("budget_tokens"), body.get("max_tokens")
    if thinking["type"] == "enabled" and not isinstance(budget, int):
        yield "thinking.enabled.budget_tokens: Field required"
    if isinstance(budget, int) and (budget < LEAST_BUDGET or (isinstance(limit, int) and budget >= limit)):
        yield "thinking.enabled.budget_tokens: must be at least 1024 and less than `max_tokens`"
    if thinking["type"] == "enabled" and (began := _turn_of_calls(messages)) and began[0].get("type") not in _THOUGHTS:
        yield (
            f"Expected `thinking` or `redacted_thinking`, but found `{began[0].get('type')}`. When `thinking` is "
            "enabled, a final `assistant` message must start with a thinking block."
        )


def _turn_of_calls(messages: Sequence[tuple[str, list[JsonObject]]]) -> list[JsonObject]:
    """Return the last assistant message, if what follows it are results of its calls."""
    if len(messages) < 2 or messages[-1][0] != "user" or messages[-2][0] != "assistant":
        return []
    return messages[-2][1] if any(block.get("type") == "tool_result" for block in messages[-1][1]) else []


def _breakpoints(body: JsonObject, messages: Sequence[tuple[str, list[JsonObject]]]) -> Iterator[str]:
    blocks = [*as_objects(body.get("tools")), *as_objects(body.get("system")), body]
    blocks += [block for _, said in messages for block in said]
    blocks += [part for _, said in messages for block in said for part in as_objects(block.get("content"))]
    marked = [block for block in blocks if block.get("cache_control")]
    if len(marked) > MOST_BREAKPOINTS:
        yield f"A maximum of {MOST_BREAKPOINTS} blocks with cache_control may be provided. Found {len(marked)}."
    if any(block.get("type") in _THOUGHTS for block in marked):
        yield "cache_control cannot be set for `thinking` blocks"
