"""The model behind the gateway. A client's prompt says what it does.

`use A, B` calls one tool after the other, each when the one before it has its output; `hold` begins and never ends;
anything else is repeated. With a JSON format it answers by that.
"""

import json
import re
from typing import Any

from ferrule.testing import Stall, custom_tool_call, function_call, reasoning, step
from ferrule.testing.items import apply_patch_call, local_shell_call, shell_call
from ferrule.testing.request import Request, call_output, content_text
from ferrule.testing.steps import Simple

HELD = 600.0
"""Seconds that a held answer stands still: longer than any client waits."""

PATCH = "*** Begin Patch\n*** Update File: a.txt\n@@\n-one\n+two\n*** Add File: new.txt\n+new\n*** End Patch\n"
FREEFORM = {"apply_patch": PATCH, "shout": "hello"}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "get_weather": {"city": "Rome"},
    "mcp__docs__echo": {"text": "plum"},
    "exec_command": {"cmd": "cat a.txt; echo ran > ran.txt"},
    "shell": {"commands": ["echo one", "echo two"]},
    "file_search": {"queries": ["which fruit ripens in August"]},
    "python": {"code": "print(6 * 7)"},
    "local_shell": {"command": ["echo", "hi"]},
    "apply_patch": {"type": "update_file", "path": "a.txt", "diff": "@@\n-one\n+two\n"},
    "computer": {"actions": [{"type": "screenshot"}, {"type": "click", "x": 3, "y": 4, "button": "left"}]},
}
SCRIPTS = {"read_skill": "cat /mnt/skills/*/words.txt", "make_file": "echo 7 > made.txt", "read_file": "cat made.txt"}
"""Commands that have names of their own: the shell is called with them."""
JSON_ANSWER = {"city": "Rome", "degrees": 21}
_PROMPT = re.compile(r"^(use|say|hold)\b ?(.*)", re.MULTILINE)
"""A line of a message: an upstream may get several messages as one."""


def says(request: Request) -> Simple:
    """Return what the model answers."""
    verb, rest, outputs = _asked(request)
    if verb == "hold":
        return step("Wait for it", delta_chars=4, stall=Stall(at="Wait", seconds=HELD))
    wanted = re.findall(r"\w+", rest) if verb == "use" else []
    if len(outputs) < len(wanted):
        return step(reasoning("I need a tool."), "I look.", _call(request, wanted[len(outputs)]))
    if _wants_json(request):
        return json.dumps(JSON_ANSWER)
    return f"Done: {outputs[-1]}" if outputs else f"You said: {rest}"


def _asked(request: Request) -> tuple[str, str, list[str]]:
    """Return the last prompt, split into its verb and the rest, and the outputs of tools since."""
    verb, rest, outputs = "say", "nothing", list[str]()
    for item in request.items:
        prompts = _PROMPT.findall(content_text(item.get("content"))) if item.get("role") == "user" else []
        if prompts:
            (verb, rest), outputs = prompts[-1], []
        elif (output := call_output(item)) is not None:
            outputs.append(output.text)
    return verb, rest, outputs


def _wants_json(request: Request) -> bool:
    form = request.body.get("response_format")
    text = request.body.get("text")
    form = text.get("format") if isinstance(text, dict) else form
    return isinstance(form, dict) and form.get("type") == "json_schema"


def _call(request: Request, name: str) -> dict[str, object]:
    """Return the call of a tool in the form in which the request offers it."""
    if name in SCRIPTS:
        return function_call("shell", {"commands": [SCRIPTS[name]]})
    tool = next((tool for tool in _tools(request) if name in (tool.get("name"), tool.get("type"))), {})
    if tool.get("type") == "custom":
        return custom_tool_call(name, FREEFORM[name])
    if tool.get("type") == name:
        return _native(name)
    fields = tool.get("parameters", {}).get("properties", {})
    return function_call(name, {"input": FREEFORM[name]} if list(fields) == ["input"] else ARGUMENTS[name])


def _tools(request: Request) -> list[dict[str, Any]]:
    given: list[dict[str, Any]] = request.body.get("tools") or []  # type: ignore[assignment]
    return [tool.get("function", tool) for tool in given]


def _native(name: str) -> dict[str, object]:
    given = ARGUMENTS[name]
    match name:
        case "shell":
            return shell_call(given["commands"])
        case "local_shell":
            return local_shell_call(given["command"])
        case "apply_patch":
            return apply_patch_call(given["type"], given["path"], given["diff"])
    return {"type": f"{name}_call", "pending_safety_checks": [], **given}
