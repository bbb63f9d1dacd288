"""How a tool was invoked, and its answer."""

from enum import StrEnum

import msgspec

from ferrule.protocol.content import ContentPart, InputImage, InputText, text_of
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
    """The payloads that a handler serves."""

    FUNCTION = "function"
    MCP = "mcp"


class ShellToolCallParams(msgspec.Struct, frozen=True, omit_defaults=True):
    """A shell call's request: the argv, its directory, its limit in milliseconds, and its permissions."""

    command: tuple[str, ...]
    workdir: str | None = None
    timeout_ms: int | None = None
    env: dict[str, str] | None = None
    sandbox_permissions: str | None = None
    with_escalated_permissions: bool | None = None
    justification: str | None = None
    prefix_rule: tuple[str, ...] | None = None


class FunctionPayload(msgspec.Struct, frozen=True, tag="function", gc=False):
    """A JSON function call; `arguments` is the model's raw text."""

    arguments: str


class CustomPayload(msgspec.Struct, frozen=True, tag="custom"):
    """A freeform call; `input` is the model's raw text."""

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
    one of an unknown kind); `arguments` is its request as JSON."""

    item_type: str
    arguments: str


ToolPayload = FunctionPayload | CustomPayload | LocalShellPayload | McpPayload | NativePayload
_JSON_PAYLOADS = (FunctionPayload, McpPayload)
NativeOutput = ShellCallOutput | ApplyPatchCallOutput | ToolSearchOutput | ComputerCallOutput | McpApprovalResponse


PICTURE = "(a picture)"
"""Stands for the picture of a screen, for people and hooks."""


class _Screenshot(msgspec.Struct):
    image_url: str | None = None


ABORTED = "aborted"
"""The output of a call that was cut off before it answered: servers refuse a call without an answer."""

NO_OUTPUT = "(no output)"
"""The output that stands for an empty answer: some servers refuse an empty one."""


class ToolOutput(msgspec.Struct, frozen=True, gc=False):
    """A tool's answer. `success` is for the front end; the model reads only the body.

    `bounded` means the tool itself kept to the output budget; dispatch truncates the rest. `ends_turn`: the model is
    not asked again, and the text is its final message. `beside`: words for the model that the body has no room for.
    """

    body: OutputBody | NativeOutput
    success: bool | None = None
    bounded: bool = False
    ends_turn: bool = False
    beside: str = ""

    @property
    def text(self) -> str:
        """The textual parts of the body, for people and hooks."""
        body = self.body
        if isinstance(body, ComputerCallOutput):
            return self.beside or PICTURE
        return text_of(body) if isinstance(body, (str, tuple)) else msgspec.json.encode(body).decode()

    @property
    def shown(self) -> OutputBody | NativeOutput:
        """The body for people: that of a screen as its words and its picture."""
        if not isinstance(self.body, ComputerCallOutput):
            return self.body
        url = msgspec.json.decode(self.body.output, type=_Screenshot).image_url
        words = (InputText(self.beside),) if self.beside else ()
        return words if url in (None, NO_SCREENSHOT) else (*words, InputImage(image_url=url))

    def replaced(self, text: str) -> "ToolOutput":
        """Return the output with the text of a hook instead. A screen keeps its picture: servers want one."""
        if isinstance(self.body, ComputerCallOutput):
            return msgspec.structs.replace(self, beside=text)
        return msgspec.structs.replace(self, body=text, bounded=False)

    def unsaid(self, payload: ToolPayload) -> str | None:
        """Return what the answer to this kind of call cannot carry: words beside it, the text of a failure."""
        if self.beside:
            return self.beside
        wordless = isinstance(payload, NativePayload) and payload.item_type == "computer_call"
        return self.text if wordless and self.success is False and isinstance(self.body, str) else None

    def into_response(self, call_id: str, payload: ToolPayload) -> ResponseInputItem:
        """Build the item that answers the call, in the form its payload requires."""
        body = self.body
        if isinstance(body, str):
            if not body or body.isspace():
                body = NO_OUTPUT
        elif isinstance(body, tuple):
            body = _without_blanks(body)
        else:
            return make_item(body)
        if isinstance(payload, _JSON_PAYLOADS):
            return make_item(FunctionCallOutput(call_id=call_id, output=body, failed=self.success is False))
        if isinstance(payload, CustomPayload):
            return make_item(CustomToolCallOutput(call_id=call_id, output=body, failed=self.success is False))
        if isinstance(payload, LocalShellPayload):
            return make_item(LocalShellCallOutput(id=call_id, call_id=call_id, output=text_of(body)))
        return _native_answer(call_id, payload, msgspec.structs.replace(self, body=body))


def output_in(view: ItemView) -> ToolOutput:
    """Return the tool output in an item that answers a call."""
    if isinstance(view, NativeOutput):
        return ToolOutput(view)
    return ToolOutput(view.output if isinstance(view, FunctionCallOutput | CustomToolCallOutput) else "")


def _without_blanks(parts: tuple[ContentPart, ...]) -> OutputBody:
    """Return the parts without blank texts, or a note if nothing is left."""
    kept = tuple(part for part in parts if not (isinstance(part, InputText) and not part.text.strip()))
    return kept or NO_OUTPUT


NO_SCREENSHOT = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAAC0lEQVR4nGNgAAIAAAUAAXpeqz8AAAAASUVORK5CYII="
)
"""One transparent pixel: servers refuse an answer to a `computer_call` without a picture."""
BLANK_SCREEN = msgspec.Raw(msgspec.json.encode({"type": "computer_screenshot", "image_url": NO_SCREENSHOT}))
"""The output of such an answer."""


def _native_answer(call_id: str, payload: NativePayload, output: ToolOutput) -> ResponseInputItem:
    """Build the answer to a native call from a text (mostly an error) or a screenshot."""
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
    """Build the screenshot answer. It acknowledges the call's safety checks if a tool has carried the call out, and so
    shows a picture."""
    body = output.body if isinstance(output.body, tuple) else ()
    taken = next((part for part in body if isinstance(part, InputImage)), None)
    picture = taken or InputImage(image_url=NO_SCREENSHOT)
    shown = {"type": "computer_screenshot", "image_url": picture.image_url, "file_id": picture.file_id}
    done = taken is not None and output.success is not False
    checks = msgspec.json.decode(payload.arguments or "{}", type=_SafetyChecks).pending_safety_checks if done else ()
    return ComputerCallOutput(
        call_id=call_id,
        output=msgspec.Raw(msgspec.json.encode({name: value for name, value in shown.items() if value})),
        acknowledged_safety_checks=checks or None,
    )
