"""From files, `-c` and flags to settings."""

from pathlib import Path

import msgspec
import pytest

from ferrule.config import Layer
from ferrule.process.environment import child_environment
from ferrule.protocol.errors import UsageError
from ferrule.protocol.permissions import (
    AskForApproval,
    DangerFullAccess,
    InContainer,
    InContainerReadOnly,
    ReadOnly,
    WorkspaceWrite,
)
from ferrule.protocol.settings import ModelSettings, ProviderSettings, Settings
from tests.config.home import Home


def test_defaults(home: Home) -> None:
    loaded = home.load()
    settings = loaded.settings
    assert (settings.cwd, settings.home) == (str(home.project / "sub"), str(home.path))
    assert settings.approval_policy is AskForApproval.ON_REQUEST
    assert settings.sandbox_policy == WorkspaceWrite()
    assert settings.provider is None and settings.model == ModelSettings()
    assert not settings.trusted and settings.project is None and loaded.warnings == ()


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


def test_a_container_and_its_image(home: Home) -> None:
    home.user(
        'sandbox_mode = "container"\n[container]\nimage = "small"\n[sandbox_workspace_write]\nwritable_roots = ["/a"]'
    )
    assert home.load().settings.sandbox_policy == InContainer(image="small", writable_roots=("/a",))
    home.user('sandbox_mode = "container"\n[container]\nread_only = true')
    assert home.load(add_dirs=("/b",)).settings.sandbox_policy == InContainerReadOnly(folders=("/b",))


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
