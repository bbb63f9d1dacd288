"""Test your own agent: a real model server on loopback that plays a script. See docs/testing.md."""

from ferrule.testing import defects
from ferrule.testing.delivery import Gate, RandomChunks, Stall
from ferrule.testing.items import (
    Item,
    apply_patch_call,
    custom_tool_call,
    function_call,
    local_shell_call,
    message,
    reasoning,
    refusal,
    shell_call,
)
from ferrule.testing.model import ScriptedModel
from ferrule.testing.request import Output, Request
from ferrule.testing.script import Script
from ferrule.testing.sse import Edit, Event, Framing
from ferrule.testing.steps import (
    Failed,
    Raw,
    ScriptError,
    Step,
    StreamError,
    Usage,
    hang_up,
    http_error,
    raw,
    step,
)

__all__ = [
    "Edit",
    "Event",
    "Failed",
    "Framing",
    "Gate",
    "Item",
    "Output",
    "RandomChunks",
    "Raw",
    "Request",
    "Script",
    "ScriptError",
    "ScriptedModel",
    "Stall",
    "Step",
    "StreamError",
    "Usage",
    "apply_patch_call",
    "custom_tool_call",
    "defects",
    "function_call",
    "hang_up",
    "http_error",
    "local_shell_call",
    "message",
    "raw",
    "reasoning",
    "refusal",
    "shell_call",
    "step",
]
