"""The fields of a request's tools, as clients send them; types that nobody knows here are not checked.

Source: the `tools` of the Responses API.
"""

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

from ferrule.hosted.mcp.declared import RemoteServer
from ferrule.hosted.skills import SkillParam
from ferrule.hosted.vector_stores import RankingOptions
from ferrule.hosted.wanted import MemoryLimit
from ferrule.protocol.json_text import JsonObject, JsonValue
from ferrule.protocol.specs import NetworkPolicy, label_of
from ferrule.responses.errors import ApiError
from ferrule.responses.request import unfit

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]


class Function(msgspec.Struct, frozen=True, tag="function"):
    """A function of the client."""

    name: Name
    description: str | None = None
    parameters: JsonObject | None = None
    strict: bool | None = None
    defer_loading: bool | None = None


class Text(msgspec.Struct, frozen=True, tag="text"):
    """The input of a freeform tool, when it is any text."""


class Grammar(msgspec.Struct, frozen=True, tag="grammar"):
    """The input of a freeform tool in a grammar."""

    syntax: Literal["lark", "regex"]
    definition: str


class Custom(msgspec.Struct, frozen=True, tag="custom"):
    """A freeform tool of the client: its input is text."""

    name: Name
    description: str | None = None
    format: Text | Grammar | None = None
    defer_loading: bool | None = None


class _NamespaceHead(msgspec.Struct, frozen=True, tag="namespace"):
    name: Name
    tools: tuple[JsonObject, ...]
    description: str | None = None


class Namespace(msgspec.Struct, frozen=True):
    """A group of tools: `tools` are its functions and freeform tools, each with its number; `unknown` are the types of
    others."""

    name: str
    description: str | None
    tools: Mapping[int, Function | Custom]
    unknown: tuple[str, ...]


class ToolSearch(msgspec.Struct, frozen=True, tag="tool_search"):
    """The search of tools that are loaded when they are needed."""

    execution: Literal["server", "client"] | None = None
    description: str | None = None
    parameters: JsonObject | None = None


class _UserLocation(msgspec.Struct, frozen=True):
    type: Literal["approximate"] = "approximate"
    country: Annotated[str, msgspec.Meta(pattern="^([A-Za-z]{2})?$")] | None = None
    city: str | None = None
    region: str | None = None
    timezone: str | None = None


class _WebSearch(msgspec.Struct, frozen=True):
    search_context_size: Literal["low", "medium", "high"] | None = None
    user_location: _UserLocation | None = None
    filters: JsonObject | None = None
    external_web_access: bool | None = None
    search_content_types: tuple[Literal["text", "image"], ...] | None = None


class _FileSearch(msgspec.Struct, frozen=True):
    vector_store_ids: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    max_num_results: Annotated[int, msgspec.Meta(ge=1, le=50)] | None = None
    filters: JsonObject | None = None
    ranking_options: RankingOptions | None = None


class _NewContainer(msgspec.Struct, frozen=True):
    file_ids: tuple[str, ...] = ()
    memory_limit: MemoryLimit | None = None
    network_policy: NetworkPolicy | None = None


class _AutoContainer(_NewContainer, frozen=True, kw_only=True):
    type: Literal["auto"]


class _CodeInterpreter(msgspec.Struct, frozen=True):
    container: str | _AutoContainer


class _ShellAuto(_NewContainer, frozen=True, tag="container_auto"):
    skills: tuple[SkillParam, ...] = ()


class _ShellReference(msgspec.Struct, frozen=True, tag="container_reference"):
    container_id: str


class _ShellLocal(msgspec.Struct, frozen=True, tag="local"):
    pass


class _Shell(msgspec.Struct, frozen=True):
    environment: _ShellAuto | _ShellReference | _ShellLocal | None = None


class _ComputerPreview(msgspec.Struct, frozen=True):
    display_width: Annotated[int, msgspec.Meta(ge=1)]
    display_height: Annotated[int, msgspec.Meta(ge=1)]
    environment: Literal["windows", "mac", "linux", "ubuntu", "browser"]


class _Mask(msgspec.Struct, frozen=True):
    file_id: str | None = None
    image_url: str | None = None


class _ImageGeneration(msgspec.Struct, frozen=True):
    model: str | None = None
    action: Literal["generate", "edit", "auto"] | None = None
    size: str | None = None
    quality: Literal["low", "medium", "high", "xhigh", "max", "auto"] | None = None
    background: Literal["transparent", "opaque", "auto"] | None = None
    output_format: Literal["png", "webp", "jpeg", "gif", "svg"] | None = None
    output_compression: Annotated[int, msgspec.Meta(ge=0, le=100)] | None = None
    partial_images: Annotated[int, msgspec.Meta(ge=0, le=3)] | None = None
    input_fidelity: Literal["high", "low"] | None = None
    input_image_mask: _Mask | None = None
    moderation: Literal["auto", "low"] | None = None


class _Plain(msgspec.Struct, frozen=True):
    """A tool without parameters."""


_SHAPES: Mapping[str, type[msgspec.Struct]] = {
    "function": Function,
    "custom": Custom,
    "namespace": _NamespaceHead,
    "tool_search": ToolSearch,
    "web_search": _WebSearch,
    "web_search_2025_08_26": _WebSearch,
    "web_search_preview": _WebSearch,
    "web_search_preview_2025_03_11": _WebSearch,
    "file_search": _FileSearch,
    "code_interpreter": _CodeInterpreter,
    "shell": _Shell,
    "apply_patch": _Plain,
    "local_shell": _Plain,
    "computer": _Plain,
    "computer_use_preview": _ComputerPreview,
    "image_generation": _ImageGeneration,
    "mcp": RemoteServer,
    "programmatic_tool_calling": _Plain,
}
"""Types whose fields are checked."""


def spelled(tool: JsonObject) -> JsonObject:
    """Return a tool as the API spells it: `freeform_tool` is `custom`, and an MCP server without a label is called by
    its host."""
    match tool:
        case {"type": "freeform_tool"}:
            return tool | {"type": "custom"}
        case {"type": "mcp", "server_url": str(url)} if tool.get("server_label") is None:
            return tool | {"server_label": label_of(url)}
    return tool


def read_tool(tool: JsonValue, param: str) -> msgspec.Struct | None:
    """Check the fields of a tool, which stands in `param`. Returns None for an unknown type. Raises `ApiError`."""
    if not isinstance(tool, dict):
        raise ApiError(f"{param}: a tool is an object", code="invalid_value", param=param)
    kind = tool.get("type")
    if not isinstance(kind, str) or not kind:
        raise ApiError(f"{param}.type: a tool needs a type", param=f"{param}.type")
    shape = _SHAPES.get(kind)
    if shape is None:
        return None
    try:
        read = msgspec.convert(tool, shape)
    except msgspec.ValidationError as error:
        raise unfit(error, param) from error
    return _namespace(read, param) if isinstance(read, _NamespaceHead) else read


def _namespace(head: _NamespaceHead, param: str) -> Namespace:
    members = {at: read_tool(tool, f"{param}.tools[{at}]") for at, tool in enumerate(head.tools)}
    tools = {at: tool for at, tool in members.items() if isinstance(tool, Function | Custom)}
    names: set[str] = set()
    for at, tool in tools.items():
        if tool.name in names:
            where = f"{param}.tools[{at}].name"
            raise ApiError(f"{where}: two tools of the namespace are called {tool.name!r}", param=where)
        names.add(tool.name)
    unknown = tuple(str(tool["type"]) for at, tool in enumerate(head.tools) if at not in tools)
    return Namespace(head.name, head.description, tools, unknown)
