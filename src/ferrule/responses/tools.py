"""The tools of a request: read, echoed, and turned into what the upstream model is told.

Tools of unknown types are kept and echoed. Those that nobody runs are named in `ToolPlan.not_run`.
Source: the `tools` and `tool_choice` of the Responses API.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence

import msgspec

from ferrule.hosted.mcp.declared import RemoteServer
from ferrule.hosted.network import without_values
from ferrule.hosted.tool import HostedTool
from ferrule.model.stream import ForcedTool, ToolChoice
from ferrule.protocol.errors import UsageError
from ferrule.protocol.json_schema import JsonSchema
from ferrule.protocol.json_text import JsonObject, JsonValue
from ferrule.protocol.specs import (
    FreeformTool,
    FreeformToolFormat,
    NamespaceTool,
    RawTool,
    ResponsesApiTool,
    ToolSearchTool,
    ToolSpec,
    spec_name,
)
from ferrule.responses.errors import ApiError
from ferrule.responses.hosted_calls import Declared, Hosted
from ferrule.responses.native_tools import NATIVE_TOOLS, NativeTool
from ferrule.responses.tool_search import NAME as SEARCH
from ferrule.responses.tool_search import Later, Search, later, later_of_server
from ferrule.responses.tool_shapes import (
    Custom,
    Function,
    Grammar,
    Namespace,
    Text,
    ToolSearch,
    read_tool,
)
from ferrule.tools.grammar import InputGrammar, checkable_grammar
from ferrule.tools.registry import ToolKey

ANY_TEXT = FreeformToolFormat("text", "", "")
MOST_SERVERS = 32
"""MCP servers of one request, each of which is asked for its tools: a model tells no more apart."""
NO_PARAMETERS: JsonObject = {"type": "object", "properties": {}}


class ToolPlan(msgspec.Struct, frozen=True):
    """What the tools of one request become.

    `echoed`: as the response shows them. `specs`: for the upstream. `natives`: tools with items of their own that the
    upstream is told of as functions, by the functions' names. `grammars`: of freeform tools, by namespace and name.
    `hosted`: tools that are run here, by the names of their functions. `unopened`: tools that are run here, and whose
    functions are known once the response runs. `not_run`: types of tools, and fields of tools, that nobody runs.
    `search`: finds the tools that are deferred; `found` are the keys of those that it has found, the oldest first.
    """

    echoed: tuple[JsonObject, ...] = ()
    specs: tuple[ToolSpec, ...] = ()
    natives: Mapping[str, NativeTool] = {}
    grammars: Mapping[tuple[str | None, str], InputGrammar] = {}
    hosted: Mapping[str, Hosted] = {}
    unopened: tuple[Declared, ...] = ()
    not_run: tuple[str, ...] = ()
    search: Search | None = None
    found: tuple[ToolKey, ...] = ()

    @property
    def ours(self) -> tuple[Declared, ...]:
        """The tools that are run here; those of several functions more than once."""
        return (*self.hosted.values(), *self.unopened)

    @property
    def names(self) -> dict[str, str]:
        """The names of the functions that stand for tools with items of their own, by the tools' types: of a tool's
        functions the first."""
        natives = {tool.kind: name for name, tool in self.natives.items()}
        return {_kind(entry.declared): name for name, entry in reversed(tuple(self.hosted.items()))} | natives

    @property
    def spaces(self) -> frozenset[str]:
        """The names of the client's namespaces."""
        later = () if self.search is None else (one.spec for one in self.search.tools)
        return frozenset(spec.name for spec in (*self.specs, *later) if isinstance(spec, NamespaceTool))

    def callee(self, namespace: str | None, name: str) -> tuple[str | None, str]:
        """Return the namespace and the name that a call has for the client; see `Search.callee`."""
        return self.search.callee(name) if namespace is None and self.search is not None else (namespace, name)

    def called(self, function: str) -> str:
        """Return the name by which the model knows a function of ours."""
        return next((name for name, entry in self.hosted.items() if entry.function == function), function)

    def is_ours(self, kind: str) -> bool:
        """Return whether a tool of this type is run here."""
        return any(entry.tool.kind == kind for entry in self.ours)

    def with_found(self, keys: Iterable[ToolKey]) -> "ToolPlan":
        """Return the plan with the tools of these keys loaded, behind those that are: so what a server has cached of
        them stands."""
        found = tuple(dict.fromkeys((*self.found, *keys)))
        if self.search is None or found == self.found:
            return self
        before = {id(spec) for spec in self.specs}
        added = [spec for spec in self.search.loaded(found) if id(spec) not in before]
        return msgspec.structs.replace(self, specs=(*self.specs, *added), found=found)

    def with_notes(self, notes: Mapping[str, str]) -> "ToolPlan":
        """Return the plan with more in the descriptions of functions, by their names."""
        if not any(notes.values()):
            return self
        specs = [_noted(spec, notes.get(spec_name(spec), "")) for spec in self.specs]
        return msgspec.structs.replace(self, specs=tuple(specs))


def plan_tools(given: Sequence[JsonObject], knows: Callable[[str], bool], own: Sequence[HostedTool] = ()) -> ToolPlan:
    """Read the tools. `knows` tells which types the upstream takes as they are; `own` are those that run here. Raises
    `ApiError`."""
    shapes = [read_tool(tool, f"tools[{index}]") for index, tool in enumerate(given)]
    searches = any(isinstance(shape, ToolSearch) and shape.execution != "client" for shape in shapes)
    taken = {shape.name for shape in shapes if isinstance(shape, Function | Custom | Namespace)}
    planned = _Planned(knows, own, searches, taken)
    for tool, shape in zip(given, shapes, strict=True):
        planned.add(tool, shape)
    specs, deferred = planned.specs, planned.deferred
    _check_twins([*specs, *(one.spec for one in deferred if one.tool.space is None)])
    _check_servers(shapes, {one.tool.space for one in deferred})
    search = Search(tuple(deferred)) if searches else None
    if search is not None and not planned.unopened:
        specs = _described(specs, search)
    return ToolPlan(
        tuple(_echo(tool) for tool in given),
        tuple(specs),
        planned.natives,
        _grammars(shapes),
        planned.hosted,
        tuple(planned.unopened),
        tuple(dict.fromkeys(planned.not_run)),
        search,
    )


class _Planned:
    """What the tools become that were read so far. `taken` are the names that functions of ours cannot have."""

    def __init__(
        self, knows: Callable[[str], bool], own: Sequence[HostedTool], searches: bool, taken: set[str]
    ) -> None:
        self._knows = knows
        self._own = own
        self._searches = searches
        self._taken = taken
        self.specs: list[ToolSpec] = []
        self.natives: dict[str, NativeTool] = {}
        self.hosted: dict[str, Hosted] = {}
        self.unopened: list[Declared] = []
        self.not_run: list[str] = []
        self.deferred: list[Later] = []

    def add(self, tool: JsonObject, shape: msgspec.Struct | None) -> None:
        """Decide who runs a tool: the client, the upstream, we, or nobody."""
        here = next((one for one in self._own if one.is_meant(tool)), None)
        if isinstance(shape, Function | Custom | Namespace):
            self._add_of_client(shape)
        elif isinstance(shape, ToolSearch):
            self.specs.append(ToolSearchTool(description=shape.description, parameters=shape.parameters))
        elif self._knows(_kind(tool)) and not (here is not None and here.goes_first):
            self.specs.append(RawTool(definition=tool))
        elif (native := next((native for native in NATIVE_TOOLS if native.is_meant(tool)), None)) is not None:
            name = _free_name(native.name, self._taken)
            self._taken.add(name)
            self.natives[name] = native
            self.specs.append(native.function(name, tool))
        elif here is not None and here.opens:
            self.unopened.append(Declared(here, tool))
        elif here is not None:
            self.specs += _add_functions(here, tool, self._taken, self.hosted)
            self.not_run += here.not_run(tool)
        else:
            self.not_run.append(_kind(tool))

    def _add_of_client(self, shape: Function | Custom | Namespace) -> None:
        now, put_off = _divided(_declared(shape)) if self._searches else ([_declared(shape)], [])
        self.specs += now
        self.deferred += put_off
        self.not_run += shape.unknown if isinstance(shape, Namespace) else ()


def _divided(spec: ToolSpec) -> tuple[list[ToolSpec], list[Later]]:
    """Return what the model is told of at once, and the tools that it may find."""
    if isinstance(spec, NamespaceTool):
        now = tuple(tool for tool in spec.tools if not tool.defer_loading)
        put_off = [later(tool, spec) for tool in spec.tools if tool.defer_loading]
        return ([msgspec.structs.replace(spec, tools=now)] if now or not put_off else []), put_off
    put_off = [later(spec)] if isinstance(spec, ResponsesApiTool | FreeformTool) and spec.defer_loading else []
    return ([] if put_off else [spec]), put_off


def _described(specs: Iterable[ToolSpec], search: Search) -> list[ToolSpec]:
    """Return the specs with the search told of by what it can find now; without it if that is nothing."""
    others = [(search.spec if isinstance(spec, ToolSearchTool) else spec) for spec in specs]
    return others if search.tools else [spec for spec in others if not isinstance(spec, ToolSearchTool)]


def _noted(spec: ToolSpec, note: str) -> ToolSpec:
    if not note or not isinstance(spec, ResponsesApiTool):
        return spec
    return msgspec.structs.replace(spec, description=spec.description + note)


def _add_functions(
    tool: HostedTool, declared: JsonObject, taken: set[str], hosted: dict[str, Hosted]
) -> Iterator[ResponsesApiTool]:
    """Yield the functions of a tool of ours, under names that are free, and note them."""
    for function in tool.functions(declared):
        name = _free_name(function.name, taken)
        taken.add(name)
        hosted[name] = Hosted(tool, declared, function.name)
        yield function if name == function.name else msgspec.structs.replace(function, name=name)


def with_opened(plan: ToolPlan, tools: Sequence[HostedTool]) -> ToolPlan:
    """Return the plan with the functions of the tools that were not open, in their order."""
    hosted = dict(plan.hosted)
    search = plan.search or Search()
    deferred = list(search.tools)
    taken = {spec_name(spec) for spec in (*plan.specs, *(one.spec for one in deferred))}
    found = {id(spec) for spec in search.loaded(plan.found)}
    specs = [spec for spec in plan.specs if id(spec) not in found]
    for tool, one in zip(tools, plan.unopened, strict=True):
        functions = _add_functions(tool, one.declared, taken, hosted)
        if plan.search is not None and one.declared.get("defer_loading") is True:
            label, about = str(one.declared.get("server_label")), str(one.declared.get("server_description") or "")
            deferred += (later_of_server(label, about, tool.name_of(hosted[f.name].function), f) for f in functions)
        else:
            specs += functions
    opened = msgspec.structs.replace(plan, specs=tuple(specs), hosted=hosted, unopened=())
    if plan.search is None:
        return opened
    search = msgspec.structs.replace(search, tools=tuple(deferred))
    opened = msgspec.structs.replace(opened, specs=tuple(_described(specs, search)), search=search, found=())
    return opened.with_found(plan.found)


def choose_tool(choice: str | JsonObject | None, plan: ToolPlan) -> tuple[ToolChoice, tuple[ToolSpec, ...]]:
    """Return the tool choice for the upstream, and the tools to send with it. Raises `ApiError`."""
    if choice is None or isinstance(choice, str):
        if choice == "required" and not plan.specs:
            choice = "auto"  # no server could list its tools
        return (choice or "auto", plan.specs)  # type: ignore[return-value]  # the request's reader has checked it
    kind, name = choice.get("type"), choice.get("name")
    plan = plan.with_found(_named_by(choice))
    if kind == SEARCH and plan.search is not None:
        return (ForcedTool(SEARCH) if plan.search.tools else "auto"), plan.specs
    if kind in ("function", "custom"):
        if name not in {spec_name(spec) for spec in plan.specs}:
            raise ApiError(f"tool_choice: there is no tool {name!r} in tools", param="tool_choice.name")
        return ForcedTool(str(name)), plan.specs
    if kind == "allowed_tools":
        return _allowed(choice, plan)
    if not isinstance(kind, str):
        raise ApiError("tool_choice: an object needs a type", param="tool_choice.type")
    if "server_label" in choice and plan.is_ours(kind):
        return _of_server(choice, plan)
    if native := plan.names.get(kind):
        return ForcedTool(native), plan.specs
    sent = any(isinstance(spec, RawTool) and spec.definition.get("type") == kind for spec in plan.specs)
    return (ForcedTool(kind) if sent else "auto"), plan.specs


def restricted(plan: ToolPlan, choice: str | JsonObject | None) -> ToolPlan:
    """Return the plan whose search finds only what `allowed_tools` names, if the choice is that."""
    listed = choice.get("tools") if isinstance(choice, dict) and choice.get("type") == "allowed_tools" else None
    if plan.search is None or not isinstance(listed, list):
        return plan
    named = [tool for tool in listed if isinstance(tool, dict)]
    search = Search(tuple(one for one in plan.search.tools if any(map(one.is_meant, named))))
    specs = plan.specs if plan.unopened else tuple(_described(plan.specs, search))
    return msgspec.structs.replace(plan, search=search, specs=specs)


def _named_by(choice: JsonObject) -> Iterator[ToolKey]:
    """Yield the keys of the client's tools that a choice names."""
    listed = choice.get("tools")
    for tool in (choice, *(listed if isinstance(listed, list) else ())):
        if isinstance(tool, dict) and tool.get("type") in ("function", "custom"):
            yield (None, str(tool.get("name")))


def _of_server(choice: JsonObject, plan: ToolPlan) -> tuple[ToolChoice, tuple[ToolSpec, ...]]:
    """Ask for a tool of a server, or for any of them, unless the server did not list its tools."""
    label, name = choice["server_label"], choice.get("name")
    if label not in {one.declared.get("server_label") for one in plan.ours}:
        param = "tool_choice.server_label"
        raise ApiError(f"{param}: there is no server {label!r} in tools", param=param)
    names = set(_meant(choice, plan))
    if name is None:
        specs = tuple(spec for spec in plan.specs if spec_name(spec) in names)
        deferred = plan.search is not None and any(one.spec.name in names for one in plan.search.tools)
        return ("required", specs) if specs else (ForcedTool(SEARCH) if deferred else "auto", plan.specs)
    plan = plan.with_found((None, str(found)) for found in names)
    if not names and any(one.declared.get("server_label") == label for one in plan.hosted.values()):
        raise ApiError(f"tool_choice.name: {label!r} has no tool {name!r}", param="tool_choice.name")
    return (ForcedTool(str(next(iter(names)))) if names else "auto"), plan.specs


def _allowed(choice: JsonObject, plan: ToolPlan) -> tuple[ToolChoice, tuple[ToolSpec, ...]]:
    """Leave only the tools that the choice names."""
    listed = choice.get("tools")
    mode = choice.get("mode", "auto")
    if mode not in ("auto", "required"):
        raise ApiError(f"tool_choice.mode: {mode!r} is neither auto nor required", param="tool_choice.mode")
    if not isinstance(listed, list) or not all(isinstance(tool, dict) for tool in listed):
        raise ApiError("tool_choice.tools: a list of tools is needed", param="tool_choice.tools")
    declared = {spec_name(spec) for spec in plan.specs}
    for at, tool in enumerate(listed):
        if tool.get("type") in ("function", "custom") and tool.get("name") not in declared:
            param = f"tool_choice.tools[{at}].name"
            raise ApiError(f"{param}: there is no tool {tool.get('name')!r} in tools", param=param)
    names = {name for tool in listed for name in _meant(tool, plan)}
    names |= {SEARCH} if plan.search is not None and plan.search.tools else set()
    kept = tuple(spec for spec in plan.specs if spec_name(spec) in names)
    return (mode if kept else "none"), kept


def _kind(tool: JsonObject) -> str:
    return str(tool.get("type"))


def _meant(tool: JsonObject, plan: ToolPlan) -> tuple[JsonValue, ...]:
    """Return the names of the functions that an allowed tool stands for."""
    kind = _kind(tool)
    if "server_label" in tool:
        servers = {name: entry for name, entry in plan.hosted.items() if entry.declared.get("server_label")}
        return tuple(name for name, entry in servers.items() if entry.is_meant(tool))
    hosted = tuple(name for name, entry in plan.hosted.items() if _kind(entry.declared) == kind)
    return (tool["name"],) if tool.get("name") else hosted or (plan.names.get(kind, kind),)


def _customs(shape: msgspec.Struct | None) -> Iterator[tuple[str, str | None, Custom]]:
    """Yield the freeform tools, each with where it stands and its namespace."""
    if isinstance(shape, Custom):
        yield "", None, shape
    elif isinstance(shape, Namespace):
        members = shape.tools.items()
        yield from ((f".tools[{at}]", shape.name, tool) for at, tool in members if isinstance(tool, Custom))


def _grammars(shapes: Sequence[msgspec.Struct | None]) -> dict[tuple[str | None, str], InputGrammar]:
    """Return the grammars, compiled. Raises `ApiError` for one that cannot be read."""
    found: dict[tuple[str | None, str], InputGrammar] = {}
    for index, shape in enumerate(shapes):
        for at, space, custom in _customs(shape):
            grammar = checkable_grammar(_format(custom.format))
            if grammar is not None:
                _load(grammar, f"tools[{index}]{at}.format.definition")
                found[space, custom.name] = grammar
    return found


def _load(grammar: InputGrammar, param: str) -> None:
    try:
        grammar.load()
    except UsageError as error:
        raise ApiError(f"{param}: {error}", param=param, code="invalid_grammar") from error


def _declared(shape: Function | Custom | Namespace) -> ToolSpec:
    if isinstance(shape, Namespace):
        tools = tuple(map(_callable, shape.tools.values()))
        return NamespaceTool(name=shape.name, description=shape.description or "", tools=tools)
    return _callable(shape)


def _callable(shape: Function | Custom) -> ResponsesApiTool | FreeformTool:
    if isinstance(shape, Custom):
        return FreeformTool(
            name=shape.name,
            description=shape.description or "",
            format=_format(shape.format),
            defer_loading=shape.defer_loading is True,
        )
    return ResponsesApiTool(
        name=shape.name,
        description=shape.description or "",
        parameters=JsonSchema(shape.parameters or NO_PARAMETERS),
        strict=shape.strict is True,
        defer_loading=shape.defer_loading is True,
    )


def _format(given: Text | Grammar | None) -> FreeformToolFormat:
    if isinstance(given, Grammar):
        return FreeformToolFormat("grammar", given.syntax, given.definition)
    return ANY_TEXT


def _free_name(wanted: str, taken: set[str]) -> str:
    """Return a name for a function of ours that no tool of the client has."""
    return next(name for name in _numbered(wanted) if name not in taken)


def _numbered(name: str) -> Iterator[str]:
    yield name
    number = 2
    while True:
        yield f"{name}_{number}"
        number += 1


def _check_twins(specs: Sequence[ToolSpec]) -> None:
    names: set[str] = set()
    for spec in specs:
        if isinstance(spec, RawTool):
            continue
        if (name := spec_name(spec)) in names:
            raise ApiError(f"tools: two tools are called {name!r}", param="tools")
        names.add(name)


def _check_servers(shapes: Sequence[msgspec.Struct | None], spaces: Container[str | None]) -> None:
    """Check that servers can be told apart, also from the namespaces that are searched, and are not too many. Raises
    `ApiError`."""
    labels: set[str] = set()
    for at, shape in enumerate(shapes):
        if not isinstance(shape, RemoteServer):
            continue
        if shape.server_label in labels:
            param = f"tools[{at}].server_label"
            raise ApiError(f"{param}: two servers are called {shape.server_label!r}", param=param)
        if shape.defer_loading and shape.server_label in spaces:
            param = f"tools[{at}].server_label"
            raise ApiError(f"{param}: a namespace is called {shape.server_label!r}, too", param=param)
        labels.add(shape.server_label)
        if len(labels) > MOST_SERVERS:
            raise ApiError(f"tools: at most {MOST_SERVERS} MCP servers in one request", param="tools")


def _echo(tool: JsonObject) -> JsonObject:
    """Return a tool as the response shows it: a function with all of its fields."""
    if tool.get("type") != "function":
        return _without_secrets(tool)
    return {"description": None, "parameters": None} | without_values(tool) | {"strict": tool.get("strict") is True}


def echoed_choice(choice: str | JsonObject | None) -> str | JsonObject:
    """Return the tool choice as the response shows it. Some clients put whole tools into it."""
    if choice is None or isinstance(choice, str):
        return choice or "auto"
    if not isinstance(listed := choice.get("tools"), list):
        return _without_secrets(choice)
    tools = [_without_secrets(tool) if isinstance(tool, dict) else tool for tool in listed]
    return _without_secrets(choice | {"tools": tools})


_SECRET = frozenset({"authorization", "headers"})


def _without_secrets(tool: JsonObject) -> JsonObject:
    """Remove an MCP server's credentials and the values of secrets: what is stored and shown holds none."""
    if tool.get("type") != "mcp":
        return without_values(tool)
    url = tool.get("server_url")
    bare = {"server_url": url.partition("?")[0]} if isinstance(url, str) else {}
    return without_values({key: value for key, value in tool.items() if key not in _SECRET} | bare)
