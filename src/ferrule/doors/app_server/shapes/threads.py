"""Threads and turns as objects."""

from typing import Literal

from ferrule.doors.app_server.shapes.common import Shape, TurnError
from ferrule.doors.app_server.shapes.items import ThreadItem
from ferrule.protocol.json_text import JsonValue

TurnStatus = Literal["completed", "interrupted", "failed", "inProgress"]
ActiveFlag = Literal["waitingOnApproval", "waitingOnUserInput"]
ItemsView = Literal["notLoaded", "summary", "full"]


class _Status(Shape, frozen=True, kw_only=True, tag_field="type"):
    pass


class NotLoaded(_Status, frozen=True, kw_only=True, tag="notLoaded"):
    """The thread is stored, and not open here."""


class Idle(_Status, frozen=True, kw_only=True, tag="idle"):
    """No turn runs."""


class Failed(_Status, frozen=True, kw_only=True, tag="systemError"):
    """The last turn failed."""


class Active(_Status, frozen=True, kw_only=True, tag="active"):
    """A turn runs, or waits for an answer."""

    active_flags: tuple[ActiveFlag, ...] = ()


ThreadStatus = NotLoaded | Idle | Failed | Active


class Turn(Shape, frozen=True, kw_only=True):
    """A turn. Times are seconds since 1970."""

    id: str
    root_turn_id: str
    """The turn's own id: a sub-agent's turns are told in threads of their own."""
    status: TurnStatus
    items: tuple[ThreadItem, ...] = ()
    items_view: ItemsView = "notLoaded"
    error: TurnError | None = None
    started_at: int | None = None
    completed_at: int | None = None
    duration_ms: int | None = None


class Thread(Shape, frozen=True, kw_only=True):
    """A thread. Times are seconds since 1970; `path` is its session file."""

    id: str
    session_id: str
    cwd: str
    created_at: int
    updated_at: int
    status: ThreadStatus
    model_provider: str
    preview: str = ""
    name: str | None = None
    model: str | None = None
    reasoning_effort: str | None = None
    ephemeral: bool = False
    path: str | None = None
    forked_from_id: str | None = None
    parent_thread_id: str | None = None
    agent_role: str | None = None
    cli_version: str = ""
    source: JsonValue = "appServer"
    originator: str | None = None
    thread_source: str | None = None
    project_id: str | None = None
    git_info: JsonValue = None
    turns: tuple[Turn, ...] = ()


class ReasoningEffortOption(Shape, frozen=True, kw_only=True):
    """An effort that a model knows."""

    reasoning_effort: str
    description: str


class Model(Shape, frozen=True, kw_only=True):
    """A model of the server's."""

    id: str
    model: str
    display_name: str
    description: str
    is_default: bool
    default_reasoning_effort: str
    supported_reasoning_efforts: tuple[ReasoningEffortOption, ...]
    hidden: bool = False
    input_modalities: tuple[Literal["text", "image"], ...] = ("text", "image")


class DynamicFunction(Shape, frozen=True, kw_only=True, tag_field="type", tag="function"):
    """A tool that the client runs. `input_schema` is any JSON Schema."""

    name: str
    description: str
    input_schema: JsonValue
    defer_loading: bool = False


class DynamicNamespace(Shape, frozen=True, kw_only=True, tag_field="type", tag="namespace"):
    """A group of such tools."""

    name: str
    description: str
    tools: tuple[DynamicFunction, ...]


DynamicTool = DynamicFunction | DynamicNamespace
"""A tool, or tools, of the client."""
