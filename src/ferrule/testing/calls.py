"""The calls of a script on wires that know functions only.

A custom tool call has the arguments `{"input": ...}`; `shell_call`, `local_shell_call` and `apply_patch_call` are calls
of `shell`, `local_shell` and `apply_patch` with the fields of their action or operation. A namespace stands before the
name with two underscores.
"""

import msgspec

from ferrule.testing.plain import JsonObject, as_object, as_text, json_text


class ToolCall(msgspec.Struct, frozen=True):
    """A function call; `arguments` is its text, JSON or not."""

    id: str
    name: str
    arguments: str


def called(item: JsonObject) -> ToolCall | None:
    """Return an item as a function call; None if it is no call of the client's."""
    kind = item["type"]
    name = "__".join(as_text(item[key]) for key in ("namespace", "name") if item.get(key))
    arguments: object
    if kind == "function_call":
        arguments = item.get("arguments")
    elif kind == "custom_tool_call":
        arguments = {"input": item.get("input")}
    elif kind in ("shell_call", "local_shell_call", "apply_patch_call"):
        name = str(kind).removesuffix("_call")
        fields = as_object(item.get("operation" if kind == "apply_patch_call" else "action"))
        arguments = {key: value for key, value in fields.items() if value is not None}
    else:
        return None
    text = arguments if isinstance(arguments, str) else json_text(arguments)
    return ToolCall(as_text(item.get("call_id")), name, text)
