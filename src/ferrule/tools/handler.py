"""The Codex shape of a tool: something that runs invocations. A `ToolDefinition` is one."""

import threading
from typing import Protocol

import msgspec

from ferrule.protocol.events import Event
from ferrule.protocol.json_text import JsonValue, decode
from ferrule.protocol.payload import (
    CustomPayload,
    FunctionPayload,
    McpPayload,
    NativePayload,
    ToolKind,
    ToolOutput,
    ToolPayload,
)
from ferrule.tools.context import ToolContext, ToolInvocation


class InputWatcher(Protocol):
    """Follows the input of a call while it arrives (patch text, long arguments). It only tells the front end."""

    def feed(self, delta: str) -> Event | None:
        """Take more input; perhaps an event comes of it."""
        ...


class ToolHandler:
    """Runs the invocations of one tool. Subclass it for a bare handler, or write a `ToolDefinition`."""

    acts_through_context: bool = False
    """It acts by `ctx.run` alone, where each act is approved. Else a call that `is_mutating` is approved as a whole."""
    kind: ToolKind = ToolKind.FUNCTION
    """Which payloads it serves."""

    def matches_kind(self, payload: ToolPayload) -> bool:
        """Whether the payload has a shape that this handler can run. Native items come only to who is registered for
        them."""
        if self.kind is ToolKind.MCP:
            return isinstance(payload, McpPayload)
        return isinstance(payload, FunctionPayload | CustomPayload | NativePayload)

    def function_payload(self, arguments: str) -> ToolPayload:
        """The payload of a JSON call to this tool."""
        return FunctionPayload(arguments)

    def tool_input(self, payload: ToolPayload) -> JsonValue:
        """The input of a call as hooks see it: decoded arguments, or the text of a freeform call. Raises
        `RespondToModel` where it cannot be read."""
        match payload:
            case CustomPayload(input=text):
                return text
            case FunctionPayload(arguments=raw) | McpPayload(raw_arguments=raw) | NativePayload(arguments=raw):
                return decode(raw) if raw.strip() else {}
        return msgspec.to_builtins(payload.params)

    async def is_mutating(self, invocation: ToolInvocation) -> bool:
        """Whether the call might change the user's environment."""
        return False

    async def handle(self, invocation: ToolInvocation, ctx: ToolContext) -> ToolOutput:
        """Run the call. Raises `RespondToModel` with what the model should read instead of a result."""
        raise NotImplementedError

    def input_watcher(self, call_id: str) -> InputWatcher | None:
        """Something that follows the call's input as it arrives, if the front end can use that."""
        return None

    async def close(self) -> None:
        """Called once, when the session ends."""


class DeferredHandler:
    """Stands for a handler that is made when it is first needed, so that listing tools stays cheap."""

    __slots__ = ("_load", "_lock", "made")

    def __init__(self, load: "HandlerLoader") -> None:
        self._load = load
        self._lock = threading.Lock()
        self.made: ToolHandler | None = None

    def get(self) -> ToolHandler:
        """The handler, always the same."""
        with self._lock:
            if self.made is None:
                self.made = self._load()
            return self.made


class HandlerLoader(Protocol):
    """Makes a handler."""

    def __call__(self) -> ToolHandler: ...
