"""Model families, tool sets and providers: `profiles.toml` and the user's own files in the same format."""

import tomllib
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec

from ferrule.protocol.errors import UsageError
from ferrule.protocol.profiles import ModelProfile, ToolProfile
from ferrule.protocol.settings import ToolCallForm
from ferrule.protocol.specs import Wire

BUILT_IN = Path(__file__).with_name("profiles.toml")

P = TypeVar("P", ModelProfile, ToolProfile, "ProviderProfile")

ReasoningField = Literal["same", "none", "reasoning_content", "reasoning"]
CallIdForm = Literal["any", "nine"]
SchemaForm = Literal["any", "plain"]


UNRECOGNISED: Mapping[Wire, str] = {"responses": "responses", "chat": "generic", "messages": "messages"}
"""The profile of a server that no other one fits, by the wire."""


class ProviderProfile(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of server: how to reach it and what it accepts. Anything else is adapted, never sent."""

    name: str
    title: str = ""
    base_url: str | None = None
    hosts: tuple[str, ...] = ()
    """Globs of host names, or `:PORT` of this machine, that match a base URL to this provider."""
    env_key: str | None = None
    key_header: str = "authorization"
    key_required: bool = False
    wire: Wire = "chat"
    default_model: str | None = None
    """The default model, used if the first entry of the server's list means nothing."""

    custom_tools: bool = False
    namespaces: bool = False
    tool_search: bool = False
    native_tools: tuple[str, ...] = ()
    """Tool types beside functions, run here or there, that the server knows; globs. On the Messages wire those
    that stand for our own tools, and its web search."""
    native_screen: bool = True
    """A screen may be one of them."""
    list_outputs: bool = False
    """A tool's output may be a list of parts, including images."""
    strict: bool = False
    tool_calls: ToolCallForm = "native"
    """`text`: the tools stand in the prompt, and calls come as text."""
    schemas: SchemaForm = "any"
    """`plain`: one type per schema, no type beside alternatives, nothing beside a reference."""
    body: dict[str, Any] = {}
    """Additional fields of every body on the chat wire."""
    developer_role: bool = False
    parallel: bool = True
    """The server accepts `parallel_tool_calls`."""
    null_content: bool = True
    """An assistant message with calls has `content: null`, else the empty string."""
    forced_tool: bool = True
    """`tool_choice` may name a tool; else `required` with only that tool says the same."""
    reasoning_field: ReasoningField = "same"
    """The field of a chat assistant message that takes its earlier reasoning back. `same`: the field in which this
    server sent it, and never another server's reasoning."""
    reasoning_required: bool = False
    """An assistant message with calls must have that field, even without reasoning."""
    call_ids: CallIdForm = "any"
    """`nine`: exactly nine letters and digits."""
    chat_call_id_length: int = 64
    """Longest call id accepted on the chat wire."""
    opaque_call_ids: bool = False
    """The server's own call ids may contain more than a name, and are sent back whole."""
    encrypted_reasoning: bool = False
    call_status: bool = False
    """Calls on the Responses wire are accepted back with their `status`."""
    stores: bool = False
    """The server stores responses, and `previous_response_id` continues them."""
    effort: bool = False
    verbosity: bool = False
    cache_key: bool = False
    usage_in_stream: bool = True
    max_tokens_field: str = "max_tokens"
    output_limit: bool = True
    """The server takes a limit of output tokens."""

    def owns(self, host: str) -> bool:
        """Return whether a host name is the provider's own."""
        name = host.lower()
        return any(fnmatchcase(name, known) if "*" in known else name == known for known in self.hosts)


class Profiles(msgspec.Struct, frozen=True):
    """All profiles. Later files override earlier ones, entry by entry and field by field."""

    models: tuple[tuple[str, ModelProfile], ...]
    tools: Mapping[str, ToolProfile]
    providers: Mapping[str, ProviderProfile]

    def model(self, slug: str) -> ModelProfile:
        """Return a model's profile: that of the longest prefix or glob that fits its name, with or without
        `vendor/`."""
        name = slug.strip().lower()
        bare = name.rpartition("/")[2]
        best = max(
            (entry for entry in self.models if _fits(entry[0], name) or _fits(entry[0], bare)),
            key=lambda entry: len(entry[0].replace("*", "")),
        )
        return best[1]

    def tool_set(self, name: str) -> ToolProfile:
        """Return the tool set with that name. Raises `UsageError` that lists the known ones."""
        if name not in self.tools:
            raise UsageError(f"There is no tool profile {name!r}; there are: {', '.join(sorted(self.tools))}.")
        return self.tools[name]

    def provider(self, name: str | None, base_url: str | None, wire: Wire | None = None) -> ProviderProfile:
        """Return a server's profile: by the profile's name, else by the URL, else the wire's default: `responses`,
        which accepts all that OpenAI does, `messages`, or the most careful one, `generic`."""
        if name is not None and name in self.providers:
            return self.providers[name]
        found = next((known for known in self.providers.values() if base_url and _is_at(known, base_url)), None)
        return found or self.providers[UNRECOGNISED[wire or "chat"]]


def _fits(pattern: str, name: str) -> bool:
    return fnmatchcase(name, pattern) if "*" in pattern else name.startswith(pattern)


def _is_at(provider: ProviderProfile, base_url: str) -> bool:
    from urllib.parse import urlsplit

    parts = urlsplit(base_url)
    host = (parts.hostname or "").lower()
    at_home = host in ("localhost", "::1", "0.0.0.0") or host.startswith("127.")
    return provider.owns(host) or (at_home and f":{parts.port}" in provider.hosts)


class _File(msgspec.Struct, forbid_unknown_fields=True):
    model: dict[str, dict[str, object]] = {}
    tools: dict[str, dict[str, object]] = {}
    provider: dict[str, dict[str, object]] = {}


def load_profiles(files: Iterable[Path] = ()) -> Profiles:
    """Load the built-in profiles and apply the user's files. Raises `UsageError` that names file and field."""
    extra = tuple(files)
    return _built_in() if not extra else _merge([(BUILT_IN, _read(BUILT_IN)), *((file, _read(file)) for file in extra)])


def profile_files(home: str) -> list[Path]:
    """Return the user's own profiles, if there are any: `profiles.toml` in Ferrule's home."""
    file = Path(home, "profiles.toml")
    return [file] if file.is_file() else []


@cache
def _built_in() -> Profiles:
    return _merge([(BUILT_IN, _read(BUILT_IN))])


def _read(file: Path) -> _File:
    try:
        return msgspec.convert(tomllib.loads(file.read_text(encoding="utf-8")), _File)
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError, msgspec.ValidationError) as error:
        raise UsageError(f"The profiles in {file} cannot be read: {error}") from error


def _merge(files: list[tuple[Path, _File]]) -> Profiles:
    models: dict[str, ModelProfile] = {}
    tools: dict[str, ToolProfile] = {}
    providers: dict[str, ProviderProfile] = {}
    for file, content in files:
        for pattern, fields in content.model.items():
            _lay(models, pattern.lower(), fields, ModelProfile, file)
        for name, fields in content.tools.items():
            _lay(tools, name, fields, ToolProfile, file)
        for name, fields in content.provider.items():
            _lay(providers, name, fields, ProviderProfile, file)
    return Profiles(tuple(models.items()), tools, providers)


def _lay(known: dict[str, P], name: str, fields: dict[str, object], kind: type[P], file: Path) -> None:
    """Merge an entry into the one with the same name, or the one that it names in `like`."""
    like = fields.get("like", name)
    base = known.get(str(like))
    if like != name and base is None:
        raise UsageError(f"The profiles in {file} cannot be read: {name!r} is to be like {like!r}, which is not known.")
    inherited = msgspec.structs.asdict(base) if base is not None else {}
    given = {key: value for key, value in fields.items() if key != "like"}
    unknown = set(given) - set(kind.__struct_fields__)
    if unknown:
        raise UsageError(f"The profiles in {file} cannot be read: {name!r} has the unknown field {min(unknown)!r}.")
    try:
        known[name] = msgspec.convert(inherited | {"name": name} | given, kind)
    except msgspec.ValidationError as error:
        raise UsageError(f"The profiles in {file} cannot be read: {name!r}: {error}") from error
