"""From settings to a server: addresses, keys, wires, models; and the profiles behind them."""

import json
from pathlib import Path
from typing import Any

import pytest

from ferrule.model.chat.client import ChatModel
from ferrule.model.profiles import load_profiles
from ferrule.model.provider import choose_model, list_models, open_model
from ferrule.model.responses.client import ResponsesModel
from ferrule.model.stream import ModelError
from ferrule.model.wire import WireModel
from ferrule.protocol.errors import UsageError
from ferrule.protocol.settings import DEFAULT_MODEL, ProviderSettings
from ferrule.protocol.specs import Wire
from ferrule.protocol.truncation import OutputBudget
from tests.model.support import raw_server, reply

ENV = {"OPENAI_API_KEY": "sk-1", "AZURE_OPENAI_API_KEY": "az", "OPENROUTER_API_KEY": "or", "MINE": " m1\n", "EMPTY": ""}


def opened(wire: Wire | None = None, env: dict[str, str] | None = None, **settings: Any) -> WireModel:
    values: dict[str, Any] = {"name": "box"} | settings
    return open_model(ProviderSettings(**values), wire=wire, env=ENV if env is None else env)


def headers(model: WireModel) -> dict[str, str]:
    return model.server.endpoint.headers()


def test_without_settings_it_is_openai_if_there_is_a_key() -> None:
    model = open_model(env=ENV)
    assert isinstance(model, ResponsesModel)
    assert model.server.endpoint.base_url == "https://api.openai.com/v1"
    assert headers(model) == {"authorization": "Bearer sk-1"}
    with pytest.raises(UsageError, match=r"OPENAI_API_KEY.*Ollama.*--base-url.*base_url=.*ferrule demo"):
        open_model(env={})


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        ({"name": "openai"}, ResponsesModel),
        ({"name": "mine", "base_url": "https://api.openai.com/v1"}, ResponsesModel),
        ({"base_url": "https://x.openai.azure.com/openai/v1"}, ResponsesModel),
        ({"base_url": "http://localhost:11434/v1"}, ChatModel),
        ({"name": "ollama"}, ChatModel),
        ({"name": "openrouter"}, ChatModel),
        ({"base_url": "http://10.0.0.1:9/v1"}, ChatModel),
        ({"base_url": "http://10.0.0.1:9/v1", "wire_api": "responses"}, ResponsesModel),
        ({"name": "openai", "wire_api": "chat"}, ChatModel),
    ],
)
def test_the_wire_is_the_settings_or_the_providers(settings: dict[str, Any], kind: type[WireModel]) -> None:
    assert type(opened(**settings)) is kind
    assert type(opened("chat", **settings)) is ChatModel
    assert type(opened("responses", **settings)) is ResponsesModel


@pytest.mark.parametrize(
    ("settings", "sent"),
    [
        ({"name": "openai"}, {"authorization": "Bearer sk-1"}),
        ({"name": "openai", "base_url": "http://localhost:9/v1"}, {}),
        ({"name": "openai", "base_url": "https://api.openai.com.evil.com/v1"}, {}),
        ({"base_url": "http://localhost:9/v1"}, {}),
        ({"base_url": "https://openrouter.ai/api/v1"}, {"authorization": "Bearer or"}),
        ({"base_url": "https://x.openai.azure.com/openai/v1"}, {"api-key": "az"}),
        ({"base_url": "http://h/v1", "env_key": "MINE"}, {"authorization": "Bearer m1"}),
        (
            {
                "base_url": "http://h/v1",
                "http_headers": {"A": "b"},
                "env_http_headers": {"C": "MINE", "D": "EMPTY", "E": "NO"},
            },
            {"A": "b", "C": "m1"},
        ),
    ],
)
def test_a_key_goes_to_its_own_provider_only(settings: dict[str, Any], sent: dict[str, str]) -> None:
    assert headers(opened(**settings)) == sent


def test_a_missing_or_damaged_key_is_one_sentence() -> None:
    with pytest.raises(UsageError, match=r"Set OPENAI_API_KEY to your key for OpenAI"):
        headers(opened(name="openai", env={}))
    with pytest.raises(UsageError, match="Ask Bob"):
        headers(opened(base_url="http://h/v1", env_key="NO", env_key_instructions="Ask Bob."))
    with pytest.raises(UsageError, match="KEY holds characters"):
        headers(opened(base_url="http://h/v1", env_key="KEY", env={"KEY": "sk-“x”"}))


def test_a_key_is_read_for_each_request() -> None:
    env = {"KEY": "one"}
    model = opened(base_url="http://h/v1", env_key="KEY", env=env)
    env["KEY"] = "two"
    assert headers(model) == {"authorization": "Bearer two"}


@pytest.mark.parametrize(
    ("url", "base", "params"),
    [
        ("http://localhost:11434/v1/", "http://localhost:11434/v1", {}),
        (" https://h/v1/chat/completions", "https://h/v1", {}),
        ("https://h/v1/responses?api-version=2025-04-01", "https://h/v1", {"api-version": "2025-04-01"}),
        ("http://[::1]:8080", "http://[::1]:8080", {}),
    ],
)
def test_a_base_url_is_taken_as_people_write_it(url: str, base: str, params: dict[str, str]) -> None:
    endpoint = opened(base_url=url).server.endpoint
    assert (endpoint.base_url, endpoint.params) == (base, params)


@pytest.mark.parametrize("url", ["localhost:11434", "ftp://h", "http://", "http://h:99999/v1", "/v1"])
def test_a_base_url_that_is_none_is_named(url: str) -> None:
    with pytest.raises(UsageError, match="http://localhost:11434/v1"):
        opened(base_url=url)


def test_a_provider_without_an_address_and_an_unknown_profile_are_named() -> None:
    with pytest.raises(UsageError, match="'azure' has no base_url"):
        opened(name="azure")
    with pytest.raises(UsageError, match=r"no provider profile 'nope'.*ollama"):
        opened(base_url="http://h/v1", profile="nope")


@pytest.mark.parametrize(
    ("listed", "first"),
    [
        ({"object": "list", "data": [{"id": "nomic-embed-text"}, {"id": "qwen3"}, {"id": "b"}]}, "qwen3"),
        ({"models": [{"name": "llama3"}]}, "llama3"),
        (["x"], "x"),
        ({"data": [{"id": "only-embed"}]}, "only-embed"),
        ({"data": []}, DEFAULT_MODEL),
    ],
)
async def test_without_a_model_it_is_the_first_that_the_server_lists(listed: object, first: str) -> None:
    async with raw_server([reply("200 OK", json.dumps(listed).encode())]) as server:
        model = opened(base_url=server.base_url)
        assert await choose_model(model, None) == first
        await model.aclose()
    assert server.requests[0][0].startswith("GET /v1/models HTTP/1.1")


async def test_a_configured_model_asks_nobody() -> None:
    assert await choose_model(opened(base_url="http://127.0.0.1:1/v1"), "mine") == "mine"
    assert await choose_model(opened(name="openai"), None) == DEFAULT_MODEL


async def test_a_server_without_a_list_gets_the_default_and_one_that_is_not_there_is_an_error() -> None:
    async with raw_server([reply("404 Not Found", b"no")], [reply("200 OK", b"hello")]) as server:
        model = opened(base_url=server.base_url)
        assert await choose_model(model, None) == DEFAULT_MODEL
        with pytest.raises(ModelError, match="not its API"):
            await list_models(model)
        await model.aclose()
    with pytest.raises(ModelError, match="is the server running"):
        await choose_model(opened(base_url="http://127.0.0.1:1/v1"), None)


@pytest.mark.parametrize(
    ("slug", "family", "shell", "patch"),
    [
        ("gpt-5.5", "gpt-5", "unified_exec", "freeform"),
        ("gpt-5.1-codex-max", "gpt-5*codex*", "unified_exec", "freeform"),
        ("openai/gpt-5", "gpt-5", "unified_exec", "freeform"),
        ("GPT-5-chat-latest", "gpt-5-chat", "shell_command", "function"),
        ("codex-mini-latest", "codex-mini", "local_shell", "function"),
        ("openai/gpt-oss-120b", "gpt-oss", "shell_command", "function"),
        ("anthropic/claude-sonnet-4.5", "claude-sonnet-4", "disabled", "none"),
        ("qwen3-coder:30b", "qwen", "shell_command", "function"),
        ("scripted-model", "generic", "shell_command", "function"),
        ("", "generic", "shell_command", "function"),
    ],
)
def test_the_longest_pattern_names_the_family(slug: str, family: str, shell: str, patch: str) -> None:
    profile = load_profiles().model(slug)
    assert (profile.name, profile.shell, profile.apply_patch) == (family, shell, patch)


def test_every_tool_set_that_a_family_names_exists() -> None:
    profiles = load_profiles()
    for _, model in profiles.models:
        profiles.tool_set(model.tools)
    assert set(profiles.tools) == {"codex", "openhands", "claude", "generic", "all"}
    with pytest.raises(UsageError, match=r"no tool profile 'x'.*codex"):
        profiles.tool_set("x")


def test_users_lay_their_own_file_over_ours(tmp_path: Path) -> None:
    file = tmp_path / "profiles.toml"
    file.write_text(
        '[model."my-*"]\nlike = "gpt-5"\nshell = "shell"\noutput_budget = {limit = 5000, unit = "bytes"}\n'
        '[model."gpt-5"]\ncontext_window = 1\n[tools.mine]\ninclude = ["read_*"]\n'
        '[provider.mine]\nlike = "vllm"\nhosts = ["llm.example.com"]\nwire = "responses"\n'
    )
    profiles = load_profiles([file])
    mine = profiles.model("my-model")
    assert (mine.shell, mine.tools, mine.output_budget) == ("shell", "codex", OutputBudget(5000, "bytes"))
    assert (profiles.model("gpt-5").context_window, profiles.model("gpt-5").tools) == (1, "codex")
    assert profiles.tool_set("mine").include == ("read_*",)
    assert profiles.provider(None, "https://llm.example.com/v1").strict
    assert load_profiles().model("my-model").name == "generic"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[model", "cannot be read"),
        ('[model."x"]\nshel = "shell"', "unknown field 'shel'"),
        ('[model."x"]\nshell = "zsh"', "'x'"),
        ('[model."x"]\nlike = "nobody"', "like 'nobody'"),
        ("[modell.x]\n", "modell"),
    ],
)
def test_a_profile_that_cannot_be_read_is_named(text: str, words: str, tmp_path: Path) -> None:
    file = tmp_path / "profiles.toml"
    file.write_text(text)
    with pytest.raises(UsageError, match=r"profiles\.toml") as caught:
        load_profiles([file])
    assert words in str(caught.value)
    with pytest.raises(UsageError, match="cannot be read"):
        load_profiles([tmp_path / "missing.toml"])
