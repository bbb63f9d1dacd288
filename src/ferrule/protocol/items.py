"""Conversation items. An item is its raw bytes and a typed view; unknown kinds survive a round trip.

Field names and values are the Responses API's. A view names the fields that we read; the bytes keep all of them.
"""

from typing import Any, Literal

import msgspec

from ferrule.protocol.content import PART_TAGS, ContentPart, ReasoningText, SummaryText, UnknownPart

OutputBody = str | tuple[ContentPart, ...]


class _Item(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What every item has. Items are trees, so the garbage collector need not look for circles through them."""

    id: str | None = None
    status: str | None = None


class _Said(_Item, frozen=True, kw_only=True):
    """An item of the model. `chat_fields` is an object: non-standard fields that a Chat Completions server sent and
    wants back unchanged (signatures, reasoning in its own form). `message_fields` is an object, too: what a content
    block of the Messages API holds beside the item. Both are kept on disk and never sent on another wire."""

    chat_fields: msgspec.Raw = msgspec.Raw()
    message_fields: msgspec.Raw = msgspec.Raw()


class Message(_Said, frozen=True, tag="message"):
    """A message of the user, the developer or the assistant."""

    role: Literal["user", "assistant", "system", "developer", "tool"]
    content: OutputBody
    phase: str | None = None


class Reasoning(_Said, frozen=True, tag="reasoning"):
    """The model's reasoning: summaries, raw text where available, and the encrypted form that is sent back.
    `chat_field` names the field of the Chat message that carried the text."""

    summary: tuple[SummaryText | UnknownPart, ...] = ()
    content: tuple[ReasoningText | UnknownPart, ...] | None = None
    encrypted_content: str | None = None
    chat_field: str | None = None


class FunctionCall(_Said, frozen=True, tag="function_call"):
    """A call of a JSON function. `arguments` is the raw text."""

    call_id: str
    name: str
    arguments: str
    namespace: str | None = None


class FunctionCallOutput(_Item, frozen=True, tag="function_call_output"):
    """The answer to a function call. `failed` is our own field, for the one wire that tells the model."""

    call_id: str
    output: OutputBody
    failed: bool = False


class CustomToolCall(_Said, frozen=True, tag="custom_tool_call"):
    """A call of a freeform tool. `input` is the raw text."""

    call_id: str
    name: str
    input: str
    namespace: str | None = None


class CustomToolCallOutput(_Item, frozen=True, tag="custom_tool_call_output"):
    """The answer to a freeform call."""

    call_id: str
    output: OutputBody
    failed: bool = False


class LocalShellAction(msgspec.Struct, frozen=True, omit_defaults=True):
    """The command of a `local_shell_call`: an argv (or one script), its directory, extra environment, limit in ms."""

    command: str | tuple[str, ...]
    type: str = "exec"
    working_directory: str | None = None
    env: dict[str, str] | None = None
    timeout_ms: int | None = None
    user: str | None = None


class LocalShellCall(_Item, frozen=True, tag="local_shell_call"):
    """The native shell call of codex-mini-latest. Without a `call_id`, the item's id identifies the call."""

    action: LocalShellAction
    call_id: str | None = None


class LocalShellCallOutput(_Item, frozen=True, tag="local_shell_call_output"):
    """The answer to a `local_shell_call`; the id is the call's."""

    output: str
    call_id: str | None = None


class ShellAction(msgspec.Struct, frozen=True, omit_defaults=True):
    """The commands of a `shell_call`, run one after the other; `max_output_length` is in characters."""

    commands: tuple[str, ...]
    timeout_ms: int | None = None
    max_output_length: int | None = None


class CallEnvironment(msgspec.Struct, frozen=True):
    """Where the commands of a `shell_call` run: `local` is this machine, anything else is the provider's."""

    type: str = "local"


class ShellCall(_Item, frozen=True, tag="shell_call"):
    """The native shell call. Without an `environment`, the declared tool decides where its commands run."""

    call_id: str
    action: ShellAction
    environment: CallEnvironment | None = None


class ShellExit(msgspec.Struct, frozen=True, tag="exit"):
    """The command exited by itself."""

    exit_code: int


class ShellTimeout(msgspec.Struct, frozen=True, tag="timeout"):
    """The command was ended at its time limit."""


class ShellCommandOutput(msgspec.Struct, frozen=True):
    """The output of one command of a `shell_call`, and how it ended."""

    stdout: str
    stderr: str
    outcome: ShellExit | ShellTimeout


class ShellCallOutput(_Item, frozen=True, tag="shell_call_output"):
    """The answer to a `shell_call`: one entry per command."""

    call_id: str
    output: tuple[ShellCommandOutput, ...]
    max_output_length: int | None = None


class CreateFile(msgspec.Struct, frozen=True, tag="create_file"):
    """Write a new file; every line of `diff` starts with `+`."""

    path: str
    diff: str


class UpdateFile(msgspec.Struct, frozen=True, tag="update_file"):
    """Change a file with a V4A diff without its envelope."""

    path: str
    diff: str


class DeleteFile(msgspec.Struct, frozen=True, tag="delete_file"):
    """Remove a file."""

    path: str


PatchOperation = CreateFile | UpdateFile | DeleteFile


class ApplyPatchCall(_Item, frozen=True, tag="apply_patch_call"):
    """The native patch call."""

    call_id: str
    operation: PatchOperation


class ApplyPatchCallOutput(_Item, frozen=True, tag="apply_patch_call_output"):
    """The answer to an `apply_patch_call`; `status` is completed or failed."""

    call_id: str
    output: str | None = None


class ComputerCall(_Item, frozen=True, tag="computer_call"):
    """The model wants to act on a screen. Actions are kept unchanged."""

    call_id: str
    action: msgspec.Raw = msgspec.Raw()
    actions: tuple[msgspec.Raw, ...] | None = None
    pending_safety_checks: tuple[msgspec.Raw, ...] = ()

    @property
    def every_action(self) -> tuple[msgspec.Raw, ...]:
        """The actions of either form."""
        if self.actions is not None:
            return self.actions
        return (self.action,) if bytes(self.action) not in (b"", b"null") else ()


class ComputerCallOutput(_Item, frozen=True, tag="computer_call_output"):
    """The screenshot after a computer call."""

    call_id: str
    output: msgspec.Raw
    acknowledged_safety_checks: tuple[msgspec.Raw, ...] | None = None


class WebSearchCall(_Item, frozen=True, tag="web_search_call"):
    """A web search that the provider ran."""

    action: msgspec.Raw = msgspec.Raw()


class FileSearchCall(_Item, frozen=True, tag="file_search_call"):
    """A file search that the provider ran."""

    queries: tuple[str, ...] = ()
    results: tuple[msgspec.Raw, ...] | None = None


class CodeInterpreterCall(_Item, frozen=True, tag="code_interpreter_call"):
    """Python that the provider ran."""

    container_id: str | None = None
    code: str | None = None
    outputs: tuple[msgspec.Raw, ...] | None = None


class ImageGenerationCall(_Item, frozen=True, tag="image_generation_call"):
    """An image that the provider made; `result` is base64."""

    result: str | None = None
    revised_prompt: str | None = None


class McpListTools(_Item, frozen=True, tag="mcp_list_tools"):
    """The tools of a server that the provider runs."""

    server_label: str
    tools: tuple[msgspec.Raw, ...] = ()
    error: msgspec.Raw = msgspec.Raw()


class McpApprovalRequest(_Item, frozen=True, tag="mcp_approval_request"):
    """The provider asks whether an MCP tool may be called."""

    server_label: str
    name: str
    arguments: str


class McpApprovalResponse(_Item, frozen=True, tag="mcp_approval_response"):
    """Our answer to that question."""

    approval_request_id: str
    approve: bool
    reason: str | None = None


class McpCall(_Item, frozen=True, tag="mcp_call"):
    """An MCP call that the provider made."""

    server_label: str
    name: str
    arguments: str
    output: str | None = None
    error: msgspec.Raw = msgspec.Raw()
    approval_request_id: str | None = None


class McpToolCallOutput(_Item, frozen=True, tag="mcp_tool_call_output"):
    """The result of an MCP tool that we ran, as the server returned it. On the wire it is a `function_call_output`."""

    call_id: str
    output: OutputBody
    failed: bool = False


class ToolSearchCall(_Said, frozen=True, tag="tool_search_call"):
    """A search for tools by the model; with `execution` client we answer it."""

    arguments: msgspec.Raw
    execution: str = "server"
    call_id: str | None = None


class ToolSearchOutput(_Item, frozen=True, tag="tool_search_output"):
    """The tools found, as full specs."""

    tools: tuple[msgspec.Raw, ...] = msgspec.field(default_factory=lambda: ())  # so an empty list is sent too
    execution: str = "server"
    call_id: str | None = None


class AdditionalTools(_Item, frozen=True, tag="additional_tools"):
    """Tools that join the conversation later (namespaces and functions as full specs)."""

    role: str
    tools: tuple[msgspec.Raw, ...] = ()


class Compaction(_Item, frozen=True, tag="compaction"):
    """A summary of earlier turns that only the provider can read."""

    encrypted_content: str


class MessageBlock(_Said, frozen=True, tag="message_block"):
    """A content block of the Messages API that no other item stands for, whole in `message_fields`: a tool that the
    provider ran, its result, and the mark `pause_turn` of an answer that is to be gone on with."""


class ItemReference(_Item, frozen=True, tag="item_reference"):
    """A reference to an item that the provider stores."""


class UnknownItem(msgspec.Struct, frozen=True, tag="unknown"):
    """An item of a kind or shape unknown to this version. Its raw bytes are sent back unchanged.

    `awaits` is the id under which it waits for an output, `answers` the id of the call whose output it is.
    """

    original_type: str
    awaits: str | None = None
    answers: str | None = None


ItemView = (
    Message
    | Reasoning
    | FunctionCall
    | FunctionCallOutput
    | CustomToolCall
    | CustomToolCallOutput
    | LocalShellCall
    | LocalShellCallOutput
    | ShellCall
    | ShellCallOutput
    | ApplyPatchCall
    | ApplyPatchCallOutput
    | ComputerCall
    | ComputerCallOutput
    | WebSearchCall
    | FileSearchCall
    | CodeInterpreterCall
    | ImageGenerationCall
    | McpListTools
    | McpApprovalRequest
    | McpApprovalResponse
    | McpCall
    | McpToolCallOutput
    | ToolSearchCall
    | ToolSearchOutput
    | AdditionalTools
    | Compaction
    | ItemReference
    | MessageBlock
    | UnknownItem
)


class Origin(msgspec.Struct, frozen=True, omit_defaults=True):
    """The source of an item: the server, the model family, and the response, identified by the number of items in its
    request (0 if unknown). `place` is where the item began in the response; items that complete earlier may come
    later."""

    provider: str
    family: str = ""
    response: int = 0
    place: int = 0


class ResponseItem(msgspec.Struct, frozen=True, gc=False):
    """One item of a conversation. `raw` is its JSON, kept byte for byte; `view` is our reading of it. `origin` is None
    for our own items, and where it is unknown."""

    raw: bytes
    view: ItemView
    origin: Origin | None = None

    def __str__(self) -> str:
        return self.raw.decode()


ResponseInputItem = ResponseItem
"""An item sent to the model: a tool output or a message."""


class _Tag(msgspec.Struct):
    type: str = ""


_decoder = msgspec.json.Decoder(ItemView)
_tag_decoder = msgspec.json.Decoder(_Tag)
_encoder = msgspec.json.Encoder()


def read_item(raw: bytes | bytearray | memoryview | str, origin: Origin | None = None) -> ResponseItem:
    """Read one item from its JSON. An unknown kind or shape becomes an `UnknownItem`.

    Raises `msgspec.DecodeError` if the text is not JSON at all.
    """
    data = raw.encode() if isinstance(raw, str) else bytes(raw)
    try:
        return ResponseItem(data, _decoder.decode(data), origin)
    except msgspec.ValidationError:
        return ResponseItem(data, _read_loosely(data), origin)


def kind_of(view: ItemView) -> str:
    """Return the item's type on the wire."""
    return view.original_type if isinstance(view, UnknownItem) else str(view.__struct_config__.tag)


def make_item(view: ItemView) -> ResponseInputItem:
    """Make the item that encodes `view`."""
    return ResponseInputItem(_encoder.encode(view), view)


def _read_loosely(data: bytes) -> ItemView:
    """Read an item a second time: unknown parts are set aside, and an item that still does not fit becomes unknown."""
    try:
        tag = _tag_decoder.decode(data).type
    except msgspec.ValidationError:
        return UnknownItem("")
    loose: dict[str, Any] = msgspec.json.decode(data)
    for field in ("content", "summary", "output"):
        parts = loose.get(field)
        if isinstance(parts, list):
            loose[field] = [_known_part(part) for part in parts]
    try:
        return msgspec.convert(loose, ItemView)  # type: ignore[no-any-return]  # a union is no type to `convert`
    except msgspec.ValidationError:
        return _unknown(tag, loose)


_OUTPUT_FIELDS = ("output", "outputs", "result", "results")
_ELSEWHERE = "server"


def _unknown(tag: str, fields: dict[str, Any]) -> UnknownItem:
    """Build an unknown item with its links to other items. A call that carries its own result, or that the provider
    runs, waits for nothing."""
    if tag == "mcp_approval_request":
        return UnknownItem(tag, awaits=_text_of(fields.get("id")))
    call_id = _text_of(fields.get("call_id") or (fields.get("id") if tag == "local_shell_call" else None))
    if tag.endswith("_output"):
        return UnknownItem(tag, answers=call_id)
    environment = fields.get("environment")
    where = environment.get("type") if isinstance(environment, dict) else None
    run = any(name in fields for name in _OUTPUT_FIELDS) or fields.get("execution") == _ELSEWHERE
    if run or not tag.endswith("_call") or where not in (None, "local"):
        return UnknownItem(tag)
    return UnknownItem(tag, awaits=call_id)


def _text_of(value: object) -> str | None:
    return value if isinstance(value, str) and value else None


def _known_part(part: Any) -> Any:
    if not isinstance(part, dict) or part.get("type") in PART_TAGS or "type" not in part:
        return part
    return {"type": "unknown", "original_type": str(part["type"])}
