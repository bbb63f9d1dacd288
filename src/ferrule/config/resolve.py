"""Turn the merged table into the settings of a session. Pure."""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from ferrule.config.check import ANY_TOOL
from ferrule.config.keys import ConfigTable, HookTable
from ferrule.config.trust import Change
from ferrule.protocol.environment_policy import ShellEnvironmentPolicy
from ferrule.protocol.errors import UsageError
from ferrule.protocol.hosted import HostedTool, hosted_tool
from ferrule.protocol.permissions import (
    AskForApproval,
    DangerFullAccess,
    InContainer,
    InContainerReadOnly,
    ReadOnly,
    SandboxMode,
    SandboxPolicy,
    WorkspaceWrite,
)
from ferrule.protocol.settings import (
    Choices,
    HookCommand,
    HookName,
    HookPrograms,
    ModelSettings,
    ProjectText,
    ProviderSettings,
    Settings,
    secret_variables,
    usual_provider,
)
from ferrule.protocol.specs import ImageGeneration, WebSearch, WebSearchPreview, Wire
from ferrule.protocol.web_settings import WebSearchSettings

Hooks = Mapping[HookName, Sequence[HookTable]]

NOT_KEPT = (
    "sandbox_workspace_write.network_access lists domains, to which danger-full-access cannot keep: choose another "
    "sandbox mode, or set it to true or false"
)
SERVER = "server"
"""The name of the provider that `--base-url` defines."""


class Configuration(msgspec.Struct, frozen=True, kw_only=True):
    """The whole configuration. `warnings`: omitted settings, one sentence each.

    `unconfirmed` are files of the project that are not read before the user confirms them. A front end where somebody
    can answer loads by `session.project_trust.load_asking`.
    """

    settings: Settings
    warnings: tuple[str, ...] = ()
    unconfirmed: tuple[Change, ...] = ()


def settings_of(
    table: ConfigTable,
    *,
    cwd: str,
    home: str,
    project: str | None = None,
    project_hooks: Hooks = {},  # noqa: B006 - only read
    project_rules: tuple[ProjectText, ...] = (),
    project_skills: tuple[ProjectText, ...] = (),
    hook_programs: HookPrograms | None = None,
    project_chose: frozenset[str] = frozenset(),
    base_url: str | None = None,
    api_key_env: str | None = None,
    wire: Wire | None = None,
    add_dirs: tuple[str, ...] = (),
) -> Settings:
    """Build the settings of the table. `project` is the top of the trusted project; its hooks come after the table's.
    `base_url`, `api_key_env` and `wire` override the provider's; `add_dirs` (absolute) are writable beside the
    configured roots.

    Raises `UsageError`.
    """
    return Settings(
        **{name: getattr(table, name) for name in Choices.__struct_fields__},
        cwd=cwd,
        home=home,
        model=_model(table),
        provider=_provider(table, base_url, wire, api_key_env),
        approval_policy=table.approval_policy or AskForApproval.ON_REQUEST,
        sandbox_policy=_sandbox(table, add_dirs),
        caches=table.sandbox_workspace_write.caches,
        shell_environment_policy=_environment(table),
        hosted_tools=_hosted(table),
        web_search=table.web_search if isinstance(table.web_search, WebSearchSettings) else None,
        tool_output_tokens=table.tool_output_token_limit,
        trusted=project is not None,
        project=project,
        project_rules=project_rules,
        project_skills=project_skills,
        hook_programs=hook_programs,
        project_chose=project_chose,
        hooks=(*_hooks(table.hooks, of_project=False), *_hooks(project_hooks, of_project=True)),
        confirmation=table.confirmation_policy,
    )


def _model(table: ConfigTable) -> ModelSettings:
    return ModelSettings(
        model=table.model,
        reasoning_effort=table.model_reasoning_effort,
        reasoning_summary=table.model_reasoning_summary,
        verbosity=table.model_verbosity,
        parallel_tool_calls=table.parallel_tool_calls,
        max_output_tokens=table.model_max_output_tokens,
        temperature=table.model_temperature,
        context_window=table.model_context_window,
        auto_compact_token_limit=table.model_auto_compact_token_limit,
    )


def _environment(table: ConfigTable) -> ShellEnvironmentPolicy:
    image_key = None if table.image_generation is None else table.image_generation.env_key
    keys = (_search_key(table), table.embeddings.env_key, image_key)
    secrets = secret_variables(table.model_providers.values(), table.mcp_servers.values(), *keys)
    return ShellEnvironmentPolicy(**msgspec.structs.asdict(table.shell_environment_policy), secrets=secrets)


def _search_key(table: ConfigTable) -> str | None:
    return table.web_search.key_variable if isinstance(table.web_search, WebSearchSettings) else None


def _hooks(tables: Hooks, *, of_project: bool) -> Iterator[HookCommand]:
    for event, hooks in tables.items():
        for hook in hooks:
            matcher = "" if hook.matcher == ANY_TOOL else hook.matcher
            yield HookCommand(
                event=event, command=hook.command, matcher=matcher, timeout=hook.timeout, of_project=of_project
            )


def _hosted(table: ConfigTable) -> tuple[HostedTool, ...]:
    """Return the hosted tools; `web_search` is Codex's shorthand for the most common one."""
    named = tuple(map(hosted_tool, table.hosted_tools))
    if table.image_generation is not None and any(isinstance(tool, ImageGeneration) for tool in named):
        raise UsageError("[image_generation] makes images from here: take the provider's out of hosted_tools")
    if not isinstance(table.web_search, WebSearchSettings):
        search = WebSearch(external_web_access=table.web_search == "live")
        return named if table.web_search == "disabled" else (*named, search)
    if any(isinstance(tool, WebSearch | WebSearchPreview) for tool in named):
        raise UsageError("web_search is a table, so the search runs here: take the provider's out of hosted_tools")
    return named


def _provider(
    table: ConfigTable, base_url: str | None, wire: Wire | None, api_key_env: str | None
) -> ProviderSettings | None:
    """Return the provider to use, or None if none is configured: OpenAI, if its key is set.

    `--base-url` is a provider of its own: the key of a configured one must not go to another address.
    """
    name = SERVER if base_url is not None else table.model_provider
    if name is None and wire is None and api_key_env is None:
        return None
    name = name or usual_provider(wire)
    known = None if base_url is not None else table.model_providers.get(name)
    fields: dict[str, Any] = {} if known is None else msgspec.structs.asdict(known)
    said = {"base_url": base_url, "wire_api": wire, "env_key": api_key_env}
    fields |= {key: value for key, value in said.items() if value is not None}
    return ProviderSettings(**fields | {"name": name})


def _sandbox(table: ConfigTable, add_dirs: tuple[str, ...]) -> SandboxPolicy:
    mode, allowed = table.sandbox_mode or SandboxMode.WORKSPACE_WRITE, table.sandbox_workspace_write
    if mode is SandboxMode.READ_ONLY:
        return ReadOnly()
    if mode is SandboxMode.DANGER_FULL_ACCESS:
        if not isinstance(allowed.network_access, bool):
            raise UsageError(NOT_KEPT)
        return DangerFullAccess()
    roots = tuple(_absolute("writable_roots", root) for root in allowed.writable_roots)
    ca_file = allowed.ca_file and _file("ca_file", allowed.ca_file)
    if mode is SandboxMode.CONTAINER:
        chosen = table.container
        if chosen.read_only:
            return InContainerReadOnly(
                image=chosen.image,
                folders=(*roots, *add_dirs),
                network_access=allowed.network_access,
                hosts=allowed.hosts,
                ca_file=ca_file,
            )
        return InContainer(
            image=chosen.image,
            writable_roots=(*roots, *add_dirs),
            network_access=allowed.network_access,
            hosts=allowed.hosts,
            ca_file=ca_file,
        )
    return WorkspaceWrite(
        writable_roots=(*roots, *add_dirs),
        network_access=allowed.network_access,
        hosts=allowed.hosts,
        ca_file=ca_file,
        exclude_tmpdir_env_var=allowed.exclude_tmpdir_env_var,
        exclude_slash_tmp=allowed.exclude_slash_tmp,
    )


def _absolute(key: str, path: str) -> str:
    absolute = os.path.expanduser(path)
    if not os.path.isabs(absolute):
        raise UsageError(f"sandbox_workspace_write.{key}: {absolute!r} must be an absolute path")
    return absolute


def _file(key: str, path: str) -> str:
    absolute = _absolute(key, path)
    if not os.path.isfile(absolute):
        raise UsageError(f"sandbox_workspace_write.{key}: {absolute} is not a file")
    return absolute
