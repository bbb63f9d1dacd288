"""Every key of the configuration arrives in the settings."""

from ferrule.protocol.computer_settings import ComputerSettings
from ferrule.protocol.embedding_settings import EmbeddingsSettings, FileSearchSettings
from ferrule.protocol.environment_policy import ShellEnvironmentPolicy
from ferrule.protocol.image_settings import ImageGenerationSettings
from ferrule.protocol.mcp_settings import McpServerSettings
from ferrule.protocol.permissions import AskForApproval, WorkspaceWrite
from ferrule.protocol.prices import Prices
from ferrule.protocol.settings import (
    GatewayNetwork,
    GatewaySettings,
    HookCommand,
    ModelSettings,
    Otel,
    ProviderSettings,
    SkillChoices,
    SkillSwitch,
    TuiSettings,
)
from tests.config.home import Home

EVERY_KEY = """
model = "m"
model_provider = "mine"
model_reasoning_effort = "high"
model_reasoning_summary = "detailed"
model_verbosity = "low"
model_context_window = 1000
model_max_output_tokens = 200
model_temperature = 1
parallel_tool_calls = false
instructions = "Be brief."
approval_policy = "untrusted"
sandbox_mode = "workspace-write"
accept_no_sandbox = true
profile = "all"
tools = ["shell_command", "read_*"]
python = "~/bin/python3"
tool_output_token_limit = 500
max_turns = 9
max_tool_calls = 8
run_max_tool_calls = 7
turn_token_budget = 6
run_token_budget = 5
turn_cost_budget = 4
run_cost_budget = 0.5
turn_timeout = 60
run_timeout = 1.5
snapshots = true
snapshot_max_bytes = 12
snapshot_max_files = 13
snapshot_timeout = 14
[prices."m*"]
input = 1
output = 2.5
cached_input = 0
[model_providers.mine]
name = "My server"
base_url = "http://localhost:1/v1"
env_key = "MY_KEY"
env_key_instructions = "Ask Ann."
wire_api = "responses"
query_params = { v = "1" }
http_headers = { x = "y" }
env_http_headers = { z = "Z" }
request_max_retries = 1
stream_max_retries = 2
stream_idle_timeout_ms = 3
tool_calls = "text"
profile = "ollama"
[sandbox_workspace_write]
writable_roots = ["/srv"]
network_access = true
exclude_tmpdir_env_var = true
exclude_slash_tmp = true
[shell_environment_policy]
inherit = "core"
ignore_default_excludes = true
include = ["A_KEY"]
exclude = ["B*"]
set = { C = "1" }
include_only = ["A*"]
[mcp_servers.docs]
command = "docs-server"
args = ["--stdio"]
[embeddings]
base_url = "http://localhost:2/v1"
model = "e5"
env_key = "E_KEY"
memory_bytes = 18
[file_search]
folders = ["~/notes", "docs"]
[computer]
start_url = "http://shop.example/"
display_width = 800
display_height = 600
browser = "/opt/chromium"
[image_generation]
base_url = "http://localhost:3/v1"
env_key = "I_KEY"
model = "flux"
models = { gpt-image-1 = "flux" }
timeout_sec = 60
[tui]
theme = "nord"
keys = { unfold = "f2" }
notifications = false
[otel]
enabled = false
contents = true
[gateway]
bind = "127.0.0.1:0"
allowed_hosts = ["gateway.example"]
max_body_bytes = 15
max_upload_bytes = 16
max_concurrent = 16
keep_days = 17
[gateway.network]
allowed_domains = ["*.example.com"]
ca_file = "roots.pem"
hosts = { "a.example.com:443" = "127.0.0.1:1" }
[skills]
enabled = false
config = [{ name = "saw", enabled = false }, { path = "~/glue" }]
[[hooks.PreToolUse]]
matcher = "shell"
command = "check"
timeout = 1.5
"""
SECRETS = frozenset({"MY_KEY", "Z", "E_KEY", "I_KEY"})
EVERY_SETTING = {
    "model": ModelSettings(
        model="m", reasoning_effort="high", reasoning_summary="detailed", verbosity="low", parallel_tool_calls=False,
        max_output_tokens=200, temperature=1.0, context_window=1000,
    ),
    "provider": ProviderSettings(
        name="mine", base_url="http://localhost:1/v1", env_key="MY_KEY", env_key_instructions="Ask Ann.",
        wire_api="responses", query_params={"v": "1"}, http_headers={"x": "y"}, env_http_headers={"z": "Z"},
        request_max_retries=1, stream_max_retries=2, stream_idle_timeout_ms=3, tool_calls="text", profile="ollama",
    ),
    "instructions": "Be brief.",
    "approval_policy": AskForApproval.UNTRUSTED,
    "sandbox_policy": WorkspaceWrite(("/srv",), True, True, True),
    "shell_environment_policy": ShellEnvironmentPolicy(
        inherit="core", ignore_default_excludes=True, include=("A_KEY",), exclude=("B*",), set={"C": "1"},
        include_only=("A*",), secrets=SECRETS,
    ),
    "accept_no_sandbox": True,
    "profile": "all",
    "tools": ("shell_command", "read_*"),
    "python": "~/bin/python3",
    "tool_output_tokens": 500,
    "max_turns": 9,
    "max_tool_calls": 8,
    "run_max_tool_calls": 7,
    "turn_token_budget": 6,
    "run_token_budget": 5,
    "turn_cost_budget": 4,
    "run_cost_budget": 0.5,
    "turn_timeout": 60,
    "run_timeout": 1.5,
    "snapshots": True,
    "snapshot_max_bytes": 12,
    "snapshot_max_files": 13,
    "snapshot_timeout": 14,
    "prices": {"m*": Prices(input=1, output=2.5, cached_input=0)},
    "mcp_servers": {"docs": McpServerSettings(command="docs-server", args=("--stdio",))},
    "embeddings": EmbeddingsSettings(base_url="http://localhost:2/v1", model="e5", env_key="E_KEY", memory_bytes=18),
    "file_search": FileSearchSettings(folders=("~/notes", "docs")),
    "computer": ComputerSettings(
        start_url="http://shop.example/", display_width=800, display_height=600, browser="/opt/chromium"
    ),
    "image_generation": ImageGenerationSettings(
        base_url="http://localhost:3/v1", env_key="I_KEY", model="flux", models={"gpt-image-1": "flux"}, timeout_sec=60
    ),
    "tui": TuiSettings(theme="nord", keys={"unfold": "f2"}, notifications=False),
    "otel": Otel(enabled=False, contents=True),
    "gateway": GatewaySettings(
        bind="127.0.0.1:0", allowed_hosts=("gateway.example",), max_body_bytes=15, max_upload_bytes=16,
        max_concurrent=16, keep_days=17,
        network=GatewayNetwork(
            allowed_domains=("*.example.com",), ca_file="roots.pem", hosts={"a.example.com:443": "127.0.0.1:1"}
        ),
    ),
    "skills": SkillChoices(
        enabled=False, config=(SkillSwitch(name="saw", enabled=False), SkillSwitch(path="~/glue"))
    ),
    "hooks": (HookCommand(event="PreToolUse", command="check", matcher="shell", timeout=1.5),),
}  # fmt: skip


def test_every_key_arrives(home: Home) -> None:
    settings = home.user(EVERY_KEY).load().settings
    assert {name: getattr(settings, name) for name in EVERY_SETTING} == EVERY_SETTING
    assert settings.command_environment.secrets == SECRETS
