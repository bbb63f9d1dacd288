"""Hooks that can inspect and change a call before and after it runs. The session supplies them."""

from typing import Protocol

import msgspec

from ferrule.protocol.json_text import JsonValue
from ferrule.protocol.payload import ToolOutput
from ferrule.tools.context import ToolContext, ToolInvocation


class BeforeTool(msgspec.Struct, frozen=True):
    """The hooks' verdict before a call. `block`: why it must not run. `tool_input`: the input to use instead."""

    block: str | None = None
    tool_input: JsonValue = msgspec.UNSET


class AfterTool(msgspec.Struct, frozen=True):
    """The hooks' verdict after a call. `output` replaces the text that the model reads."""

    output: str | None = None


class ToolHooks(Protocol):
    """The hooks of a session. `tool_input` is the decoded arguments, or the text of a freeform call."""

    async def before(self, invocation: ToolInvocation, tool_input: JsonValue, ctx: ToolContext) -> BeforeTool: ...

    async def after(
        self, invocation: ToolInvocation, tool_input: JsonValue, output: ToolOutput, ctx: ToolContext
    ) -> AfterTool: ...
