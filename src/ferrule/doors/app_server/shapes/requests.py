"""The client's requests: their params and results. What is None was not given."""

from typing import Literal

import msgspec

from ferrule.doors.app_server.shapes.common import (
    AskForApproval,
    Reviewer,
    SandboxMode,
    SandboxPolicy,
    Shape,
    SortDirection,
    UserInput,
)
from ferrule.doors.app_server.shapes.threads import DynamicTool, ItemsView, Model, Thread, Turn
from ferrule.protocol.json_text import JsonValue


class ClientInfo(Shape, frozen=True, kw_only=True):
    """Who the client is."""

    name: str
    version: str
    title: str | None = None


class InitializeCapabilities(Shape, frozen=True, kw_only=True):
    """What the client can do. Methods in `opt_out_notification_methods` are not notified to it."""

    experimental_api: bool = False
    opt_out_notification_methods: tuple[str, ...] | None = None


class InitializeParams(Shape, frozen=True, kw_only=True):
    """The handshake."""

    client_info: ClientInfo
    capabilities: InitializeCapabilities | None = None


class InitializeResult(Shape, frozen=True, kw_only=True):
    """Who the server is. `codex_home` is Ferrule's home."""

    user_agent: str
    codex_home: str
    platform_family: str
    platform_os: str


class _Settings(Shape, frozen=True, kw_only=True):
    """What a thread works with; what is not given is as the server's flags and `config.toml` say, or as before."""

    approval_policy: AskForApproval | None = None
    approvals_reviewer: Reviewer | None = None
    base_instructions: str | None = None
    config: dict[str, JsonValue] | None = None
    cwd: str | None = None
    developer_instructions: str | None = None
    model: str | None = None
    model_provider: str | None = None
    personality: str | None = None
    sandbox: SandboxMode | None = None
    service_tier: str | None = None
    dynamic_tools: tuple[DynamicTool, ...] | None = None


class ThreadStartParams(_Settings, frozen=True, kw_only=True):
    """Open a new thread."""

    ephemeral: bool | None = None


class ThreadResumeParams(_Settings, frozen=True, kw_only=True):
    """Open a stored thread."""

    thread_id: str
    exclude_turns: bool = False


class ThreadForkParams(_Settings, frozen=True, kw_only=True):
    """Open a copy of a thread, up to the end of its turn `last_turn_id`."""

    thread_id: str
    last_turn_id: str | None = None
    exclude_turns: bool = False
    ephemeral: bool | None = None


class ThreadOpened(Shape, frozen=True, kw_only=True):
    """A thread that is open, and what it works with."""

    thread: Thread
    model: str
    model_provider: str
    cwd: str
    approval_policy: str
    sandbox: SandboxPolicy
    approvals_reviewer: Literal["user"] = "user"
    reasoning_effort: str | None = None
    service_tier: str | None = None
    instruction_sources: tuple[str, ...] = ()


class ThreadParams(Shape, frozen=True, kw_only=True):
    """A thread."""

    thread_id: str


class ThreadNameParams(ThreadParams, frozen=True, kw_only=True):
    """A thread's new name."""

    name: str


class ThreadReadParams(ThreadParams, frozen=True, kw_only=True):
    """Read a thread, without opening it."""

    include_turns: bool = False


class ThreadListParams(Shape, frozen=True, kw_only=True):
    """Which stored threads to list, and from where on."""

    archived: bool | None = None
    cursor: str | None = None
    cwd: str | tuple[str, ...] | None = None
    excluded_thread_ids: tuple[str, ...] | None = None
    included_thread_ids: tuple[str, ...] | None = None
    limit: int | None = None
    source_kinds: tuple[str, ...] | None = None
    search_term: str | None = None
    sort_direction: SortDirection | None = None
    sort_key: str | None = None


class ThreadList(Shape, frozen=True, kw_only=True):
    """Threads, and where the next ones begin."""

    data: tuple[Thread, ...]
    next_cursor: str | None = None
    backwards_cursor: str | None = None


class PageParams(Shape, frozen=True, kw_only=True):
    """A part of a list."""

    cursor: str | None = None
    limit: int | None = None


class LoadedThreads(Shape, frozen=True, kw_only=True):
    """The ids of the open threads."""

    data: tuple[str, ...]
    next_cursor: str | None = None


class TurnsListParams(PageParams, frozen=True, kw_only=True):
    """A part of a thread's turns."""

    thread_id: str
    sort_direction: SortDirection | None = None
    items_view: ItemsView | None = None


class TurnsList(Shape, frozen=True, kw_only=True):
    """Turns, and where the next ones begin."""

    data: tuple[Turn, ...]
    next_cursor: str | None = None
    backwards_cursor: str | None = None


class ThreadResult(Shape, frozen=True, kw_only=True):
    """A thread."""

    thread: Thread


class Unsubscribed(Shape, frozen=True, kw_only=True):
    """Whether the thread was open."""

    status: Literal["unsubscribed", "notSubscribed", "notLoaded"]


class TurnStartParams(ThreadParams, frozen=True, kw_only=True):
    """Run a turn. The settings that are given hold from this turn on."""

    input: tuple[UserInput, ...]
    approval_policy: AskForApproval | None = None
    approvals_reviewer: Reviewer | None = None
    client_user_message_id: str | None = None
    cwd: str | None = None
    effort: str | None = None
    model: str | None = None
    output_schema: JsonValue = None
    personality: str | None = None
    sandbox_policy: SandboxPolicy | None = None
    service_tier: str | None = None
    summary: str | None = None


class TurnResult(Shape, frozen=True, kw_only=True):
    """A turn that runs."""

    turn: Turn


class TurnSteerParams(ThreadParams, frozen=True, kw_only=True):
    """Say something to the running turn."""

    expected_turn_id: str
    input: tuple[UserInput, ...]
    client_user_message_id: str | None = None


class TurnSteered(Shape, frozen=True, kw_only=True):
    """The turn that was told."""

    turn_id: str


class TurnInterruptParams(ThreadParams, frozen=True, kw_only=True):
    """End the running turn."""

    turn_id: str


class ModelListParams(PageParams, frozen=True, kw_only=True):
    """A part of the models."""

    include_hidden: bool | None = None
    model_provider: str | None = None


class ModelList(Shape, frozen=True, kw_only=True):
    """Models, and where the next ones begin."""

    data: tuple[Model, ...]
    next_cursor: str | None = None


class ConfigReadParams(Shape, frozen=True, kw_only=True):
    """Read the configuration that holds in a directory."""

    cwd: str | None = None
    include_layers: bool = False


class ConfigReadResult(Shape, frozen=True, kw_only=True):
    """The configuration under the names of `config.toml`. Where each key comes from is not told."""

    config: dict[str, JsonValue]
    origins: dict[str, JsonValue] = msgspec.field(default_factory=dict)
    layers: tuple[JsonValue, ...] | None = None


class AccountReadParams(Shape, frozen=True, kw_only=True):
    """Read who is logged in."""

    refresh_token: bool = False


class AccountRead(Shape, frozen=True, kw_only=True):
    """Nobody: keys of servers stand in variables, and no login is needed."""

    account: None = None
    requires_openai_auth: bool = False


class ConfigRequirements(Shape, frozen=True, kw_only=True):
    """What an administrator demands of the configuration: nothing."""

    requirements: None = None


class SkillsListParams(Shape, frozen=True, kw_only=True):
    """List the skills that hold in some directories."""

    cwds: tuple[str, ...] | None = None
    force_reload: bool = False


class SkillTold(Shape, frozen=True, kw_only=True):
    """A skill; `path` is its file."""

    name: str
    description: str
    path: str
    scope: Literal["user", "repo"]
    enabled: bool


class SkillError(Shape, frozen=True, kw_only=True):
    """A skill that cannot be used, and why."""

    path: str
    message: str


class SkillsEntry(Shape, frozen=True, kw_only=True):
    """The skills that hold in a directory."""

    cwd: str
    skills: tuple[SkillTold, ...]
    errors: tuple[SkillError, ...]


class SkillsList(Shape, frozen=True, kw_only=True):
    """The skills of each directory."""

    data: tuple[SkillsEntry, ...]


class FuzzyFileSearchParams(Shape, frozen=True, kw_only=True):
    """Find files below some folders by what is remembered of their names."""

    query: str
    roots: tuple[str, ...]
    cancellation_token: str | None = None


class FoundFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file whose path holds the letters of the query in this order; `path` is relative to `root`."""

    root: str
    path: str
    file_name: str
    score: int
    match_type: Literal["file"] = "file"
    indices: tuple[int, ...] | None = None


class FuzzyFileSearchResult(Shape, frozen=True, kw_only=True):
    """The files, the best first."""

    files: tuple[FoundFile, ...]


class CommandExecParams(Shape, frozen=True, kw_only=True):
    """Run a command beside all threads, confined as theirs are, to its end."""

    command: tuple[str, ...]
    cwd: str | None = None
    disable_output_cap: bool = False
    disable_timeout: bool = False
    env: dict[str, str | None] | None = None
    output_bytes_cap: int | None = None
    process_id: str | None = None
    sandbox_policy: SandboxPolicy | None = None
    stream_stdin: bool = False
    stream_stdout_stderr: bool = False
    timeout_ms: int | None = None
    tty: bool = False


class CommandExecResult(Shape, frozen=True, kw_only=True):
    """What the command wrote, and its exit code."""

    exit_code: int
    stdout: str
    stderr: str
