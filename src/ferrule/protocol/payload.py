"""How a tool was invoked, and what it answers."""

from enum import StrEnum

import msgspec

from ferrule.protocol.content import InputImage, InputText, text_of
from ferrule.protocol.items import (
    ApplyPatchCallOutput,
    ComputerCallOutput,
    CustomToolCallOutput,
    FunctionCallOutput,
    ItemView,
    LocalShellCallOutput,
    McpApprovalResponse,
    OutputBody,
    ResponseInputItem,
    ShellCallOutput,
    ShellCommandOutput,
    ShellExit,
    ToolSearchOutput,
    make_item,
    read_item,
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


class FunctionPayload(msgspec.Struct, frozen=True, tag="function"):
    """A JSON function call; `arguments` is the raw text from the model."""

    arguments: str


class CustomPayload(msgspec.Struct, frozen=True, tag="custom"):
    """A freeform call; `input` is the raw text."""

    input: str


class LocalShellPayload(msgspec.Struct, frozen=True, tag="local_shell"):
    """A `local_shell_call`."""

    params: ShellToolCallParams


class McpPayload(msgspec.Struct, frozen=True, tag="mcp"):
    """A call of a tool of an MCP server."""

    server: str
    tool: str
    raw_arguments: str


class NativePayload(msgspec.Struct, frozen=True, tag="native"):
    """A native item (`shell_call`, `apply_patch_call`, `tool_search_call`, `computer_call`, `mcp_approval_request`, or
    one of a kind that is not known); `arguments` is what it asks for as JSON."""

    item_type: str
    arguments: str


ToolPayload = FunctionPayload | CustomPayload | LocalShellPayload | McpPayload | NativePayload
NativeOutput = ShellCallOutput | ApplyPatchCallOutput | ToolSearchOutput | ComputerCallOutput | McpApprovalResponse


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

    def unsaid(self, payload: ToolPayload) -> str | None:
        """The words of a failure for which the answer to such a call has no room."""
        wordless = isinstance(payload, NativePayload) and payload.item_type == "computer_call"
        return self.text if wordless and self.success is False and isinstance(self.body, str) else None

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
        return _native_answer(call_id, payload, msgspec.structs.replace(self, body=body))


def output_in(view: ItemView) -> ToolOutput:
    """What an item says that answers a call."""
    if isinstance(view, NativeOutput):
        return ToolOutput(view)
    return ToolOutput(view.output if isinstance(view, FunctionCallOutput | CustomToolCallOutput) else "")


def _never_empty(body: OutputBody) -> OutputBody:
    """The body without blank texts; a note where nothing is left."""
    if isinstance(body, str):
        return NO_OUTPUT if not body or body.isspace() else body
    kept = tuple(part for part in body if not (isinstance(part, InputText) and not part.text.strip()))
    return kept or NO_OUTPUT


NO_SCREENSHOT = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAAC0lEQVR4nGNgAAIAAAUAAXpeqz8AAAAASUVORK5CYII="
)
"""One transparent pixel: servers refuse the answer to a `computer_call` that is no picture."""


def _native_answer(call_id: str, payload: NativePayload, output: ToolOutput) -> ResponseInputItem:
    """A text (mostly an error), or a picture of the screen, as the answer to a native call."""
    text, failed = output.text, output.success is False
    match payload.item_type:
        case "shell_call":
            one = ShellCommandOutput("", text, ShellExit(exit_code=1 if failed else 0))
            return make_item(ShellCallOutput(call_id=call_id, output=(one,)))
        case "tool_search_call":
            return make_item(ToolSearchOutput(call_id=call_id, execution="client", status="completed"))
        case "apply_patch_call":
            status = "failed" if failed else "completed"
            return make_item(ApplyPatchCallOutput(call_id=call_id, status=status, output=text))
        case "local_shell_call":
            return make_item(LocalShellCallOutput(id=call_id, call_id=call_id, output=text))
        case "mcp_approval_request":
            return make_item(McpApprovalResponse(approval_request_id=call_id, approve=False, reason=text))
        case "computer_call":
            return make_item(_screenshot(call_id, payload, output))
    answer = {"type": f"{payload.item_type}_output", "call_id": call_id, "output": text}
    return read_item(msgspec.json.encode(answer))


class _SafetyChecks(msgspec.Struct):
    pending_safety_checks: tuple[msgspec.Raw, ...] = ()


def _screenshot(call_id: str, payload: NativePayload, output: ToolOutput) -> ComputerCallOutput:
    """What the screen shows. The checks of the call are acknowledged, or the server would take no further request."""
    body = output.body if isinstance(output.body, tuple) else ()
    picture = next((part for part in body if isinstance(part, InputImage)), InputImage(image_url=NO_SCREENSHOT))
    shown = {"type": "computer_screenshot", "image_url": picture.image_url, "file_id": picture.file_id}
    checks = msgspec.json.decode(payload.arguments or "{}", type=_SafetyChecks).pending_safety_checks
    return ComputerCallOutput(
        call_id=call_id,
        output=msgspec.Raw(msgspec.json.encode({name: value for name, value in shown.items() if value})),
        acknowledged_safety_checks=checks or None,
    )
