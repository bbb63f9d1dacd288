"""Every key of `config.toml`, with Codex's name where Codex has the setting. None: not set.

What a key means, and its default, stands with the setting in `protocol/`; here is what only the file has.
"""

from typing import Literal

import msgspec

from ferrule.protocol.environment_policy import EnvironmentRules
from ferrule.protocol.permissions import AskForApproval, SandboxMode, WorkspaceWrite
from ferrule.protocol.settings import (
    Choices,
    Confirmation,
    Endpoint,
    HookName,
    HookProgram,
    Positive,
    ReasoningEffort,
    ReasoningSummary,
    Verbosity,
)
from ferrule.protocol.web_settings import WebSearchSettings


class ProviderTable(Endpoint, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[model_providers.NAME]`. `name` is Codex's label; Ferrule uses NAME."""

    name: str | None = None


class WorkspaceWriteTable(WorkspaceWrite, frozen=True, kw_only=True, forbid_unknown_fields=True, tag=False):
    """`[sandbox_workspace_write]`: what workspace-write mode allows beyond the working directory."""

    caches: bool = False


class ContainerTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[container]`: what `sandbox_mode = "container"` runs commands on. `read_only`: the project cannot be written."""

    image: str | None = None
    read_only: bool = False


class EnvironmentTable(EnvironmentRules, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[shell_environment_policy]`."""


class ProjectTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`[projects."PATH"]`: whether the project's own configuration is read."""

    trust_level: Literal["trusted", "untrusted"] | None = None


class HookTable(HookProgram, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[[hooks.EVENT]]`."""


class ConfigTable(Choices, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A whole `config.toml`."""

    model: str | None = None
    model_provider: str | None = None
    model_reasoning_effort: ReasoningEffort | None = None
    model_reasoning_summary: ReasoningSummary | None = None
    model_verbosity: Verbosity | None = None
    model_context_window: Positive | None = None
    model_auto_compact_token_limit: Positive | None = None
    model_max_output_tokens: Positive | None = None
    model_temperature: float | None = None
    parallel_tool_calls: bool | None = None
    approval_policy: AskForApproval | None = None
    sandbox_mode: SandboxMode | None = None
    hosted_tools: tuple[str | dict[str, object], ...] = ()
    web_search: Literal["disabled", "cached", "live"] | WebSearchSettings = "disabled"
    """As text the provider's own search, as a table one that is run here."""
    tool_output_token_limit: Positive | None = None
    model_providers: dict[str, ProviderTable] = msgspec.field(default_factory=dict)
    sandbox_workspace_write: WorkspaceWriteTable = WorkspaceWriteTable()
    container: ContainerTable = ContainerTable()
    shell_environment_policy: EnvironmentTable = EnvironmentTable()
    projects: dict[str, ProjectTable] = msgspec.field(default_factory=dict)
    hooks: dict[HookName, tuple[HookTable, ...]] = msgspec.field(default_factory=dict)
    confirmation_policy: Confirmation = "never"
