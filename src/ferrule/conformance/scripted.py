"""A scripted model behind the server under test: it does what each check asks of any model, at once and for free."""

import re
from secrets import token_hex
from typing import Any

import msgspec

from ferrule.testing import (
    ScriptedModel,
    Stall,
    apply_patch_call,
    custom_tool_call,
    function_call,
    local_shell_call,
    shell_call,
    step,
)
from ferrule.testing.request import Request, call_outputs
from ferrule.testing.steps import Simple, Usage

_EXACTLY = re.compile(r"exactly: (.*)")
_WORD = re.compile(r"My word is (\w+)")
HELD_S = 600.0
"""Seconds that a long answer stands still: until it is cancelled."""
USAGE = Usage(input_tokens=12, output_tokens=3)


def scripted_model(port: int = 0) -> ScriptedModel:
    """Return the model; `port` 0 takes a free one."""
    return ScriptedModel(says, port=port, strict=False)


def says(request: Request) -> Simple:
    """Answer as an obedient model does."""
    text = request.user_text
    last = text.rpartition("\n")[2]
    tool = _forced(request.body)
    answered = bool(call_outputs(request.items[-1]))
    if tool is not None and not answered and (wanted := _EXACTLY.findall(text)):
        return step(_call(tool, wanted[-1]), usage=USAGE)
    if "Which word" in last and (word := _WORD.search(text)):
        return step(word[1], usage=USAGE)
    if "Count from 1 to 2000" in last:
        return step("one\ntwo\n", delta_chars=4, stall=Stall(at="one", seconds=HELD_S))
    return step(_EXACTLY.findall(last)[-1] if "exactly: " in last else "Yes, indeed.", usage=USAGE)


def _forced(body: Any) -> dict[str, Any] | None:
    """Return the only tool, if the model has to call one."""
    tools, choice = body.get("tools") or [], body.get("tool_choice")
    named = choice.get("type") if isinstance(choice, dict) else choice  # the Messages wire has an object for each
    return tools[0] if tools and named not in (None, "auto", "none") else None


def _call(tool: dict[str, Any], wanted: str) -> Any:
    kind = tool.get("type", "function")
    if kind == "namespace":
        return function_call(tool["tools"][0]["name"], wanted, namespace=tool["name"])
    if kind == "custom":
        return custom_tool_call(tool["name"], wanted)
    if kind == "tool_search":
        return {"type": "tool_search_call", "execution": "client", "arguments": msgspec.json.decode(wanted)}
    if kind in _NATIVE:
        return _native(kind, msgspec.json.decode(wanted))
    name = tool["name"] if "name" in tool else tool.get("function", {}).get("name", kind)
    return function_call(name, wanted if wanted.startswith("{") else {"input": wanted})


_NATIVE = ("apply_patch", "shell", "local_shell", "computer", "computer_use_preview")


def _native(kind: str, wanted: dict[str, Any]) -> Any:
    """Return the call of a tool that the upstream was sent as it is."""
    match kind:
        case "apply_patch":
            return apply_patch_call(wanted["type"], wanted["path"], wanted.get("diff"))
        case "shell":
            return shell_call(wanted["commands"])
        case "local_shell":
            return local_shell_call(wanted["command"])
    screen = wanted if kind == "computer" else {"action": wanted}
    return {"type": "computer_call", "call_id": f"call_{token_hex(8)}", "pending_safety_checks": [], **screen}
