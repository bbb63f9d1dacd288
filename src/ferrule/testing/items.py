"""The output items of a script, as plain dicts in the shape of the Responses API.

A key that a helper or a script leaves out (`id`, `call_id`, `status`) is filled in when the item is played.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from ferrule.testing.plain import JsonObject, json_text

Item = dict[str, object]

# Client-side calls: the client answers each with an output that carries its `call_id`.
CALL_TYPES = frozenset(
    {"function_call", "custom_tool_call", "shell_call", "local_shell_call", "apply_patch_call", "computer_call"}
)

_ID_PREFIXES = {
    "message": "msg",
    "reasoning": "rs",
    "function_call": "fc",
    "custom_tool_call": "ctc",
    "shell_call": "sh",
    "shell_call_output": "sho",
    "local_shell_call": "lsh",
    "apply_patch_call": "apc",
    "computer_call": "cu",
    "web_search_call": "ws",
    "file_search_call": "fs",
    "code_interpreter_call": "ci",
    "image_generation_call": "ig",
    "mcp_call": "mcp",
    "mcp_list_tools": "mcpl",
    "mcp_approval_request": "mcpr",
    "tool_search_call": "tsc",
    "tool_search_output": "tso",
    "compaction": "cmp",
}
_WITHOUT_STATUS = frozenset(
    {"reasoning", "custom_tool_call", "mcp_list_tools", "mcp_approval_request", "compaction", "program"}
)


def message(text: str, *, phase: str | None = None, **fields: object) -> Item:
    """Build an assistant message with one `output_text` part. `phase` is `commentary` or `final_answer`."""
    item: Item = {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}],
    }
    return item | ({"phase": phase} if phase else {}) | fields


def refusal(text: str, **fields: object) -> Item:
    """Build an assistant message with one `refusal` part."""
    content = [{"type": "refusal", "refusal": text}]
    return {"type": "message", "role": "assistant", "content": content} | fields


def reasoning(
    summary: str | Sequence[str] = (),
    *,
    text: str | None = None,
    encrypted_content: str | None = None,
    **fields: object,
) -> Item:
    """Build a reasoning item: summary parts, optional raw reasoning `text`, optional `encrypted_content`."""
    parts = [summary] if isinstance(summary, str) else summary
    item: Item = {"type": "reasoning", "summary": [{"type": "summary_text", "text": part} for part in parts]}
    if text is not None:
        item["content"] = [{"type": "reasoning_text", "text": text}]
    if encrypted_content is not None:
        item["encrypted_content"] = encrypted_content
    return item | fields


def function_call(
    name: str, arguments: JsonObject | str = "{}", *, call_id: str | None = None, **fields: object
) -> Item:
    """Build a function call. An `arguments` string is sent exactly as it is, valid JSON or not."""
    text = arguments if isinstance(arguments, str) else json_text(arguments)
    return _call({"type": "function_call", "name": name, "arguments": text}, call_id, fields)


def custom_tool_call(name: str, input: str, *, call_id: str | None = None, **fields: object) -> Item:  # noqa: A002 (the wire's name)
    """Build a call of a freeform tool with its raw input text."""
    return _call({"type": "custom_tool_call", "name": name, "input": input}, call_id, fields)


def shell_call(
    commands: str | Sequence[str],
    *,
    timeout_ms: int | None = None,
    max_output_length: int | None = None,
    call_id: str | None = None,
    **fields: object,
) -> Item:
    """Build a call of the native `shell` tool: one or more command lines for the local environment."""
    lines = [commands] if isinstance(commands, str) else list(commands)
    action = {"commands": lines, "timeout_ms": timeout_ms, "max_output_length": max_output_length}
    return _call({"type": "shell_call", "action": action, "environment": {"type": "local"}}, call_id, fields)


def local_shell_call(
    command: Sequence[str],
    *,
    working_directory: str | None = None,
    env: Mapping[str, str] | None = None,
    timeout_ms: int | None = None,
    call_id: str | None = None,
    **fields: object,
) -> Item:
    """Build a call of the native `local_shell` tool: one argument vector."""
    action: Item = {"type": "exec", "command": list(command), "env": dict(env or {})}
    if working_directory is not None:
        action["working_directory"] = working_directory
    if timeout_ms is not None:
        action["timeout_ms"] = timeout_ms
    return _call({"type": "local_shell_call", "action": action}, call_id, fields)


def apply_patch_call(
    operation: str, path: str, diff: str | None = None, *, call_id: str | None = None, **fields: object
) -> Item:
    """Build a call of the native `apply_patch` tool: `create_file`, `update_file` (with `diff`) or `delete_file`."""
    body = {"type": operation, "path": path} | ({} if diff is None else {"diff": diff})
    return _call({"type": "apply_patch_call", "operation": body}, call_id, fields)


def _call(item: Item, call_id: str | None, fields: JsonObject) -> Item:
    return item | ({} if call_id is None else {"call_id": call_id}) | dict(fields)


def complete(items: Iterable[JsonObject], new_id: Callable[[str], str], *, cut_short: bool = False) -> list[Item]:
    """Complete the items for sending: ids and call ids from `new_id(prefix)`, each with its final status.

    `cut_short` marks the last one as `incomplete`: the response ended inside it.
    """
    finished = [_complete(item, new_id) for item in items]
    if cut_short and finished and "status" in finished[-1]:
        finished[-1]["status"] = "incomplete"
    return finished


def _complete(given: JsonObject, new_id: Callable[[str], str]) -> Item:
    kind = str(given["type"])
    item: Item = {"type": kind}
    if "id" not in given:
        item["id"] = new_id(_ID_PREFIXES.get(kind, "item"))
    if "call_id" not in given and (
        kind in CALL_TYPES or (kind, given.get("execution")) == ("tool_search_call", "client")
    ):
        item["call_id"] = new_id("call")
    if "status" not in given and kind not in _WITHOUT_STATUS:
        item["status"] = "completed"
    return item | dict(given)
