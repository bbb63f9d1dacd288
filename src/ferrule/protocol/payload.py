"""How a tool was invoked, and what it answers."""

from enum import StrEnum

import msgspec

from ferrule.protocol.content import InputText, text_of
from ferrule.protocol.items import (
    ApplyPatchCallOutput,
    CustomToolCallOutput,
    FunctionCallOutput,
    LocalShellCallOutput,
    OutputBody,
    ResponseInputItem,
    ShellCallOutput,
    ShellCommandOutput,
    ShellExit,
    ToolSearchOutput,
    make_item,
)


class ToolKind(StrEnum):
    """Which payloads a handler serves."""

    FUNCTION = "function"
    MCP = "mcp"


class ShellToolCallParams(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a shell call asks for: the argv, its directory, its limit in milliseconds, and its permissions."""

    command: tuple[str, ...]
    workdir: str | None = None
    timeout_ms: int | None = None
    env: dict[str, str] | None = None
    sandbox_permissions: str | None = None
    with_escalated_permissions: bool | None = None
    justification: str | None = None
    prefix_rule: tuple[str, ...] | None = None


class FunctionPayload(msgspec.Struct, frozen=True):
    """A JSON function call; `arguments` is the raw text from the model."""

    arguments: str


class CustomPayload(msgspec.Struct, frozen=True):
    """A freeform call; `input` is the raw text."""

    input: str


class LocalShellPayload(msgspec.Struct, frozen=True):
    """A `local_shell_call`."""

    params: ShellToolCallParams


class McpPayload(msgspec.Struct, frozen=True):
    """A call of a tool of an MCP server."""

    server: str
    tool: str
    raw_arguments: str


class NativePayload(msgspec.Struct, frozen=True):
    """A native item (`shell_call`, `apply_patch_call`, `tool_search_call`); `arguments` is its action as JSON."""

    item_type: str
    arguments: str


ToolPayload = FunctionPayload | CustomPayload | LocalShellPayload | McpPayload | NativePayload
NativeOutput = ShellCallOutput | ApplyPatchCallOutput | ToolSearchOutput


ABORTED = "aborted"
"""What the model reads of a call that was cut off before it answered: servers refuse a call without an answer."""

NO_OUTPUT = "(no output)"
"""What the model reads of an answer without a word in it: some servers refuse an empty one."""


class ToolOutput(msgspec.Struct, frozen=True):
    """What a tool answers. `success` is for the front end; the model reads only the body.

    `bounded` says that the tool kept the output budget itself; dispatch cuts what is not. `ends_turn`: the model is not
    asked again, and the text is its last word.
    """

    body: OutputBody | NativeOutput
    success: bool | None = None
    bounded: bool = False
    ends_turn: bool = False

    @property
    def text(self) -> str:
        """The textual parts of the body, for people and for hooks."""
        body = self.body
        return text_of(body) if isinstance(body, (str, tuple)) else msgspec.json.encode(body).decode()

    def into_response(self, call_id: str, payload: ToolPayload) -> ResponseInputItem:
        """The item that answers the call, in the form that its payload asks for."""
        body = self.body
        if not isinstance(body, (str, tuple)):
            return make_item(body)
        body = _never_empty(body)
        if isinstance(payload, (FunctionPayload, McpPayload)):
            return make_item(FunctionCallOutput(call_id=call_id, output=body))
        if isinstance(payload, CustomPayload):
            return make_item(CustomToolCallOutput(call_id=call_id, output=body))
        if isinstance(payload, LocalShellPayload):
            return make_item(LocalShellCallOutput(id=call_id, call_id=call_id, output=text_of(body)))
        return make_item(_native_text(call_id, payload.item_type, text_of(body), failed=self.success is False))


def _never_empty(body: OutputBody) -> OutputBody:
    """The body without blank texts; a note where nothing is left."""
    if isinstance(body, str):
        return NO_OUTPUT if not body or body.isspace() else body
    kept = tuple(part for part in body if not (isinstance(part, InputText) and not part.text.strip()))
    return kept or NO_OUTPUT


def _native_text(call_id: str, item_type: str, text: str, *, failed: bool) -> NativeOutput:
    """A text (mostly an error) as the answer to a native call."""
    if item_type == "shell_call":
        outcome = ShellExit(exit_code=1 if failed else 0)
        return ShellCallOutput(call_id=call_id, output=(ShellCommandOutput("", text, outcome),))
    if item_type == "tool_search_call":
        return ToolSearchOutput(call_id=call_id, execution="client", status="completed")
    return ApplyPatchCallOutput(call_id=call_id, status="failed" if failed else "completed", output=text)
