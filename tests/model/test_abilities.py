"""What a server of one's own is asked, and what its answers mean; and that none of them can do harm."""

import gzip
import json

import pytest

from ferrule.model import abilities
from ferrule.model.abilities import Abilities, Wanted, ask_abilities, is_own, shortcomings
from ferrule.model.profiles import load_profiles
from ferrule.model.provider import open_model
from ferrule.protocol.settings import ProviderSettings
from tests.own_server import OwnServer, Reply, llama_cpp, lm_studio, ollama, own_server, says, vllm


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test but the one of the limit depends on how fast this machine is."""
    monkeypatch.setattr(abilities, "LONGEST_WAIT_S", 30.0)


async def asked(server: OwnServer, *, profile: str | None = None) -> Abilities | None:
    model = open_model(
        ProviderSettings(name="box", base_url=server.base_url, profile=profile), env={}, api_key="secret"
    )
    try:
        return await ask_abilities(model.server, model.accepts.name, "m")
    finally:
        await model.aclose()


SERVERS: dict[str, tuple[dict[str, Reply], Abilities]] = {
    "llama.cpp": (
        llama_cpp(tools=True, vision=True, window=4096),
        Abilities(server="llama.cpp", tools=True, images=True, window=4096),
    ),
    "llama.cpp whose template drops tools": (
        llama_cpp(tools=False), Abilities(server="llama.cpp", tools=False, images=False, window=32_768),
    ),
    "an older llama.cpp": (
        llama_cpp(tools=None), Abilities(server="llama.cpp", tools=False, images=False, window=32_768),
    ),
    "an older llama.cpp with tools": (
        llama_cpp(tools=None, chat_template="{% if tools %}{% endif %}"),
        Abilities(server="llama.cpp", tools=True, images=False, window=32_768),
    ),
    "Ollama": (
        ollama(capabilities=["completion", "tools"], parameters='stop "x"\nnum_ctx                        16384'),
        Abilities(server="Ollama", tools=True, images=False, window=16_384, longest=131_072),
    ),
    "Ollama that runs the model": (
        ollama(capabilities=["completion", "vision"], running=32_768),
        Abilities(server="Ollama", tools=False, images=True, window=32_768, longest=131_072),
    ),
    "Ollama as it comes": (
        ollama(capabilities=["completion", "tools"]),
        Abilities(server="Ollama", tools=True, images=False, window=4096, longest=131_072, is_default=True),
    ),
    "LM Studio": (
        lm_studio(kind="vlm"), Abilities(server="LM Studio", tools=True, images=True, window=8192, longest=131_072),
    ),
    "LM Studio without tools": (
        lm_studio(capabilities=()),
        Abilities(server="LM Studio", tools=False, images=False, window=8192, longest=131_072),
    ),
    "vLLM": (vllm(), Abilities(server="vLLM", window=16_384)),
}  # fmt: skip


@pytest.mark.parametrize("kind", SERVERS)
async def test_each_server_is_understood(kind: str) -> None:
    routes, known = SERVERS[kind]
    with own_server(routes) as server:
        assert await asked(server) == known


async def test_a_server_that_knows_no_path_is_silent_and_not_posted_to_unless_it_tells_paths_apart() -> None:
    with own_server() as server:
        assert await asked(server) is None
        assert server.asked[0] == "GET /props"
    with own_server({"GET /props": says({}, 501)}) as server:
        assert await asked(server) is None and server.asked == ["GET /props"]
    with own_server({"GET /props": says({"ok": True})}) as server:
        assert await asked(server) is None and not [path for path in server.asked if path.startswith("POST")]


WINDOW = {"default_generation_settings": {"n_ctx": 4096}}
HOSTILE: dict[str, Reply] = {
    "30 MB": says({"chat_template": "x" * 30_000_000, **WINDOW}),
    "garbage": says(b"\xff\xfe{{{"),
    "nesting": says(b"[" * 500_000),
    "a page": (200, {"content-type": "text/html"}, b"<html>hello</html>"),
    "a list": says([1, 2, 3]),
    "other types": says({"chat_template": 5, "default_generation_settings": {"n_ctx": "many"}, "modalities": []}),
    "no number": says({"default_generation_settings": {"n_ctx": -1}, "modalities": {"vision": "yes"}}),
    "a bomb": (200, {"content-encoding": "gzip"}, gzip.compress(json.dumps(WINDOW).encode() + b" " * 30_000_000)),
    "no key": says({"error": "Unauthorized"}, 401),
    "a fault": says(b"", 500),
}


@pytest.mark.parametrize("answer", HOSTILE)
async def test_no_answer_does_harm(answer: str) -> None:
    with own_server({"GET /props": HOSTILE[answer], "GET /v1/models": HOSTILE[answer]}) as server:
        found = await asked(server)
    assert found is None or (found.tools, found.images, found.window) == (None, None, None)


async def test_a_redirect_is_not_followed_and_the_key_goes_nowhere_else() -> None:
    with own_server() as other:
        away = says({}, 302, location=other.base_url.removesuffix("/v1") + "/props")
        with own_server({"GET /props": away, "GET /v1/models": away}) as server:
            assert await asked(server) is None
            assert set(server.keys) == {"Bearer secret"}
        assert not other.asked


async def test_a_server_that_never_answers_is_waited_for_briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(abilities, "LONGEST_WAIT_S", 0.05)
    with own_server(held=["GET /props"]) as server:
        assert await asked(server) is None


OWN = ("http://localhost:1/v1", "http://127.0.0.1:9/v1", "http://[::1]:9/v1", "http://192.168.1.4:8080/v1",
       "http://gpubox:8000/v1", "http://nas.local/v1")  # fmt: skip
OTHERS = ("https://api.openai.com/v1", "https://ollama.com/v1", "https://openrouter.ai/api/v1",
          "https://llm.example.com/v1", "http://8.8.8.8/v1")  # fmt: skip


def test_only_servers_of_ones_own_are_asked() -> None:
    profiles = load_profiles()
    for url in OWN:
        assert is_own(profiles, "generic", url), url
    for url in OTHERS:
        assert not is_own(profiles, "generic", url), url
    assert not is_own(profiles, "vllm", "https://api.openai.com/v1")
    assert not is_own(profiles, "ollama", "https://ollama.com/v1")
    assert is_own(profiles, "vllm", "https://llm.example.com/v1"), "the user has said that it is one"
    for name, profile in profiles.providers.items():
        if profile.base_url and profile.env_key and name not in ("vllm", "litellm"):
            assert not is_own(profiles, name, profile.base_url), name


def test_each_shortcoming_is_one_sentence_with_the_next_step() -> None:
    found = Abilities(server="Ollama", tools=False, images=False, window=4096, longest=131_072, is_default=True)
    tools, window, images = shortcomings(found, "m", Wanted(5000, images=True))
    assert 'tool_calls = "text"' in tools
    assert "4,096 tokens by default (m could have 131,072)" in window and "num_ctx" in window
    assert "vision" in images
    assert shortcomings(found, "m", Wanted(5000, native=False, window=8000)) == []
    llama = Abilities(server="llama.cpp", tools=False, images=False, window=32_768)
    (told,) = shortcomings(llama, "m", Wanted(5000))
    assert "--jinja" in told and "\n" not in told
