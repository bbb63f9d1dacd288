"""From files, `-c` and flags to settings."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from ferrule.config import Configuration, Layer, Sources, load
from ferrule.config.trust import TrustRecords
from ferrule.process.environment import child_environment
from ferrule.protocol.computer_settings import ComputerSettings
from ferrule.protocol.embedding_settings import EmbeddingsSettings, FileSearchSettings
from ferrule.protocol.environment_policy import ShellEnvironmentPolicy
from ferrule.protocol.errors import UsageError
from ferrule.protocol.image_settings import ImageGenerationSettings
from ferrule.protocol.mcp_settings import McpServerSettings
from ferrule.protocol.permissions import (
    AskForApproval,
    DangerFullAccess,
    InContainer,
    InContainerReadOnly,
    ReadOnly,
    WorkspaceWrite,
)
from ferrule.protocol.prices import Prices
from ferrule.protocol.settings import (
    GatewayNetwork,
    GatewaySettings,
    HookCommand,
    ModelSettings,
    Otel,
    ProviderSettings,
    Settings,
    SkillChoices,
    SkillSwitch,
    TuiSettings,
)


class Home:
    """A home of Ferrule and a project beside it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "home"
        self.project = folder / "project"
        self.path.mkdir()
        (self.project / ".git").mkdir(parents=True)
        (self.project / "sub").mkdir()

    def user(self, text: str) -> "Home":
        (self.path / "config.toml").write_text(text)
        return self

    def in_project(self, text: str) -> "Home":
        (self.project / ".ferrule").mkdir(exist_ok=True)
        (self.project / ".ferrule" / "config.toml").write_text(text)
        return self

    @property
    def trust(self) -> str:
        return f'[projects."{self.project}"]\ntrust_level = "trusted"\n'

    def confirm(self) -> "Home":
        """As the user does after a change."""
        TrustRecords(str(self.path)).confirm(str(self.project), self.load().unconfirmed, "trusted")
        return self

    def load(self, *assignments: str, **more: Any) -> Configuration:
        sources = Sources(cwd=str(self.project / "sub"), assignments=assignments, **more)
        return load(sources, {"FERRULE_HOME": str(self.path)})


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path.resolve())


def test_defaults(home: Home) -> None:
    loaded = home.load()
    settings = loaded.settings
    assert (settings.cwd, settings.home) == (str(home.project / "sub"), str(home.path))
    assert settings.approval_policy is AskForApproval.ON_REQUEST
    assert settings.sandbox_policy == WorkspaceWrite()
    assert settings.provider is None and settings.model == ModelSettings()
    assert not settings.trusted and settings.project is None and loaded.warnings == ()


def test_every_key_arrives(home: Home) -> None:
    home.user("""
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
""")
    loaded = home.load()
    settings = loaded.settings
    switches = (SkillSwitch(name="saw", enabled=False), SkillSwitch(path="~/glue"))
    assert settings.skills == SkillChoices(enabled=False, config=switches)
    assert settings.model == ModelSettings(
        model="m", reasoning_effort="high", reasoning_summary="detailed", verbosity="low", parallel_tool_calls=False,
        max_output_tokens=200, temperature=1.0, context_window=1000,
    )  # fmt: skip
    assert settings.provider == ProviderSettings(
        name="mine", base_url="http://localhost:1/v1", env_key="MY_KEY", env_key_instructions="Ask Ann.",
        wire_api="responses", query_params={"v": "1"}, http_headers={"x": "y"}, env_http_headers={"z": "Z"},
        request_max_retries=1, stream_max_retries=2, stream_idle_timeout_ms=3, tool_calls="text", profile="ollama",
    )  # fmt: skip
    assert settings.sandbox_policy == WorkspaceWrite(("/srv",), True, True, True)
    assert settings.shell_environment_policy == ShellEnvironmentPolicy(
        inherit="core", ignore_default_excludes=True, include=("A_KEY",), exclude=("B*",), set={"C": "1"},
        include_only=("A*",), secrets=frozenset({"MY_KEY", "Z", "E_KEY", "I_KEY"}),
    )  # fmt: skip
    assert settings.approval_policy is AskForApproval.UNTRUSTED and settings.accept_no_sandbox
    assert (settings.profile, settings.tools, settings.instructions) == (
        "all", ("shell_command", "read_*"), "Be brief.",
    )  # fmt: skip
    assert settings.python == "~/bin/python3"
    assert (settings.tool_output_tokens, settings.max_turns) == (500, 9)
    assert (settings.max_tool_calls, settings.run_max_tool_calls) == (8, 7)
    assert (settings.turn_token_budget, settings.run_token_budget) == (6, 5)
    assert (settings.turn_cost_budget, settings.run_cost_budget) == (4, 0.5)
    assert settings.prices == {"m*": Prices(input=1, output=2.5, cached_input=0)}
    assert (settings.turn_timeout, settings.run_timeout) == (60, 1.5)
    assert settings.snapshots and (settings.snapshot_max_bytes, settings.snapshot_max_files) == (12, 13)
    assert settings.snapshot_timeout == 14
    assert settings.mcp_servers == {"docs": McpServerSettings(command="docs-server", args=("--stdio",))}
    assert settings.embeddings == EmbeddingsSettings(
        base_url="http://localhost:2/v1", model="e5", env_key="E_KEY", memory_bytes=18
    )
    assert settings.file_search == FileSearchSettings(folders=("~/notes", "docs"))
    assert settings.computer == ComputerSettings(
        start_url="http://shop.example/", display_width=800, display_height=600, browser="/opt/chromium"
    )
    assert settings.image_generation == ImageGenerationSettings(
        base_url="http://localhost:3/v1", env_key="I_KEY", model="flux", models={"gpt-image-1": "flux"}, timeout_sec=60
    )
    assert settings.command_environment.secrets == {"MY_KEY", "Z", "E_KEY", "I_KEY"}
    assert settings.tui == TuiSettings(theme="nord", keys={"unfold": "f2"}, notifications=False)
    assert settings.otel == Otel(enabled=False, contents=True)
    assert settings.gateway == GatewaySettings(
        bind="127.0.0.1:0",
        allowed_hosts=("gateway.example",),
        max_body_bytes=15,
        max_upload_bytes=16,
        max_concurrent=16,
        keep_days=17,
        network=GatewayNetwork(
            allowed_domains=("*.example.com",), ca_file="roots.pem", hosts={"a.example.com:443": "127.0.0.1:1"}
        ),
    )
    assert settings.hooks == (HookCommand(event="PreToolUse", command="check", matcher="shell", timeout=1.5),)


def test_layers_win_in_order(home: Home) -> None:
    home.user(home.trust).in_project('model = "project"')
    assert home.load(defaults={"model": "door"}).settings.model.model == "project"
    assert home.load("model=assigned").settings.model.model == "assigned"
    flag = Layer("-m", {"model": "flag"})
    assert home.load("model=assigned", flags=(flag,)).settings.model.model == "flag"
    home.user('model = "user"')
    assert home.load(defaults={"model": "door"}).settings.model.model == "user"


@pytest.mark.parametrize(
    ("text", "key", "value"),
    [
        ("model=gpt-5.5", "model", "gpt-5.5"),
        ('model="a = b"', "model", "a = b"),
        (" model = x y ", "model", "x y"),
        ("model=a\nmax_turns=3", "model", "a\nmax_turns=3"),
    ],
)
def test_assigned_text_is_toml_or_plain(home: Home, text: str, key: str, value: str) -> None:
    assert getattr(home.load(text).settings.model, key) == value


def test_assigned_tables_are_joined_with_the_file(home: Home) -> None:
    home.user('[model_providers.mine]\nbase_url = "http://localhost:1/v1"\nenv_key = "K"')
    provider = home.load("model_provider=mine", 'model_providers.mine.http_headers={a="b"}').settings.provider
    assert provider is not None
    assert (provider.env_key, provider.http_headers) == ("K", {"a": "b"})


def test_a_base_url_is_a_provider_of_its_own(home: Home) -> None:
    home.user('model_provider = "mine"\n[model_providers.mine]\nbase_url = "http://a/v1"\nenv_key = "SECRET_OF_A"')
    provider = home.load(base_url="http://b/v1", wire="chat").settings.provider
    assert provider == ProviderSettings(name="server", base_url="http://b/v1", wire_api="chat")


def test_no_more_than_a_wire_means_whose_wire_it_is(home: Home) -> None:
    assert home.load(wire="messages").settings.provider == ProviderSettings(name="anthropic", wire_api="messages")
    assert home.load(wire="chat").settings.provider == ProviderSettings(name="openai", wire_api="chat")


def test_added_directories_join_the_roots(home: Home) -> None:
    home.user('[sandbox_workspace_write]\nwritable_roots = ["/srv"]')
    loaded = home.load(add_dirs=("/opt",))
    assert (loaded.settings.sandbox_policy, loaded.warnings) == (WorkspaceWrite(("/srv", "/opt")), ())


def test_added_directories_are_told_where_they_change_nothing(home: Home) -> None:
    home.user('sandbox_mode = "read-only"')
    assert home.load().warnings == ()
    (warning,) = home.load(add_dirs=("/opt",)).warnings
    assert "so /opt stays as it is" in warning


WRONG = {
    "unknown": ('modle = "m"', "unknown key modle; did you mean model?"),
    "unknown with dash": ('sandbox-mode = "read-only"', "did you mean sandbox_mode?"),
    "unknown below": (
        '[model_providers.mine]\nbaseurl = "x"',
        "unknown key model_providers.mine.baseurl; did you mean base_url?",
    ),
    "unknown without a near one": (
        '[projects."/p"]\nzzz = 1',
        'unknown key projects."/p".zzz; known here are trust_level',
    ),
    "type": ("model = 5", "model must be a string, not 5"),
    "type below": (
        "[model_providers.mine]\nrequest_max_retries = \"many\"",
        "model_providers.mine.request_max_retries must be a whole number of at least 0, not 'many'",
    ),
    "start_url": ('[computer]\nstart_url = "file:///etc"', "computer.start_url must be an address that begins with"),
    "display": ("[computer]\ndisplay_width = 10", "a whole number of at least 200 and at most 4096"),
    "bool": ("[sandbox_workspace_write]\ncaches = 1", "caches must be true or false, not 1"),
    "bool or list": (
        "[sandbox_workspace_write]\nnetwork_access = 1",
        "network_access must be true or false or a list of strings, not 1",
    ),
    "enum": (
        'sandbox_mode = "all"',
        "sandbox_mode must be one of read-only, workspace-write, container, danger-full-access, not 'all'",
    ),
    "literal": ('model_verbosity = "loud"', "model_verbosity must be one of low, medium, high, not 'loud'"),
    "range": ("max_turns = 0", "max_turns must be a whole number of at least 1, not 0"),
    "list": ('tools = "all"', "tools must be a list of strings, not 'all'"),
    "table": ('projects = "here"', "projects must be a table, not 'here'"),
    "scalar": ("model = { a = 1 }", "model must be a string, not a table"),
    "tables": ("[hooks]\nStop = 1", "hooks.Stop must be a list of tables, not 1"),
    "text": ("[shell_environment_policy.set]\nA = 1", "shell_environment_policy.set.A must be a string, not 1"),
    "relative root": ('[sandbox_workspace_write]\nwritable_roots = ["x"]', "'x' must be an absolute path"),
}  # fmt: skip


LISTS = {
    "network_access = []": "network_access: an empty list allows no domain: name some",
    'network_access = ["*"]': "network_access: '*' would allow every domain",
    'network_access = ["ok.example.com", "10.0.0.1"]': "network_access: '10.0.0.1' is an address",
    'network_access = ["[::1]"]': "network_access: '[::1]' is an address",
    'network_access = ["https://ok.example.com"]': "network_access: 'https://ok.example.com' is a URL",
    'network_access = ["ok.example.com:443"]': "network_access: 'ok.example.com:443' has a port",
    'network_access = ["me@ok.example.com"]': "network_access: 'me@ok.example.com' has a user name",
    'network_access = ["ok.*.com"]': "network_access: 'ok.*.com' is not a domain",
    'network_access = "ok.example.com"': "must be true or false or a list of strings, not 'ok.example.com'",
    'hosts = {"ok.example.com" = "127.0.0.1:1"}': "hosts: 'ok.example.com' is not of the form 'name:port'",
    'hosts = {"ok.example.com:443" = "other.example.com:1"}': "'other.example.com:1' is not of the form 'address:port'",
    'hosts = {"ok.example.com:443" = 1}': "must be a string, not 1",
    'ca_file = "roots.pem"': "ca_file: 'roots.pem' must be an absolute path",
    'ca_file = "/nonexistent/roots.pem"': "ca_file: /nonexistent/roots.pem is not a file",
}


@pytest.mark.parametrize("line", LISTS)
def test_what_is_wrong_with_a_list_of_domains_is_said(home: Home, line: str) -> None:
    home.user(f"[sandbox_workspace_write]\n{line}")
    with pytest.raises(UsageError) as caught:
        home.load()
    assert f"sandbox_workspace_write.{line.split(maxsplit=1)[0]}" in str(caught.value)
    assert LISTS[line] in str(caught.value)
    home.user("")
    with pytest.raises(UsageError):
        home.load(f"sandbox_workspace_write.{line}")


def test_a_list_of_domains(home: Home, tmp_path: Path) -> None:
    roots = tmp_path / "roots.pem"
    roots.touch()
    home.user(
        f'[sandbox_workspace_write]\nnetwork_access = ["OK.example.com.", "*.example.org"]\nca_file = "{roots}"\n'
        '[sandbox_workspace_write.hosts]\n"ok.example.com:443" = "127.0.0.1:41234"'
    )
    policy = home.load().settings.sandbox_policy
    assert policy == WorkspaceWrite(
        network_access=("OK.example.com.", "*.example.org"),
        hosts={"ok.example.com:443": "127.0.0.1:41234"},
        ca_file=str(roots),
    )
    assert home.load('sandbox_workspace_write.network_access=["a.example"]').settings.sandbox_policy == (
        msgspec.structs.replace(policy, network_access=("a.example",))
    )
    assert home.load("sandbox_mode=read-only").settings.sandbox_policy == ReadOnly()
    names, hosts, ca_file = policy.network_access, policy.hosts, policy.ca_file
    contained = InContainer(network_access=names, hosts=hosts, ca_file=ca_file)
    assert home.load("sandbox_mode=container").settings.sandbox_policy == contained
    read_only = home.load("sandbox_mode=container", "container.read_only=true").settings.sandbox_policy
    assert read_only == InContainerReadOnly(network_access=names, hosts=hosts, ca_file=ca_file)


def test_a_list_never_becomes_the_whole_network(home: Home) -> None:
    home.user('sandbox_mode = "danger-full-access"\n[sandbox_workspace_write]\nnetwork_access = ["ok.example.com"]')
    with pytest.raises(UsageError, match="danger-full-access cannot keep"):
        home.load()
    assert home.load("sandbox_workspace_write.network_access=true").settings.sandbox_policy == DangerFullAccess()


def test_images_are_made_here_or_by_the_provider(home: Home) -> None:
    home.user('hosted_tools = ["image_generation"]\n[image_generation]\nbase_url = "http://localhost:1/v1"')
    with pytest.raises(UsageError, match="out of hosted_tools"):
        home.load()


@pytest.mark.parametrize("case", WRONG)
def test_what_is_wrong_is_said_with_file_and_key(home: Home, case: str) -> None:
    text, words = WRONG[case]
    home.user(text)
    with pytest.raises(UsageError) as caught:
        home.load()
    assert words in str(caught.value)
    if case != "relative root":
        assert str(home.path / "config.toml") in str(caught.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"model = ", "is not valid TOML"), (b"model = '\xff'", "is not UTF-8 text: byte 9 is 0xff")],
)
def test_an_unreadable_file_is_said(home: Home, content: bytes, words: str) -> None:
    (home.path / "config.toml").write_bytes(content)
    with pytest.raises(UsageError, match=words):
        home.load()


def test_a_folder_in_place_of_the_file(home: Home) -> None:
    (home.path / "config.toml").mkdir()
    with pytest.raises(UsageError, match=r"config\.toml is a folder, not a file"):
        home.load()


@pytest.mark.parametrize("text", ["model", "=x", "a b=1", "[x]=1", "modle=x"])
def test_a_bad_assignment_is_said(home: Home, text: str) -> None:
    with pytest.raises(UsageError, match="-c"):
        home.load(text)


def test_a_project_is_read_only_after_the_user_trusts_it(home: Home) -> None:
    home.in_project('model = "theirs"\nthis is not TOML')
    loaded = home.load()
    assert loaded.settings.model.model is None and not loaded.settings.trusted
    (warning,) = loaded.warnings
    assert f"`ferrule trust -C {home.project}`" in warning and ".ferrule/config.toml" in warning
    home.user(f'[projects."{home.project}"]\ntrust_level = "untrusted"')
    assert home.load().warnings == ()
    loaded = home.user(home.trust).load()
    (warning,) = loaded.warnings
    assert "project/.ferrule/config.toml is not valid TOML" in warning and loaded.settings.trusted


def test_an_empty_folder_of_the_project_is_not_worth_a_warning(home: Home) -> None:
    (home.project / ".ferrule").mkdir()
    assert home.load().warnings == ()
    (home.project / ".ferrule" / "hooks").mkdir()
    assert home.load().warnings == ()
    (home.project / ".ferrule" / "hooks" / "check").touch()
    assert len(home.load().warnings) == 1


def test_trust_cannot_be_given_by_the_project_or_for_a_repository_below(home: Home) -> None:
    home.user(home.trust)
    (home.project / "sub" / ".git").mkdir()
    (home.project / "sub" / ".ferrule").mkdir()
    (home.project / "sub" / ".ferrule" / "config.toml").write_text('model = "theirs"')
    loaded = home.load()
    assert loaded.settings.model.model is None and not loaded.settings.trusted


def test_a_trusted_project_may_narrow_rights(home: Home) -> None:
    home.user(home.trust).in_project('sandbox_mode = "read-only"\napproval_policy = "untrusted"\nmodel = "m"')
    loaded = home.load()
    assert loaded.settings.sandbox_policy == ReadOnly()
    assert loaded.settings.approval_policy is AskForApproval.UNTRUSTED
    assert loaded.settings.trusted and loaded.settings.project == str(home.project) and loaded.warnings == ()


@pytest.mark.parametrize(
    "line",
    [
        'sandbox_mode = "danger-full-access"',
        'approval_policy = "never"',
        'model_provider = "evil"',
        "accept_no_sandbox = true",
        '[model_providers.openai]\nbase_url = "http://evil/v1"\nenv_key = "AWS_SECRET"',
        '[projects."/"]\ntrust_level = "trusted"',
        '[sandbox_workspace_write]\nwritable_roots = ["/"]',
        "[shell_environment_policy]\nignore_default_excludes = true",
    ],
)
def test_a_trusted_project_never_widens_rights(home: Home, line: str) -> None:
    home.user(home.trust)
    before = home.load().settings
    loaded = home.in_project(line).confirm().load()
    assert loaded.settings == before
    (warning,) = loaded.warnings
    assert "is ignored" in warning


def test_a_project_may_have_the_rights_that_the_user_has(home: Home) -> None:
    home.user('sandbox_mode = "danger-full-access"\n' + home.trust).in_project('sandbox_mode = "workspace-write"')
    assert home.load().settings.sandbox_policy == WorkspaceWrite()
    home.in_project('sandbox_mode = "danger-full-access"').confirm()
    assert home.load().settings.sandbox_policy == DangerFullAccess()


def test_a_container_and_its_image(home: Home) -> None:
    home.user(
        'sandbox_mode = "container"\n[container]\nimage = "small"\n[sandbox_workspace_write]\nwritable_roots = ["/a"]'
    )
    assert home.load().settings.sandbox_policy == InContainer(image="small", writable_roots=("/a",))
    home.user('sandbox_mode = "container"\n[container]\nread_only = true')
    assert home.load(add_dirs=("/b",)).settings.sandbox_policy == InContainerReadOnly(folders=("/b",))


def test_the_users_own_folder_is_no_project(tmp_path: Path) -> None:
    (tmp_path / ".ferrule").mkdir()
    (tmp_path / ".ferrule" / "config.toml").write_text('model_provider = "mine"')
    loaded = load(Sources(cwd=str(tmp_path)), {"FERRULE_HOME": str(tmp_path / ".ferrule")})
    assert loaded.warnings == () and loaded.settings.provider == ProviderSettings(name="mine")


def test_a_project_adds_hooks_and_servers_but_changes_none_of_the_users(home: Home) -> None:
    home.user(
        home.trust
        + '[[hooks.PreToolUse]]\ncommand = "guard"\n[mcp_servers.docs]\ncommand = "docs"\napproval = "prompt"\n'
    ).in_project(
        '[[hooks.PreToolUse]]\ncommand = "theirs"\n[[hooks.PostToolUse]]\ncommand = "log"\n'
        '[mcp_servers.docs]\napproval = "allow"\n[mcp_servers.more]\ncommand = "more"\n'
    )
    loaded = home.load()
    assert [(hook.event, hook.command) for hook in loaded.settings.hooks] == [
        ("PreToolUse", "guard"),
        ("PreToolUse", "theirs"),
        ("PostToolUse", "log"),
    ]
    assert loaded.settings.mcp_servers == {
        "docs": McpServerSettings(command="docs", approval="prompt"),
        "more": McpServerSettings(command="more"),
    }
    (warning,) = loaded.warnings
    assert "mcp_servers.docs is ignored" in warning


def test_a_wrong_hook_is_named(home: Home) -> None:
    with pytest.raises(UsageError, match=r"the matcher '\(' of a Stop hook is not a regular expression"):
        home.user('[[hooks.Stop]]\ncommand = "x"\nmatcher = "("\n').load()
    with pytest.raises(UsageError, match="PreTool"):
        home.user('[[hooks.PreTool]]\ncommand = "x"\n').load()
    assert home.user('[[hooks.Stop]]\ncommand = "x"\nmatcher = "*"\n').load().settings.hooks[0].matcher == ""


def test_s22_every_setting_that_names_a_secret_withholds_it(home: Home) -> None:
    loaded = home.load(
        "model_provider=corp",
        'model_providers.corp={base_url="http://localhost:1", env_key="CORP", env_http_headers={X="CORP_HEADER"}}',
        'model_providers.other={base_url="http://localhost:1", env_key="OTHER"}',
        'mcp_servers.a={url="http://localhost:1", bearer_token_env_var="BEARER", env_http_headers={Y="MCP_HEADER"}}',
    ).settings
    names = {"CORP", "CORP_HEADER", "OTHER", "BEARER", "MCP_HEADER"}
    assert loaded.command_environment.secrets == names
    assert child_environment(loaded.command_environment, dict.fromkeys(names, "x")).withheld == tuple(sorted(names))


def test_s22_settings_made_in_python_withhold_too() -> None:
    settings = Settings(cwd="/", home="/h", provider=ProviderSettings(name="corp", env_key="CORP"))
    assert settings.command_environment.secrets == {"CORP"}
