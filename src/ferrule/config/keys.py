"""Every key of `config.toml`, with Codex's name where Codex has the setting. None: not set."""

from typing import Annotated, Literal

import msgspec

from ferrule.protocol.mcp_settings import McpServerSettings
from ferrule.protocol.permissions import AskForApproval, SandboxMode
from ferrule.protocol.settings import Confirmation, HookName, ReasoningEffort, ReasoningSummary, Verbosity
from ferrule.protocol.specs import Wire

Count = Annotated[int, msgspec.Meta(ge=0)]
Positive = Annotated[int, msgspec.Meta(ge=1)]


class _Table(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class ProviderTable(_Table, frozen=True):
    """`[model_providers.NAME]`: see `ProviderSettings`. `name` is Codex's label; Ferrule uses NAME."""

    name: str | None = None
    base_url: str | None = None
    env_key: str | None = None
    env_key_instructions: str | None = None
    wire_api: Wire | None = None
    query_params: dict[str, str] = {}
    http_headers: dict[str, str] = {}
    env_http_headers: dict[str, str] = {}
    request_max_retries: Count = 4
    stream_max_retries: Count = 5
    stream_idle_timeout_ms: Positive = 300_000
    longest_wait_ms: Count = 120_000
    profile: str | None = None


class WorkspaceWriteTable(_Table, frozen=True):
    """`[sandbox_workspace_write]`: what workspace-write mode allows beyond the working directory."""

    writable_roots: tuple[str, ...] = ()
    network_access: bool = False
    exclude_tmpdir_env_var: bool = False
    exclude_slash_tmp: bool = False
    caches: bool = False


class EnvironmentTable(_Table, frozen=True):
    """`[shell_environment_policy]`: see `ShellEnvironmentPolicy`."""

    inherit: Literal["all", "core", "none"] = "all"
    ignore_default_excludes: bool = False
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    set: dict[str, str] = {}
    include_only: tuple[str, ...] = ()


class ProjectTable(_Table, frozen=True):
    """`[projects."PATH"]`: whether the project's own configuration is read."""

    trust_level: Literal["trusted", "untrusted"] | None = None


class FeaturesTable(_Table, frozen=True):
    """`[features]`: see `ShellFeatures`."""

    shell_tool: bool = True
    shell_zsh_fork: bool = False
    unified_exec: bool | None = None


class HookTable(_Table, frozen=True):
    """`[[hooks.EVENT]]`: see `HookCommand`. `timeout` is in seconds."""

    command: str
    matcher: str = ""
    timeout: Annotated[float, msgspec.Meta(gt=0)] = 60.0


class ConfigTable(_Table, frozen=True):
    """A whole `config.toml`."""

    model: str | None = None
    model_provider: str | None = None
    model_reasoning_effort: ReasoningEffort | None = None
    model_reasoning_summary: ReasoningSummary | None = None
    model_verbosity: Verbosity | None = None
    model_context_window: Positive | None = None
    model_max_output_tokens: Positive | None = None
    model_temperature: float | None = None
    parallel_tool_calls: bool | None = None
    instructions: str | None = None
    approval_policy: AskForApproval | None = None
    sandbox_mode: SandboxMode | None = None
    accept_no_sandbox: bool = False
    profile: str | None = None
    tools: tuple[str, ...] | None = None
    hosted_tools: tuple[str | dict[str, object], ...] = ()
    web_search: Literal["disabled", "cached", "live"] = "disabled"
    tool_output_token_limit: Positive | None = None
    max_turns: Positive | None = None
    unusable_answer_retries: Count = 2
    same_failure_hint: Positive = 3
    same_failure_limit: Positive = 6
    model_providers: dict[str, ProviderTable] = {}
    sandbox_workspace_write: WorkspaceWriteTable = WorkspaceWriteTable()
    shell_environment_policy: EnvironmentTable = EnvironmentTable()
    projects: dict[str, ProjectTable] = {}
    mcp_servers: dict[str, McpServerSettings] = {}
    hooks: dict[HookName, tuple[HookTable, ...]] = {}
    features: FeaturesTable = FeaturesTable()
    confirmation_policy: Confirmation = "never"
