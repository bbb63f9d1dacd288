"""The definition of a tool that the model sees. Shapes are the Responses API's; `to_chat` is Chat Completions',
`to_messages` Anthropic's.

Each spec makes its JSON once; a request sends those bytes.
"""

from collections.abc import Iterator
from functools import cache, cached_property
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec

from ferrule.protocol.errors import UsageError
from ferrule.protocol.json_schema import JsonSchema
from ferrule.protocol.json_text import JsonValue

Wire = Literal["responses", "chat", "messages"]

_encode = msgspec.json.encode


class _Worded(msgspec.Struct, frozen=True):
    """Rejects values that the API does not know, even without a type checker: `UsageError` names the valid ones."""

    def __post_init__(self) -> None:
        for name, words in _words_of(type(self)):
            value = getattr(self, name)
            for word in value if isinstance(value, tuple) else (value,):
                if word is not None and word not in words:
                    known = ", ".join(words)
                    raise UsageError(f"{type(self).__name__}: {name} is one of {known}, not {word!r}")


@cache
def _words_of(kind: type[_Worded]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the fields of a spec that take only certain values."""
    found = ((name, tuple(_literals(hint))) for name, hint in get_type_hints(kind).items())
    return tuple((name, words) for name, words in found if words)


def _literals(hint: object) -> Iterator[str]:
    if get_origin(hint) is Literal:
        yield from get_args(hint)
    else:
        for part in get_args(hint):
            yield from _literals(part)


class _Spec(_Worded, frozen=True, kw_only=True, omit_defaults=True, dict=True):
    """The base of all specs: JSON encoded once for each wire."""

    @cached_property
    def responses_json(self) -> bytes:
        """The spec as the Responses API takes it."""
        return _encode(self)

    @cached_property
    def chat_json(self) -> bytes | None:
        """The spec as Chat Completions takes it, or None if that wire has no such tool."""
        return None

    @cached_property
    def messages_json(self) -> bytes | None:
        """The spec as the Messages API takes it, or None if that wire has no such tool."""
        return None

    def to_responses(self) -> dict[str, JsonValue]:
        """Return the spec as a dict for the `tools` of a Responses request."""
        return msgspec.json.decode(self.responses_json, type=dict[str, Any])

    def to_chat(self) -> dict[str, JsonValue] | None:
        """Return the spec as a dict for the `tools` of a Chat Completions request, or None if it has no such tool."""
        return None if self.chat_json is None else msgspec.json.decode(self.chat_json, type=dict[str, Any])

    def to_messages(self) -> dict[str, JsonValue] | None:
        """Return the spec as a dict for the `tools` of a Messages request, or None if it has no such tool."""
        return None if self.messages_json is None else msgspec.json.decode(self.messages_json, type=dict[str, Any])


class _FunctionWire(msgspec.Struct, tag="function", omit_defaults=True):
    name: str
    description: str
    strict: bool | None
    parameters: msgspec.Raw
    defer_loading: bool = False


class _ChatFunction(msgspec.Struct, omit_defaults=True):
    name: str
    description: str
    parameters: msgspec.Raw
    strict: bool = False


class _ChatFunctionTool(msgspec.Struct, tag="function"):
    function: _ChatFunction


class _MessagesTool(msgspec.Struct, omit_defaults=True):
    name: str
    description: str
    input_schema: msgspec.Raw
    strict: bool = False


class ResponsesApiTool(_Spec, frozen=True, tag="function"):
    """A function with a JSON Schema for its parameters."""

    name: str
    description: str
    parameters: JsonSchema
    strict: bool = False
    defer_loading: bool = False

    @cached_property
    def responses_json(self) -> bytes:
        """The spec as the Responses API takes it."""
        parameters = msgspec.Raw(self.parameters.encoded)
        return _encode(_FunctionWire(self.name, self.description, self.strict, parameters, self.defer_loading))

    @cached_property
    def chat_json(self) -> bytes | None:
        """The spec as Chat Completions takes it."""
        parameters = msgspec.Raw(self.parameters.encoded)
        return _encode(_ChatFunctionTool(_ChatFunction(self.name, self.description, parameters, self.strict)))

    @cached_property
    def messages_json(self) -> bytes | None:
        """The spec as the Messages API takes it."""
        schema = msgspec.Raw(self.parameters.encoded)
        return _encode(_MessagesTool(self.name, self.description, schema, self.strict))


class FreeformToolFormat(msgspec.Struct, frozen=True):
    """The format of a freeform call's text: `type` is "grammar", with a `syntax` ("lark" or "regex") that constrains
    the model, or "text", which does not. Chat Completions cannot express formats: there the description does."""

    type: str
    syntax: str
    definition: str


class _ChatGrammar(msgspec.Struct):
    syntax: str
    definition: str


class _ChatFormat(msgspec.Struct, omit_defaults=True):
    type: str
    grammar: _ChatGrammar | None = None


class _ChatCustom(msgspec.Struct):
    name: str
    description: str
    format: _ChatFormat


class _ChatCustomTool(msgspec.Struct, tag="custom"):
    custom: _ChatCustom


class FreeformTool(_Spec, frozen=True, tag="custom"):
    """A tool whose input is text in a given format instead of JSON."""

    name: str
    description: str
    format: FreeformToolFormat
    defer_loading: bool = False

    @cached_property
    def chat_json(self) -> bytes | None:
        """The spec as Chat Completions takes it, from servers that know custom tools."""
        if self.format.type != "grammar":
            return _encode(_ChatCustomTool(_ChatCustom(self.name, self._explained, _ChatFormat(self.format.type))))
        grammar = _ChatGrammar(self.format.syntax, self.format.definition)
        return _encode(_ChatCustomTool(_ChatCustom(self.name, self.description, _ChatFormat("grammar", grammar))))

    def as_function(self) -> ResponsesApiTool:
        """Return the same tool for servers without custom tools: one string field `input` takes the text."""
        return ResponsesApiTool(name=self.name, description=self._explained, parameters=FREEFORM_PARAMETERS)

    @property
    def _explained(self) -> str:
        """The description for a wire that cannot express the format."""
        return f"{self.description}\n\nThe format of `input` ({self.format.syntax}):\n{self.format.definition}"


FREEFORM_PARAMETERS = JsonSchema(
    {
        "type": "object",
        "properties": {"input": {"type": "string", "description": "The whole input, as plain text"}},
        "required": ["input"],
        "additionalProperties": False,
    }
)


class LocalShell(_Spec, frozen=True, tag="local_shell"):
    """The native shell of codex-mini-latest."""


class UserLocation(msgspec.Struct, frozen=True, tag="approximate", omit_defaults=True):
    """The user's approximate location; `country` is the two-letter ISO code."""

    country: str | None = None
    city: str | None = None
    region: str | None = None
    timezone: str | None = None


class DomainAllowList(msgspec.Struct, frozen=True, tag="allow_list"):
    """Domains to search, in the older spelling; at most 100, without the scheme."""

    domains: tuple[str, ...]


class AllowedDomains(msgspec.Struct, frozen=True):
    """Domains to search, in the current spelling."""

    allowed_domains: tuple[str, ...]


SearchContextSize = Literal["low", "medium", "high"]


class WebSearch(_Spec, frozen=True, tag="web_search"):
    """The provider searches the web. `external_web_access` false searches its cache only."""

    external_web_access: bool | None = None
    search_context_size: SearchContextSize | None = None
    user_location: UserLocation | None = None
    filters: DomainAllowList | AllowedDomains | None = None


class WebSearchPreview(_Spec, frozen=True, tag="web_search_preview"):
    """The older web search."""

    search_context_size: SearchContextSize | None = None
    user_location: UserLocation | None = None
    search_content_types: tuple[Literal["text", "image"], ...] | None = None


class FileSearch(_Spec, frozen=True, tag="file_search"):
    """The provider searches vector stores. `filters` and `ranking_options` are sent as given."""

    vector_store_ids: tuple[str, ...]
    max_num_results: int | None = None
    filters: dict[str, JsonValue] | None = None
    ranking_options: dict[str, JsonValue] | None = None


class NetworkDisabled(msgspec.Struct, frozen=True, tag="disabled"):
    """A container without network."""


class DomainSecret(msgspec.Struct, frozen=True):
    """A secret that the provider adds to requests to one domain; the model sees only its name."""

    domain: str
    name: str
    value: str

    def __repr__(self) -> str:
        return f"DomainSecret(domain={self.domain!r}, name={self.name!r}, value=...)"


class NetworkAllowlist(msgspec.Struct, frozen=True, tag="allowlist", omit_defaults=True):
    """A container that can reach only these domains."""

    allowed_domains: tuple[str, ...]
    domain_secrets: tuple[DomainSecret, ...] | None = None


NetworkPolicy = NetworkDisabled | NetworkAllowlist
MemoryLimit = Literal["1g", "4g", "16g", "64g"]


class AutoContainer(_Worded, frozen=True, tag="auto", omit_defaults=True):
    """A container that the provider creates or reuses."""

    memory_limit: MemoryLimit | None = None
    file_ids: tuple[str, ...] | None = None
    network_policy: NetworkPolicy | None = None


class CodeInterpreter(_Spec, frozen=True, tag="code_interpreter"):
    """The provider runs Python in a container: an id, or `AutoContainer`."""

    container: str | AutoContainer


class ComputerTool(_Spec, frozen=True, tag="computer"):
    """A screen that the client shows and the model acts on, several actions a call. Pictures tell its size. `function`
    is told of instead where the server has no such tool."""

    function: ResponsesApiTool | None = None

    @cached_property
    def responses_json(self) -> bytes:
        """The spec as the Responses API takes it."""
        return _encode({"type": "computer"})


class ComputerUsePreview(_Spec, frozen=True, tag="computer_use_preview"):
    """The older screen, one action a call; sizes in pixels."""

    display_width: int
    display_height: int
    environment: Literal["browser", "mac", "windows", "ubuntu", "linux"]
    function: ResponsesApiTool | None = None

    @cached_property
    def responses_json(self) -> bytes:
        """The spec as the Responses API takes it."""
        return _encode(msgspec.structs.replace(self, function=None))


class ApplyPatchTool(_Spec, frozen=True, tag="apply_patch"):
    """The native patch tool; we apply its operations."""


class ContainerAuto(_Worded, frozen=True, tag="container_auto", omit_defaults=True):
    """The provider runs the commands in a container of its own."""

    memory_limit: MemoryLimit | None = None
    file_ids: tuple[str, ...] | None = None
    network_policy: NetworkPolicy | None = None


class ContainerReference(msgspec.Struct, frozen=True, tag="container_reference"):
    """The provider runs the commands in a container that exists."""

    container_id: str


class LocalEnvironment(msgspec.Struct, frozen=True, tag="local"):
    """We run the commands."""


class ShellTool(_Spec, frozen=True, tag="shell"):
    """The native shell tool."""

    environment: ContainerAuto | ContainerReference | LocalEnvironment = LocalEnvironment()

    @cached_property
    def responses_json(self) -> bytes:
        """The spec as the Responses API takes it, with its environment always given."""
        return _encode({"type": "shell", "environment": self.environment})


class ImageGeneration(_Spec, frozen=True, tag="image_generation"):
    """The provider makes images."""

    model: str | None = None
    size: str | None = None
    quality: str | None = None
    background: str | None = None
    output_format: Literal["png", "webp", "jpeg"] | None = None
    output_compression: int | None = None
    partial_images: int | None = None


class BearerAuthorization(msgspec.Struct, frozen=True, tag="bearer"):
    """A bearer token in the object spelling."""

    token: str

    def __repr__(self) -> str:
        return "BearerAuthorization(token=...)"


def label_of(server_url: str) -> str:
    """Return the label of an MCP server that was given none: its host, in letters that names of tools can have."""
    host = server_url.partition("://")[2].partition("/")[0]
    return "".join(c if c.isalnum() and c.isascii() else "_" for c in host)


class RemoteMcp(_Spec, frozen=True, tag="mcp"):
    """An MCP server that the provider reaches. `authorization` is the bearer token, plain or as an object."""

    server_url: str
    server_label: str | None = None
    server_description: str | None = None
    authorization: str | BearerAuthorization | None = None
    headers: dict[str, str] | None = None
    allowed_tools: tuple[str, ...] | None = None
    require_approval: Literal["always", "never"] | None = None

    @property
    def label(self) -> str:
        """The label, which the API requires: by default the server's host."""
        return self.server_label or label_of(self.server_url)

    @property
    def token(self) -> str | None:
        """The bearer token."""
        given = self.authorization
        return given.token if isinstance(given, BearerAuthorization) else given

    @cached_property
    def responses_json(self) -> bytes:
        """The spec as the Responses API takes it: always with a label, and the token as text."""
        return _encode(msgspec.structs.replace(self, server_label=self.label, authorization=self.token))


class ToolSearchTool(_Spec, frozen=True, tag="tool_search"):
    """The model looks for deferred tools; with `execution` client we search."""

    execution: Literal["server", "client"] = "client"
    description: str | None = None
    parameters: dict[str, JsonValue] | None = None

    @cached_property
    def responses_json(self) -> bytes:
        """The spec as the Responses API takes it, with its execution always given."""
        wire = {"type": "tool_search", "execution": self.execution}
        return _encode(wire | {k: v for k in ("description", "parameters") if (v := getattr(self, k)) is not None})


class _NamespaceWire(msgspec.Struct, tag="namespace"):
    name: str
    description: str
    tools: list[msgspec.Raw]


class NamespaceTool(_Spec, frozen=True, tag="namespace"):
    """A group of tools; their calls carry its name in `namespace`. Chat Completions gets them flattened."""

    name: str
    description: str
    tools: tuple[ResponsesApiTool | FreeformTool, ...]

    @cached_property
    def responses_json(self) -> bytes:
        """The spec as the Responses API takes it."""
        tools = [msgspec.Raw(tool.responses_json) for tool in self.tools]
        return _encode(_NamespaceWire(self.name, self.description, tools))


class RawTool(_Spec, frozen=True):
    """A tool definition that is passed on unchanged."""

    definition: dict[str, JsonValue]

    @cached_property
    def responses_json(self) -> bytes:
        """The definition's JSON."""
        return _encode(self.definition)


ToolSpec = (
    ResponsesApiTool
    | FreeformTool
    | LocalShell
    | WebSearch
    | WebSearchPreview
    | FileSearch
    | CodeInterpreter
    | ComputerTool
    | ComputerUsePreview
    | ApplyPatchTool
    | ShellTool
    | ImageGeneration
    | RemoteMcp
    | ToolSearchTool
    | NamespaceTool
    | RawTool
)


def runs_here(spec: ToolSpec) -> bool:
    """Return whether we run the calls of a native tool; those of a function are run by its handler's owner."""
    if isinstance(spec, ShellTool):
        return isinstance(spec.environment, LocalEnvironment)
    if isinstance(spec, ToolSearchTool):
        return spec.execution == "client"
    return isinstance(spec, LocalShell | ApplyPatchTool)


def spec_name(spec: ToolSpec) -> str:
    """Return the name that a call of the tool carries; for hosted tools their type."""
    if isinstance(spec, ResponsesApiTool | FreeformTool | NamespaceTool):
        return spec.name
    if isinstance(spec, RawTool):
        return str(spec.definition.get("name") or spec.definition.get("type"))
    return str(spec.__struct_config__.tag)


class ConfiguredToolSpec(msgspec.Struct, frozen=True):
    """A spec and whether its calls may run beside other calls."""

    spec: ToolSpec
    supports_parallel_tool_calls: bool = False
