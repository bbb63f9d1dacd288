"""The items of a turn: what was said, run, changed and called."""

from typing import Literal

import msgspec

from ferrule.doors.app_server.shapes.common import Shape, UserInput
from ferrule.protocol.json_text import JsonValue

CommandStatus = Literal["inProgress", "completed", "failed", "declined"]
CallStatus = Literal["inProgress", "completed", "failed"]


class _Item(Shape, frozen=True, kw_only=True, tag_field="type"):
    id: str
    started_at_ms: int | None = None
    completed_at_ms: int | None = None


class UserMessage(_Item, frozen=True, kw_only=True, tag="userMessage"):
    """What the user said. `client_id` is the client's own name for it."""

    content: tuple[UserInput, ...]
    client_id: str | None = None


class AgentMessage(_Item, frozen=True, kw_only=True, tag="agentMessage"):
    """What the model said."""

    text: str
    phase: str | None = None


class Reasoning(_Item, frozen=True, kw_only=True, tag="reasoning"):
    """What the model thought: its summary, and its own words where the server shows them."""

    summary: tuple[str, ...] = ()
    content: tuple[str, ...] = ()


class _Action(Shape, frozen=True, kw_only=True, tag_field="type"):
    command: str


class UnknownAction(_Action, frozen=True, kw_only=True, tag="unknown"):
    """A command, as the model wrote it: what it reads or lists is not told apart here."""


class CommandExecution(_Item, frozen=True, kw_only=True, tag="commandExecution"):
    """A command, from its start, or the question for it, to the end of its process."""

    command: str
    cwd: str
    status: CommandStatus
    command_actions: tuple[UnknownAction, ...] = ()
    aggregated_output: str | None = None
    exit_code: int | None = None
    duration_ms: int | None = None
    process_id: str | None = None
    source: Literal["agent", "unifiedExecStartup"] = "agent"
    """`agent` until it has begun."""


class _Kind(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    pass


class AddKind(_Kind, frozen=True, kw_only=True, tag="add"):
    """A new file; `diff` is its text."""


class DeleteKind(_Kind, frozen=True, kw_only=True, tag="delete"):
    """A file that goes."""


class UpdateKind(_Kind, frozen=True, kw_only=True, tag="update"):
    """A file that changes; `diff` is a unified diff."""

    move_path: str | None = None


class FileUpdateChange(Shape, frozen=True, kw_only=True):
    """A patch's change to one file."""

    path: str
    kind: AddKind | DeleteKind | UpdateKind
    diff: str


class FileChange(_Item, frozen=True, kw_only=True, tag="fileChange"):
    """A patch."""

    changes: tuple[FileUpdateChange, ...]
    status: CommandStatus


class McpError(Shape, frozen=True, kw_only=True):
    """Why a call of an MCP server failed."""

    message: str


class McpResult(Shape, frozen=True, kw_only=True):
    """What an MCP server answered."""

    content: tuple[JsonValue, ...]
    structured_content: JsonValue = None


class McpToolCall(_Item, frozen=True, kw_only=True, tag="mcpToolCall"):
    """A call of an MCP server's tool."""

    server: str
    tool: str
    status: CallStatus
    arguments: JsonValue = None
    result: McpResult | None = None
    error: McpError | None = None
    duration_ms: int | None = None


class _Content(Shape, frozen=True, kw_only=True, tag_field="type"):
    pass


class ContentText(_Content, frozen=True, kw_only=True, tag="inputText"):
    """Text for the model."""

    text: str


class ContentImage(_Content, frozen=True, kw_only=True, tag="inputImage"):
    """An image for the model, by its URL."""

    image_url: str


ContentItem = ContentText | ContentImage


class DynamicToolCall(_Item, frozen=True, kw_only=True, tag="dynamicToolCall"):
    """A call of a tool that the client runs; or of any tool of ours that has no item of its own."""

    tool: str
    status: CallStatus
    arguments: JsonValue = None
    namespace: str | None = None
    content_items: tuple[ContentItem, ...] | None = None
    success: bool | None = None
    duration_ms: int | None = None


class WebSearch(_Item, frozen=True, kw_only=True, tag="webSearch"):
    """A search that the model's provider ran."""

    query: str
    action: JsonValue = None


class ImageView(_Item, frozen=True, kw_only=True, tag="imageView"):
    """The model looked at a file with an image."""

    path: str


class ContextCompaction(_Item, frozen=True, kw_only=True, tag="contextCompaction"):
    """The conversation so far was replaced by a summary."""


ThreadItem = (
    UserMessage
    | AgentMessage
    | Reasoning
    | CommandExecution
    | FileChange
    | McpToolCall
    | DynamicToolCall
    | WebSearch
    | ImageView
    | ContextCompaction
)
