"""Adapt tools and the tool choice to what a server accepts."""

import hashlib
import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

import msgspec

from ferrule.model.names import Callee, CallNames
from ferrule.model.payloads import json_array
from ferrule.model.profiles import ProviderProfile
from ferrule.model.recipient import Omissions
from ferrule.model.screen_calls import KINDS as SCREENS
from ferrule.model.stream import ForcedTool, ModelError, ToolChoice, ToolsUnusable
from ferrule.protocol.items import ToolSearchOutput
from ferrule.protocol.json_schema import JsonSchema
from ferrule.protocol.json_text import JsonValue
from ferrule.protocol.specs import (
    AllowedDomains,
    ApplyPatchTool,
    ComputerTool,
    ComputerUsePreview,
    DomainAllowList,
    FreeformTool,
    LocalShell,
    NamespaceTool,
    RawTool,
    ResponsesApiTool,
    ShellTool,
    ToolSearchTool,
    ToolSpec,
    WebSearch,
    Wire,
    runs_here,
    spec_name,
)
from ferrule.schemas.plain import plain_schema

LONGEST_NAME = 64
"""Longest function name that OpenAI and compatible servers accept."""

_FORBIDDEN = re.compile(r"[^a-zA-Z0-9_-]")
_QUERY = JsonSchema(
    {
        "type": "object",
        "properties": {"query": {"type": "string", "description": "What the tool should do, in a few words"}},
        "required": ["query"],
        "additionalProperties": False,
    }
)


class WireTool(msgspec.Struct, frozen=True):
    """One tool as sent. `name` is its name on the wire, None for a tool that is not called by name."""

    json: bytes
    name: str | None
    kind: str
    serial: bool = False
    """The request may not allow parallel calls with this tool."""


class WireTools(msgspec.Struct, frozen=True):
    """The tools of a request as sent, and what their names stand for in calls."""

    tools: tuple[WireTool, ...]
    names: CallNames
    sent_names: dict[tuple[str | None, str], str]
    """Maps a declared tool, by namespace and name, to its name on the wire."""
    left_out: tuple[str, ...] = ()
    """One sentence for each tool that is not sent."""

    @classmethod
    def empty(cls) -> "WireTools":
        """Return an empty set of tools."""
        return cls((), CallNames({}), {})

    def choose(self, choice: ToolChoice, server: ProviderProfile, wire: Wire) -> tuple[object, tuple[WireTool, ...]]:
        """Return `tool_choice` in the wire's spelling, and the tools to send with it.

        Raises `ModelError` if the choice requires a tool that is not sent.
        """
        if not isinstance(choice, ForcedTool):
            return choice, self.tools
        wanted = self.sent_names.get((None, choice.name), choice.name)
        tool = next((tool for tool in self.tools if wanted in (tool.name, tool.kind)), None)
        if tool is None:
            raise ModelError(f"{server.title} is not sent a tool {choice.name!r}, which was to be called.")
        if not server.forced_tool:
            return "required", (tool,)
        if wire == "messages":
            return {"type": "tool", "name": tool.name or tool.kind}, self.tools
        if tool.name is None:
            return {"type": tool.kind}, self.tools
        if wire == "chat":
            return {"type": tool.kind, tool.kind: {"name": tool.name}}, self.tools
        return {"type": tool.kind, "name": tool.name}, self.tools


def adapt_tools(specs: Iterable[ToolSpec], server: ProviderProfile, wire: Wire) -> WireTools:
    """Adapt the specs to this server and wire.

    Freeform tools become functions, namespaces are flattened. Unsupported tools are left out if the provider would run
    them, or if one of our functions does the same. Raises `ModelError` that names the tool if a tool that runs here
    cannot be sent, or two tools end up with one name.
    """
    specs = _without_twins(tuple(specs), server, wire)
    tools: list[WireTool] = []
    declared: dict[tuple[str | None, str], Callee] = {}
    sent: dict[tuple[str | None, str], str] = {}
    left_out = tuple(_unknown_there(spec, server, wire) for spec in specs if not _is_sent(spec, server, wire))
    told = searched_for(specs) if server.tool_search and wire == "responses" else []
    for spec in specs:
        for tool, space, callees in _adapt(spec, server, wire):
            if not any(spec is known for known in told):
                tools.append(tool)
            for name, callee in callees:
                if (space, name) in declared:
                    raise ToolsUnusable(f"Two tools are called {name!r} on the wire: rename or disable one of them.")
                declared[space, name] = callee
                sent[callee.namespace, callee.name] = name
    return WireTools(tuple(tools), CallNames(declared), sent, left_out)


def without_refused(tools: WireTools, omitted: Omissions) -> WireTools:
    """Drop the tools and the fields that the server has refused."""
    if not (omitted.kinds or omitted.tools or omitted.tool_fields):
        return tools
    kept = tuple(
        _pruned(tool, omitted.tool_fields)
        for tool in tools.tools
        if tool.kind not in omitted.kinds and tool.name not in omitted.tools
    )
    return msgspec.structs.replace(tools, tools=kept)


def _pruned(tool: WireTool, refused: frozenset[str]) -> WireTool:
    if not any(b'"%b":' % name.encode() in tool.json for name in refused):
        return tool
    return msgspec.structs.replace(tool, json=msgspec.json.encode(_without(msgspec.json.decode(tool.json), refused)))


def _without(value: JsonValue, names: frozenset[str]) -> JsonValue:
    """Remove these keys from `value` at any depth; the keys of `properties` are names of the tool's own."""
    if isinstance(value, list):
        return [_without(entry, names) for entry in value]
    if not isinstance(value, dict):
        return value
    kept = {key: entry for key, entry in value.items() if key not in names}
    return {
        key: {name: _without(below, names) for name, below in entry.items()}
        if key == "properties" and isinstance(entry, dict)
        else _without(entry, names)
        for key, entry in kept.items()
    }


def searched_for(specs: Iterable[ToolSpec]) -> list[ToolSpec]:
    """Return the tools found by our own search: the model knows them from its answer in the history, and repeating
    them would cost their tokens twice and the cache of everything after them."""
    specs = tuple(specs)
    if not any(isinstance(spec, ToolSearchTool) and spec.execution == "client" for spec in specs):
        return []
    return [spec for spec in specs if _is_deferred(spec)]


def _is_deferred(spec: ToolSpec) -> bool:
    if isinstance(spec, NamespaceTool):
        return all(tool.defer_loading for tool in spec.tools)
    return isinstance(spec, ResponsesApiTool | FreeformTool) and spec.defer_loading


def as_functions(spec: ToolSpec) -> Iterator[ResponsesApiTool]:
    """Convert a tool to flat functions for a server that knows only functions; yield none for what only the Responses
    API has."""
    if isinstance(spec, NamespaceTool):
        for tool in spec.tools:
            for function in as_functions(tool):
                yield msgspec.structs.replace(function, name=wire_name(Callee(tool.name, spec.name).flat))
    elif isinstance(spec, FreeformTool):
        yield spec.as_function()
    elif isinstance(spec, ResponsesApiTool):
        yield spec
    elif isinstance(spec, ToolSearchTool) and spec.execution == "client":
        yield _search_function(spec)
    elif isinstance(spec, ComputerTool | ComputerUsePreview) and spec.function is not None:
        yield spec.function


def _search_function(spec: ToolSearchTool) -> ResponsesApiTool:
    return ResponsesApiTool(
        name="tool_search",
        description=spec.description or "Looks for tools that are not listed here.",
        parameters=JsonSchema(spec.parameters) if spec.parameters else _QUERY,
    )


_Adapted = tuple[WireTool, str | None, list[tuple[str, Callee]]]


def _adapt(spec: ToolSpec, server: ProviderProfile, wire: Wire) -> Iterator[_Adapted]:
    if isinstance(spec, NamespaceTool):
        if server.namespaces and wire == "responses":
            callees = [(tool.name, Callee(tool.name, spec.name, _kind(tool))) for tool in spec.tools]
            serial = any(isinstance(tool, ResponsesApiTool) and tool.strict for tool in spec.tools)
            yield WireTool(spec.responses_json, spec.name, "namespace", serial), spec.name, callees
        else:
            for tool in spec.tools:
                yield _adapt_callable(tool, spec.name, server, wire)
    elif isinstance(spec, ResponsesApiTool | FreeformTool):
        yield _adapt_callable(spec, None, server, wire)
    elif (function := _instead(spec, server, wire)) is not None:
        yield _adapt_callable(function, None, server, wire)
    elif (
        isinstance(spec, ToolSearchTool)
        and spec.execution == "client"
        and not (server.tool_search and wire == "responses")
    ):
        function = _search_function(spec)
        yield (
            WireTool(_json(function, wire), function.name, "function"),
            None,
            [(function.name, Callee("tool_search", None, "tool_search_call"))],
        )
    else:
        yield from _adapt_hosted(spec, server, wire)


def _adapt_hosted(spec: ToolSpec, server: ProviderProfile, wire: Wire) -> Iterator[_Adapted]:
    kind = spec_name(spec)
    if isinstance(spec, RawTool):
        yield WireTool(spec.responses_json, None, kind), None, []
    elif wire == "messages" and isinstance(spec, WebSearch) and knows_tool(server, wire, kind):
        yield WireTool(_web_search(spec), None, kind), None, []
    elif knows_tool(server, wire, kind):
        yield WireTool(spec.responses_json, None, kind, serial=not runs_here(spec)), None, []
    elif runs_here(spec):
        raise ModelError(
            f"{server.title} on the {wire} wire does not know the tool type {kind!r}: "
            "leave it out of `tools`, or set another form for the model in profiles.toml in Ferrule's home."
        )


def _is_sent(spec: ToolSpec, server: ProviderProfile, wire: Wire) -> bool:
    """Return whether the server accepts such a tool, in its own or in another form."""
    function = ResponsesApiTool | FreeformTool | NamespaceTool | RawTool
    if isinstance(spec, function) or runs_here(spec) or knows_tool(server, wire, spec_name(spec)):
        return True
    return _instead(spec, server, wire) is not None


def _instead(spec: ToolSpec, server: ProviderProfile, wire: Wire) -> ResponsesApiTool | None:
    """Return the function that stands for a screen where the server does not know it."""
    if isinstance(spec, ComputerTool | ComputerUsePreview) and not knows_tool(server, wire, spec_name(spec)):
        return spec.function
    return None


def _unknown_there(spec: ToolSpec, server: ProviderProfile, wire: Wire) -> str:
    return f"{server.title} does not know the tool type {spec_name(spec)!r} on the {wire} wire: it is left out"


def _without_twins(specs: tuple[ToolSpec, ...], server: ProviderProfile, wire: Wire) -> tuple[ToolSpec, ...]:
    """Drop native tools that the server does not know and that a function replaces."""
    names = {spec.name for spec in specs if isinstance(spec, ResponsesApiTool | FreeformTool)}

    def has_twin(spec: ToolSpec) -> bool:
        shell = isinstance(spec, LocalShell) or (isinstance(spec, ShellTool) and runs_here(spec))
        twins = _SHELLS if shell else {"apply_patch"} if isinstance(spec, ApplyPatchTool) else frozenset()
        return not twins.isdisjoint(names) and not knows_tool(server, wire, spec_name(spec))

    return tuple(spec for spec in specs if not has_twin(spec))


_SHELLS = frozenset({"shell", "shell_command", "exec_command"})


def knows_tool(server: ProviderProfile, wire: Wire, kind: str) -> bool:
    """Return whether a server takes native tools of this type."""
    if kind in SCREENS and not server.native_screen:
        return False
    if wire == "messages":
        kind = WEB_SEARCH if kind == "web_search" else ""
    return wire != "chat" and bool(kind) and any(fnmatchcase(kind, known) for known in server.native_tools)


WEB_SEARCH = "web_search_20250305"
"""The search of the Messages API that its server runs."""


def _web_search(spec: WebSearch) -> bytes:
    """Return a search as the Messages API takes it, whose model decides how much it reads."""
    tool: dict[str, object] = {"type": WEB_SEARCH, "name": "web_search"}
    match spec.filters:
        case DomainAllowList(domains=domains) | AllowedDomains(allowed_domains=domains) if domains:
            tool["allowed_domains"] = domains
    if spec.user_location is not None:
        tool["user_location"] = spec.user_location
    return msgspec.json.encode(tool)


def _adapt_callable(
    spec: ResponsesApiTool | FreeformTool, namespace: str | None, server: ProviderProfile, wire: Wire
) -> _Adapted:
    callee = Callee(spec.name, namespace, _kind(spec))
    name = wire_name(callee.flat)
    kind = "function"
    if isinstance(spec, FreeformTool):
        if server.custom_tools:
            kind = "custom"
        else:
            spec = spec.as_function()
    if isinstance(spec, ResponsesApiTool) and spec.strict and not server.strict:
        spec = msgspec.structs.replace(spec, strict=False)
    if isinstance(spec, ResponsesApiTool) and server.schemas == "plain":
        spec = msgspec.structs.replace(spec, parameters=plain_schema(spec.parameters))
    if spec.defer_loading and not (server.tool_search and wire == "responses"):
        spec = msgspec.structs.replace(spec, defer_loading=False)
    if name != spec.name:
        spec = msgspec.structs.replace(spec, name=name)
    serial = isinstance(spec, ResponsesApiTool) and spec.strict and wire != "messages"
    sent = _trained(spec, server) if wire == "messages" else None
    return WireTool(sent or _json(spec, wire), name, kind, serial), None, [(name, callee)]


class _Trained(msgspec.Struct, frozen=True):
    """A tool of the Messages API that models were trained on, and the parameters that they give it."""

    type: str
    parameters: frozenset[str]


_TRAINED = {
    "bash": _Trained("bash_20250124", frozenset({"command", "restart"})),
    "str_replace_based_edit_tool": _Trained(
        "text_editor_20250728",
        frozenset({"command", "path", "file_text", "old_str", "new_str", "insert_line", "insert_text", "view_range"}),
    ),
}


def _trained(spec: ResponsesApiTool | FreeformTool, server: ProviderProfile) -> bytes | None:
    """Return a tool by the type that stands for it, if the server knows that; it needs no schema there."""
    known = _TRAINED.get(spec.name)
    if known is None or not isinstance(spec, ResponsesApiTool):
        return None
    if not any(fnmatchcase(known.type, kind) for kind in server.native_tools):
        return None
    if set(spec.parameters.mapping.get("properties", ())) != known.parameters:
        return None
    return msgspec.json.encode({"type": known.type, "name": spec.name})


def _kind(spec: ResponsesApiTool | FreeformTool) -> str:
    return "custom_tool_call" if isinstance(spec, FreeformTool) else "function_call"


def _json(spec: ResponsesApiTool | FreeformTool, wire: Wire) -> bytes:
    if wire == "responses":
        return spec.responses_json
    encoded = spec.chat_json if wire == "chat" else spec.messages_json
    assert encoded is not None
    return encoded


def found_text(output: ToolSearchOutput) -> str:
    """Return the tools that a search has found as text for a server that knows only functions. Those that the gateway
    found have the names by which it then sends them."""
    told = [bytes(raw) for raw in output.tools]
    if output.execution == "server":
        told = [msgspec.json.encode(one) for raw in told for one in _flattened(msgspec.json.decode(raw))]
    return json_array(told).decode()


def _flattened(tool: dict[str, JsonValue]) -> Iterator[dict[str, JsonValue]]:
    members = tool.get("tools")
    for member in members if isinstance(members, list) else ():
        yield member | {"name": wire_name(Callee(str(member.get("name")), str(tool.get("name"))).flat)}
    if not isinstance(members, list):
        yield tool


def wire_name(name: str) -> str:
    """Convert `name` to the characters and length that servers accept; a cut name ends in a hash."""
    clean = _FORBIDDEN.sub("_", name)
    if len(clean) <= LONGEST_NAME:
        return clean
    return f"{clean[: LONGEST_NAME - 9]}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"
