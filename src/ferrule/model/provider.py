"""From the user's settings to a model: its server, key, wire and name."""

import os
from collections.abc import Callable, Mapping

from ferrule.model.http import Endpoint, RequestGate, Server, split_base_url
from ferrule.model.profiles import UNRECOGNISED, Profiles, ProviderProfile, load_profiles
from ferrule.model.stream import ModelError
from ferrule.model.wire import KEPT_SESSIONS, WireModel
from ferrule.protocol.errors import UsageError
from ferrule.protocol.settings import DEFAULT_MODEL, ProviderSettings, usual_provider
from ferrule.protocol.specs import Wire

NO_PROVIDER = (
    "No model is configured: set OPENAI_API_KEY, or give the base URL of a server such as Ollama, llama.cpp or vLLM "
    "(`--base-url http://localhost:11434/v1`; in Python `base_url=`); `ferrule demo` needs none."
)


def open_model(
    provider: ProviderSettings | None = None,
    *,
    wire: Wire | None = None,
    profiles: Profiles | None = None,
    env: Mapping[str, str] = os.environ,
    api_key: str | None = None,
    kept_sessions: int = KEPT_SESSIONS,
    gate: RequestGate | None = None,
) -> WireModel:
    """Create the model that the settings describe; nothing is connected yet.

    `api_key` is sent instead of the key in a variable of `env`. `kept_sessions` conversations are remembered as last
    sent. Requests go through the `gate`. Without `provider` it is OpenAI, on the Messages wire
    Anthropic, if its key is set. The wire is the argument,
    else the provider's setting, else the one of the provider's profile: responses for OpenAI and Azure, messages
    for Anthropic, chat for the rest. Raises `UsageError`.
    """
    known = profiles or load_profiles()
    if provider is None:
        provider = ProviderSettings(name=usual_provider(wire))
        if provider.name == "openai" and not (api_key or env.get("OPENAI_API_KEY")):
            raise UsageError(NO_PROVIDER)
    if provider.base_url:
        split_base_url(provider.base_url)  # before anything else reads it
    accepts = _profile(provider, known, wire or provider.wire_api)
    base_url = provider.base_url or accepts.base_url
    if not base_url:
        raise UsageError(f"The provider {provider.name!r} has no base_url: add one, like http://localhost:11434/v1.")
    base_url, params = split_base_url(base_url)
    spoken = wire or provider.wire_api or accepts.wire
    if spoken == "messages" and not base_url.endswith("/v1"):
        base_url += "/v1"
    kind = _kind(provider, accepts, wire)
    endpoint = Endpoint(
        name=provider.name if accepts.name in UNRECOGNISED.values() else accepts.title,
        provider=provider.name,
        base_url=base_url,
        params=params | provider.query_params,
        headers=_headers(provider, accepts, base_url, env, api_key, _key_header(accepts, spoken)),
        fixed=dict(kind.fixed_headers),
        idle_timeout_ms=provider.stream_idle_timeout_ms,
        longest_wait_ms=provider.longest_wait_ms,
    )
    retries = provider.request_max_retries
    return kind(Server(endpoint, gate), accepts, known, max_retries=retries, kept_sessions=kept_sessions)


def _kind(provider: ProviderSettings, accepts: ProviderProfile, wire: Wire | None) -> type[WireModel]:
    """Import and return the client for a server. Calls as text are known on the chat wire alone."""
    if (provider.tool_calls or accepts.tool_calls) == "text":
        if (wire or provider.wire_api) in ("responses", "messages"):
            raise UsageError(f'{provider.name!r} has tool_calls = "text", which needs wire_api = "chat".')
        from ferrule.model.text.client import TextModel

        return TextModel
    spoken = wire or provider.wire_api or accepts.wire
    if spoken == "messages":
        from ferrule.model.messages.client import MessagesModel

        return MessagesModel
    if spoken == "responses":
        from ferrule.model.responses.client import ResponsesModel

        return ResponsesModel
    from ferrule.model.chat.client import ChatModel

    return ChatModel


def _profile(provider: ProviderSettings, known: Profiles, wire: Wire | None) -> ProviderProfile:
    if provider.profile is not None and provider.profile not in known.providers:
        names = ", ".join(sorted(known.providers))
        raise UsageError(f"There is no provider profile {provider.profile!r}; there are: {names}.")
    return known.provider(provider.profile or provider.name, provider.base_url, wire)


def _headers(
    provider: ProviderSettings,
    accepts: ProviderProfile,
    base_url: str,
    env: Mapping[str, str],
    api_key: str | None,
    key_header: str,
) -> Callable[[], dict[str, str]]:
    env_key = provider.env_key or _own_key(accepts, base_url)
    needed = provider.env_key is not None or accepts.key_required

    def headers() -> dict[str, str]:
        found = dict(provider.http_headers)
        for header, variable in provider.env_http_headers.items():
            if value := env.get(variable, "").strip():
                found[header] = value
        key = (api_key or (env.get(env_key, "") if env_key else "")).strip()
        if key:
            bearer = key_header == "authorization"
            source = "api_key" if api_key else env_key or ""
            found[key_header] = _sendable(f"Bearer {key}" if bearer else key, source)
        elif env_key and needed and key_header not in {name.lower() for name in found}:
            advice = provider.env_key_instructions or f"Set {env_key} to your key for {accepts.title}."
            raise UsageError(f"The key for {accepts.title} is missing. {advice}")
        return found

    return headers


def _key_header(accepts: ProviderProfile, wire: Wire) -> str:
    """Return the header of the key: servers of the Messages API have their own."""
    return "x-api-key" if wire == "messages" and accepts.key_header == "authorization" else accepts.key_header


def _own_key(accepts: ProviderProfile, base_url: str) -> str | None:
    """Return the variable of the provider's own key, which is sent to the provider's own address and nowhere else."""
    from urllib.parse import urlsplit

    host = urlsplit(base_url).hostname or ""
    at_home = accepts.base_url is not None and urlsplit(accepts.base_url).hostname == host
    return accepts.env_key if at_home or accepts.owns(host) else None


def _sendable(key: str, variable: str) -> str:
    if not key.isascii() or not key.isprintable():
        raise UsageError(f"The key in {variable} holds characters that no key has: copy it again.")
    return key


async def list_models(model: WireModel) -> tuple[str, ...]:
    """Return the models that the server lists at `GET /models`, in its order. Raises `ModelError`."""
    answer = await model.server.get_json("/models")
    listed = answer.get("data", answer.get("models")) if isinstance(answer, dict) else answer
    if not isinstance(listed, list):
        raise model.server.malformed(str(answer).encode())
    names = [entry if isinstance(entry, str) else entry.get("id") or entry.get("name") for entry in listed if entry]
    return tuple(str(name) for name in names if name)


async def choose_model(model: WireModel, configured: str | None) -> str:
    """Return the configured model, else the provider's default, else the first that the server lists, else
    `DEFAULT_MODEL`.

    Raises `ModelError` if the server cannot be reached.
    """
    if configured or model.accepts.default_model:
        return configured or model.accepts.default_model or DEFAULT_MODEL
    try:
        listed = await list_models(model)
    except ModelError as error:
        if error.status is None:
            raise
        return DEFAULT_MODEL
    talking = [name for name in listed if "embed" not in name.lower()]
    return next(iter(talking or listed), DEFAULT_MODEL)
