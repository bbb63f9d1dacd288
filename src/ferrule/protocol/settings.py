"""The typed settings that configuration fills and a session uses. Defaults here are the product's."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Literal, Protocol

import msgspec

from ferrule.protocol.computer_settings import ComputerSettings
from ferrule.protocol.embedding_settings import EmbeddingsSettings, FileSearchSettings
from ferrule.protocol.environment_policy import ShellEnvironmentPolicy
from ferrule.protocol.hosted import HostedTool
from ferrule.protocol.image_settings import ImageGenerationSettings
from ferrule.protocol.mcp_settings import McpServerSettings
from ferrule.protocol.permissions import AskForApproval, SandboxMode, SandboxPolicy, WorkspaceWrite
from ferrule.protocol.prices import Prices
from ferrule.protocol.specs import Wire
from ferrule.protocol.web_settings import WebSearchSettings

DEFAULT_MODEL = "gpt-5.5"
"""The model used if neither the user nor the server names one."""

ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
ReasoningSummary = Literal["auto", "concise", "detailed", "none"]
Verbosity = Literal["low", "medium", "high"]

CompactedBy = Literal["local", "endpoint", "context_management"]
"""By a summary asked of the model, by `POST /responses/compact`, or by the server in the middle of an answer."""

PROJECT_DOC_BYTES = 32 * 1024
"""How much of all AGENTS.md files is read: enough for instructions, too little to crowd out the task."""
FileName = Annotated[str, msgspec.Meta(pattern=r"^[^/\\\x00]+$")]
Count = Annotated[int, msgspec.Meta(ge=0)]
Positive = Annotated[int, msgspec.Meta(ge=1)]
Seconds = Annotated[float, msgspec.Meta(gt=0)]
Money = Annotated[float, msgspec.Meta(gt=0)]


ToolCallForm = Literal["native", "text"]


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach a model server. The key is read from the environment variable `env_key` when a request is made.

    `wire_api` None means responses for OpenAI and Azure, messages for Anthropic, chat for the rest. Timeouts are in
    milliseconds. `env_http_headers` maps a header to the variable that holds its value; empty variables are left
    out.
    """

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
    """Longest pause a server may request; beyond it the turn ends with an explanation."""
    compaction: CompactedBy | None = None
    """Who summarises a conversation that fills the window; None means local."""
    tool_calls: ToolCallForm | None = None
    """`native`: the server gets the tools. `text`: they stand in the prompt, and calls come as text. None: as the
    provider profile says."""
    profile: str | None = None
    """The provider profile, which describes what the server accepts; None picks it from the URL."""


class ProviderSettings(Endpoint, frozen=True, kw_only=True):
    """A model server by its name."""

    name: str


def usual_provider(wire: Wire | None) -> str:
    """Return the provider that is meant where no more than a wire is named."""
    return "anthropic" if wire == "messages" else "openai"


class ModelSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of each model request. None leaves one to the model's profile or to the server."""

    model: str | None = None
    reasoning_effort: ReasoningEffort | None = None
    reasoning_summary: ReasoningSummary | None = None
    verbosity: Verbosity | None = None
    parallel_tool_calls: bool | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_logprobs: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    stop: tuple[str, ...] = ()
    """Texts that end the answer. The Responses wire has no field for them, nor for `seed`."""
    seed: int | None = None
    service_tier: str | None = None
    context_window: int | None = None
    auto_compact_token_limit: int | None = None
    """Tokens of a request from which on the conversation is compacted; None: 85 % of the window."""


class Features(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Feature flags. `shell_tool` off: no shell at all. `shell_zsh_fork`: scripts go through one string tool.
    `unified_exec`: sessions for every model (True), for none (False), or as its profile says (None). `multi_agent`: the
    model may start sub-agents."""

    shell_tool: bool = True
    shell_zsh_fork: bool = False
    unified_exec: bool | None = None
    multi_agent: bool = False


class AgentRole(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A kind of sub-agent. What is None is as in the session that starts it; wider rights than its are narrowed to
    them. `instructions` are read after the base instructions."""

    description: str = ""
    model: str | None = None
    tools: tuple[str, ...] | None = None
    instructions: str | None = None
    sandbox_mode: SandboxMode | None = None
    approval_policy: AskForApproval | None = None


class Otel(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """OpenTelemetry. `enabled` None: spans and metrics are made where the program has set up an SDK. `contents`: also
    prompts, arguments and outputs. `propagate`: model and MCP servers are sent the trace's id."""

    enabled: bool | None = None
    contents: bool = False
    propagate: bool = False


class TuiSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The terminal interface. `theme` None: the terminal's own colours. `keys`: other keys for what it does, by name,
    several with commas between. `notifications`: tell by the terminal what happens while nobody looks."""

    theme: str | None = None
    keys: dict[str, str] = {}
    notifications: bool = True


class SkillSwitch(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One skill, by its name or the path of its folder or `SKILL.md`, and whether it is used."""

    name: str | None = None
    path: str | None = None
    enabled: bool = True


class SkillChoices(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which skills are used: none at all, or all but those that are switched off."""

    enabled: bool = True
    config: tuple[SkillSwitch, ...] = ()


class GatewayContainers(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Containers of `ferrule serve`. `idle_timeout_sec`: a container ends after so long without use.
    `cell_timeout_sec`: how long Python code or a command may run that names no limit. `spares`: containers that are
    kept ready. `image`: one that was imported, instead of the machine's own programs."""

    image: str | None = None
    idle_timeout_sec: Seconds = 1200.0
    cell_timeout_sec: Seconds = 120.0
    spares: Count = 1


class GatewayNetwork(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What `ferrule serve` lets containers, pages and MCP servers reach. `allowed_domains` bounds what any request may
    name; None: any public name. `ca_file` holds further roots. `hosts`: a "name:port" that stands for exactly one
    "address:port", private or not; it permits nothing."""

    allowed_domains: tuple[str, ...] | None = None
    ca_file: str | None = None
    hosts: dict[str, str] = {}


class GatewaySettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`ferrule serve`. `allowed_hosts`: names under which it is reached besides its address. `max_concurrent`: how many
    responses of one key run at once. `keep_days`: how long responses are kept. `max_upload_bytes`: the largest file."""

    bind: str = "127.0.0.1:8787"
    allowed_hosts: tuple[str, ...] = ()
    max_body_bytes: Positive = 32 << 20
    max_upload_bytes: Positive = 512 << 20
    max_concurrent: Positive = 1024
    keep_days: Positive = 30
    containers: GatewayContainers = GatewayContainers()
    network: GatewayNetwork = GatewayNetwork()


Confirmation = Literal["always", "never", "risky"]
HookName = Literal[
    "PreToolUse",
    "PermissionRequest",
    "PostToolUse",
    "PreCompact",
    "PostCompact",
    "UserPromptSubmit",
    "SessionStart",
    "Stop",
]


class HookProgram(msgspec.Struct, frozen=True, kw_only=True):
    """A command that gets JSON on its standard input. `matcher` is a regular expression for the tool's name (empty:
    all); `timeout` is in seconds."""

    command: str
    matcher: str = ""
    timeout: Seconds = 60.0


class HookCommand(HookProgram, frozen=True, kw_only=True):
    """A command run at an event. `of_project`: it comes from the project, not the user, and cannot approve what the
    user must be asked about."""

    event: HookName
    of_project: bool = False


class HookPrograms(msgspec.Struct, frozen=True):
    """The confirmed programs that a project's hooks start: the project's top, SHA-256 digests by path."""

    top: str
    digests: dict[str, str] = {}


class ProjectText(msgspec.Struct, frozen=True):
    """A file of the project, read once and confirmed by the user: command rules, or a skill."""

    path: str
    data: bytes


class Choices(msgspec.Struct, frozen=True, kw_only=True):
    """The settings that `config.toml` has under the same names."""

    profile: str | None = None
    """A tool profile that overrides the model's."""
    tools: tuple[str, ...] | None = None
    """Names, globs or `/regex/` of tools that override the profile's."""
    python: str | None = None
    """The interpreter of the tool `python`: a path, or a name in PATH."""
    instructions: str | None = None
    """Replaces the base instructions."""
    project_doc_fallback_filenames: tuple[FileName, ...] = ()
    """Files that are read where a folder has no AGENTS.md, such as CLAUDE.md."""
    project_doc_max_bytes: Count = PROJECT_DOC_BYTES
    """How much of all AGENTS.md files is read."""
    max_turns: Positive | None = None
    """How many times the model may be asked in one turn."""
    max_tool_calls: Positive | None = None
    """How many tool calls may be made in one turn."""
    run_max_tool_calls: Positive | None = None
    """How many tool calls may be made in one session."""
    turn_token_budget: Positive | None = None
    """How many tokens the requests of one turn may take, input and output."""
    run_token_budget: Positive | None = None
    """How many tokens the requests of one session may take, input and output."""
    turn_cost_budget: Money | None = None
    """What the requests of one turn may cost, by `prices`."""
    run_cost_budget: Money | None = None
    """What the requests of one session may cost, by `prices`."""
    prices: dict[str, Prices] = {}
    """Prices by the model's name, or a glob for it."""
    turn_timeout: Seconds | None = None
    """Seconds that one turn may take."""
    run_timeout: Seconds | None = None
    """Seconds that a headless run may take, from its start."""
    unusable_answer_retries: Count = 2
    """How many times in a row to ask again after an empty answer, or a call that the server could not parse."""
    same_failure_hint: Positive = 3
    """The repetition at which the model is told that the same call has failed the same way before."""
    same_failure_limit: Positive = 6
    """How often the same call may fail the same way before the turn ends."""
    features: Features = Features()
    skills: SkillChoices = SkillChoices()
    agents: dict[str, AgentRole] = {}
    """The kinds of sub-agents, by name."""
    agent_max_depth: Positive = 1
    """How deep sub-agents may be nested; at this depth they have no tools to start others."""
    agent_max_threads: Positive = 6
    """How many sub-agents may run at once."""
    snapshots: bool = False
    """Undo covers what commands change in the workspace."""
    snapshot_max_bytes: Positive = 256 * 1024 * 1024
    """How much the files of a snapshot may hold: source trees have a tenth of it, and each workspace is kept once."""
    snapshot_max_files: Positive = 50_000
    """How many files a snapshot may have: looking at them again takes half a second."""
    snapshot_timeout: Seconds = 10.0
    """Seconds that a snapshot may take."""
    mcp_servers: dict[str, McpServerSettings] = {}
    """MCP servers whose tools the session offers, by name."""
    embeddings: EmbeddingsSettings = EmbeddingsSettings()
    file_search: FileSearchSettings = FileSearchSettings()
    computer: ComputerSettings = ComputerSettings()
    image_generation: ImageGenerationSettings | None = None
    """Who makes images from here; None: nobody."""
    otel: Otel = Otel()
    tui: TuiSettings = TuiSettings()
    gateway: GatewaySettings = GatewaySettings()
    accept_no_sandbox: bool = False
    """Without a sandbox on this machine, commands run unconfined instead of being refused."""


class Settings(Choices, frozen=True, kw_only=True):
    """All settings of a session. Paths are absolute."""

    cwd: str
    home: str
    """Where Ferrule keeps its own files (`FERRULE_HOME`)."""
    model: ModelSettings = ModelSettings()
    provider: ProviderSettings | None = None
    approval_policy: AskForApproval = AskForApproval.ON_REQUEST
    sandbox_policy: SandboxPolicy = WorkspaceWrite()
    caches: bool = False
    """In workspace-write mode, build tools get a cache for this project below `home`."""
    shell_environment_policy: ShellEnvironmentPolicy = ShellEnvironmentPolicy()
    hosted_tools: tuple[HostedTool, ...] = ()
    """Additional tools that the provider runs; a provider without them is not sent them."""
    web_search: WebSearchSettings | None = None
    """How the web is searched from here; None: not at all."""
    output_schema: dict[str, object] | None = None
    tool_output_tokens: int | None = None
    """Budget of one tool output instead of the profile's, in tokens of 4 bytes."""
    ephemeral: bool = False
    """No rollout is written."""
    trusted: bool = False
    """The project's own configuration applies."""
    project: str | None = None
    """The top folder of the trusted project."""
    project_chose: frozenset[str] = frozenset()
    """Which of `profile` and `tools` the project has set."""
    hook_programs: HookPrograms | None = None
    """The programs its hooks may start: one that has changed since is not run."""
    project_rules: tuple[ProjectText, ...] = ()
    """Its command rules, as confirmed by the user."""
    project_skills: tuple[ProjectText, ...] = ()
    """Its skills, as confirmed by the user."""
    hooks: tuple[HookCommand, ...] = ()
    named_servers: frozenset[str] = frozenset()
    """MCP servers that the user's code or command line names without an `approval`: where nobody can be asked, naming
    them is the permission to call them."""
    confirmation: Confirmation = "never"
    """Whether a call's risk alone requires confirmation: always, never, or if it is high or unknown."""

    @property
    def provider_name(self) -> str:
        """The provider's name; empty if none is configured."""
        return self.provider.name if self.provider else ""

    @property
    def compaction(self) -> CompactedBy:
        """Who summarises a conversation that fills the window."""
        return (self.provider.compaction if self.provider else None) or "local"

    @property
    def stream_retries(self) -> int:
        """How often to ask again when an answer breaks off."""
        return self.provider.stream_max_retries if self.provider else 0

    @property
    def command_environment(self) -> ShellEnvironmentPolicy:
        """The policy for commands and hooks; it withholds every variable that a setting names as a secret."""
        policy = self.shell_environment_policy
        search_key = self.web_search.key_variable if self.web_search else None
        providers = [self.provider] if self.provider else []
        image_key = self.image_generation.env_key if self.image_generation else None
        named = secret_variables(providers, self.mcp_servers.values(), search_key, self.embeddings.env_key, image_key)
        return msgspec.structs.replace(policy, secrets=policy.secrets | named)


class _Keyed(Protocol):
    """The credentials of a provider, in the configuration as in the settings."""

    @property
    def env_key(self) -> str | None: ...
    @property
    def env_http_headers(self) -> Mapping[str, str]: ...


def secret_variables(
    providers: Iterable[_Keyed], servers: Iterable[McpServerSettings], *keys: str | None
) -> frozenset[str]:
    """Return the names of all variables that hold a secret of a model provider or an MCP server, with `keys`, those of
    other settings."""
    called = [(provider.env_key, provider.env_http_headers) for provider in providers]
    for server in servers:
        called.append((server.bearer_token_env_var, server.env_http_headers))
        if server.oauth is not None:
            called.append((server.oauth.client_secret_env_var, {}))
    called += [(key, {}) for key in keys]
    return frozenset(name for key, headers in called for name in (key, *headers.values()) if name)
