"""The Codex form of a tool: an object that runs invocations. A `ToolDefinition` is one."""

import threading
from collections.abc import Callable
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
from ferrule.tools.annotations import ToolAnnotations
from ferrule.tools.context import ToolContext, ToolInvocation
from ferrule.tools.effects import ToolEffect


class InputWatcher(Protocol):
    """A watcher of a call's input while it arrives (patch text, long arguments). It only informs the front end."""

    def feed(self, delta: str) -> Event | None:
        """Take more input; return an event if it produces one."""
        ...


class ToolHandler:
    """A handler of one tool's invocations. Subclass it for a bare handler, or write a `ToolDefinition`."""

    acts_through_context: bool = False
    """It acts only through `ctx.run`, where each act is approved. Otherwise dispatch has a call that `is_mutating`
    approved as a whole, by its `whole_effect`."""
    annotations: ToolAnnotations = ToolAnnotations()
    kind: ToolKind = ToolKind.FUNCTION
    """The payloads it serves."""

    def matches_kind(self, payload: ToolPayload) -> bool:
        """Return whether this handler can run the payload. Native items only reach handlers registered for them."""
        if self.kind is ToolKind.MCP:
            return isinstance(payload, McpPayload)
        return isinstance(payload, FunctionPayload | CustomPayload | NativePayload)

    def function_payload(self, arguments: str) -> ToolPayload:
        """Build the payload of a JSON call to this tool."""
        return FunctionPayload(arguments)

    def tool_input(self, payload: ToolPayload) -> JsonValue:
        """Return a call's input as hooks see it: decoded arguments, or the text of a freeform call. Raises
        `RespondToModel` if it cannot be parsed."""
        match payload:
            case CustomPayload(input=text):
                return text
            case FunctionPayload(arguments=raw) | McpPayload(raw_arguments=raw) | NativePayload(arguments=raw):
                return decode(raw) if raw.strip() else {}
        return msgspec.to_builtins(payload.params)

    async def is_mutating(self, invocation: ToolInvocation) -> bool:
        """Return whether the call might change the user's environment."""
        return False

    def asks_first(self, invocation: ToolInvocation) -> bool:
        """Return whether a call that acts through its context does nothing before its first `ctx.run`. What it asks can
        then be told without running it (`Toolset.question_of`)."""
        return False

    def whole_effect(self, invocation: ToolInvocation) -> ToolEffect:
        """Return what the user is asked about if the call is approved as a whole. Raises `RespondToModel` if its
        arguments are wrong."""
        decoded = invocation.decoded
        arguments = self.tool_input(invocation.payload) if decoded is msgspec.UNSET else decoded
        shown = msgspec.json.encode(arguments).decode()
        return ToolEffect(name=invocation.tool_name, arguments=shown, annotations=self.annotations)

    async def handle(self, invocation: ToolInvocation, ctx: ToolContext) -> ToolOutput:
        """Run the call. Raises `RespondToModel` with the model's text if there is no result."""
        raise NotImplementedError

    def failed(self, invocation: ToolInvocation, text: str) -> ToolOutput:
        """Return the answer to a call that came to nothing, with the model's text: one that a hook has blocked, or that
        has raised."""
        return ToolOutput(text, False)

    def input_watcher(self, call_id: str) -> InputWatcher | None:
        """Return a watcher of the call's input as it arrives, if the front end can use one."""
        return None

    async def close(self) -> None:
        """Release resources; called once, when the session ends."""


class DeferredHandler:
    """A handler that is created on first use, so that listing tools stays cheap."""

    __slots__ = ("_load", "_lock", "made")

    def __init__(self, load: Callable[[], ToolHandler]) -> None:
        self._load = load
        self._lock = threading.Lock()
        self.made: ToolHandler | None = None

    def get(self) -> ToolHandler:
        """Return the handler, always the same."""
        with self._lock:
            if self.made is None:
                self.made = self._load()
            return self.made
