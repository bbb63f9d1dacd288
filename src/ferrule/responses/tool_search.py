"""`tool_search` run here: the tools that a request defers, found by words, and loaded from then on.

The model is told of a function, whose answers hold the found tools; the client is told of the items of the API. Pure.
Source: `tool_search`, `namespace`, `defer_loading`, `tool_search_call` and `tool_search_output` of the Responses API.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from functools import cached_property

import msgspec

from ferrule.mcp.names import qualified_name
from ferrule.model.adapt import wire_name
from ferrule.protocol.items import ResponseItem, ToolSearchCall, ToolSearchOutput, read_item
from ferrule.protocol.json_text import JsonObject, JsonValue
from ferrule.protocol.specs import FreeformTool, NamespaceTool, ResponsesApiTool, ToolSearchTool, ToolSpec
from ferrule.tools.registry import ToolKey
from ferrule.tools.search import DEFAULT_LIMIT, MAX_LISTED, DeferredTool, ToolIndex, as_loaded_specs

NAME = "tool_search"
LONGEST_ABOUT = 200
"""Characters that are told of a group of tools, or of one that is in none."""
MOST_ABOUT = 8_000
"""Characters of all that is told of what can be found: the model reads them in each request."""

_WHAT = """\
Looks for tools that are not listed here by words of their names, descriptions and parameters. The tools that it finds \
can be called from then on. Search before you say that something cannot be done."""
_PARAMETERS: JsonObject = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "description": "Words that say what the tool should do, or parts of its name"},
        "limit": {"type": "integer", "description": f"How many tools to find; {DEFAULT_LIMIT} by default"},
    },
    "required": ["query"],
    "additionalProperties": False,
}


class Later(msgspec.Struct, frozen=True):
    """A tool that is told of when it was found: `tool` as the client knows it, `spec` as the model is told of it."""

    tool: DeferredTool
    spec: ResponsesApiTool | FreeformTool | NamespaceTool

    @property
    def key(self) -> ToolKey:
        """The key by which an answer names it to the model."""
        return self.tool.key if isinstance(self.spec, NamespaceTool) else (None, self.spec.name)

    def is_meant(self, choice: JsonObject) -> bool:
        """Return whether an entry of `allowed_tools` names it, or what it is in, or allows the search."""
        match choice.get("type"):
            case "namespace":
                return isinstance(self.spec, NamespaceTool) and choice.get("name") == self.spec.name
            case "mcp":
                of_server = not isinstance(self.spec, NamespaceTool) and choice.get("server_label") == self.tool.space
                return of_server and choice.get("name") in (None, self.tool.spec.name)
            case "function" | "custom":
                return choice.get("name") == self.tool.spec.name and self.tool.space is None
        return choice.get("type") == NAME


def later(spec: ResponsesApiTool | FreeformTool, space: NamespaceTool | None = None) -> Later:
    """Return a deferred tool of the client, in its namespace."""
    tool = DeferredTool(spec) if space is None else DeferredTool(spec, space.name, space.description)
    return Later(tool, as_loaded_specs([tool])[0])


def later_of_server(label: str, about: str, name: str, function: ResponsesApiTool) -> Later:
    """Return a deferred tool of an MCP server: the server names it `name`, the model is told of `function`."""
    shown = msgspec.structs.replace(function, name=name)
    return Later(DeferredTool(shown, label, about), msgspec.structs.replace(function, defer_loading=True))


class Search(msgspec.Struct, frozen=True, dict=True):
    """The search of one request. `tools` can be found."""

    tools: tuple[Later, ...] = ()

    @property
    def spec(self) -> ToolSearchTool:
        """The tool as the model is told of it, with what can be found."""
        told = "".join(f"\n- {line}" for line in bounded(_about(self.tools)))
        described = f"{_WHAT}\n\nWhat can be found:{told}" if told else _WHAT
        return ToolSearchTool(description=described, parameters=_PARAMETERS)

    def loaded(self, keys: Iterable[ToolKey]) -> tuple[ToolSpec, ...]:
        """Return the tools of these keys, in their order, once each."""
        known = self._by_key
        return tuple(known[key].spec for key in dict.fromkeys(keys) if key in known)

    def callee(self, name: str) -> tuple[str | None, str]:
        """Return the namespace and the name under which the client gets a call that the model made without one. That
        of a deferred function is its own name, by which clients tell that it was searched for; a tool of a namespace
        that is called before it was found is not known by its name on the wire yet."""
        known = self._by_key.get((None, name))
        if known is not None and known.tool.space is None:
            return name, name
        return self._by_flat_name.get(name, (None, name))

    @cached_property
    def _by_flat_name(self) -> Mapping[str, tuple[str | None, str]]:
        spaced = [one.tool for one in self.tools if isinstance(one.spec, NamespaceTool)]
        return {wire_name(tool.flat_name): tool.key for tool in spaced}

    @cached_property
    def _by_key(self) -> Mapping[ToolKey, Later]:
        return {one.key: one for one in self.tools}

    @cached_property
    def _index(self) -> ToolIndex:
        return ToolIndex([one.tool for one in self.tools])

    def search(self, arguments: JsonValue) -> list[Later]:
        """Return the best tools for a call. One without a query finds nothing."""
        known = {id(one.tool): one for one in self.tools}
        return [known[id(hit.tool)] for hit in self._index.search(*_asked(arguments))]

    @staticmethod
    def answer(call: ToolSearchCall, tools: Sequence[Later]) -> ToolSearchOutput:
        """Return the answer to a call as the model gets it."""
        specs = tuple(msgspec.Raw(one.spec.responses_json) for one in tools)
        return ToolSearchOutput(tools=specs, execution="server", call_id=call.call_id, status="completed")

    def close(self) -> None:
        """Drop the index."""
        if "_index" in self.__dict__:
            self._index.close()


def shown_to_client(tools: Sequence[Later]) -> list[JsonObject]:
    """Return tools as the client gets them: full definitions, those of a namespace or of a server as a group."""
    return [msgspec.json.decode(spec.responses_json) for spec in as_loaded_specs(one.tool for one in tools)]


def found_in(items: Iterable[ResponseItem]) -> Iterator[ToolKey]:
    """Yield the tools that answers in a conversation name; a client's answer may hold others."""
    for item in items:
        for raw in item.view.tools if isinstance(item.view, ToolSearchOutput) else ():
            tool: JsonObject = msgspec.json.decode(raw)
            space = str(tool.get("name")) if tool.get("type") == "namespace" else None
            yield from ((space, str(one.get("name"))) for one in ([tool] if space is None else tool["tools"]))


def ran_here(call: ResponseItem) -> ResponseItem:
    """Return a call of the search as the conversation keeps it: the server has run it."""
    fields: JsonObject = msgspec.json.decode(call.raw)
    return read_item(msgspec.json.encode(fields | {"execution": "server"}), call.origin)


def as_told(items: Sequence[JsonObject], labels: Container[str], spaces: Container[str]) -> list[JsonObject]:
    """Return a client's items with the searches that a server ran as the model knows them: the API gives these no
    `call_id`, and an output follows its call. `labels` are those of MCP servers, whose tools are functions; `spaces`
    are namespaces, and a call in another one of its function's name is in none (see `Search.callee`)."""
    waiting: list[str] = []
    found: list[JsonObject] = []
    for item in items:
        ran = item.get("call_id") is None and item.get("execution") != "client"
        match item.get("type"):
            case "tool_search_call" if ran:
                waiting.append(f"search_{item.get('id')}")
                found.append(item | {"call_id": waiting[-1], "execution": "server"})
            case "tool_search_output" if ran:
                call_id = waiting.pop(0) if waiting else str(item.get("id"))
                tools = list(_as_told(item.get("tools"), labels))
                found.append(item | {"call_id": call_id, "execution": "server", "tools": tools})
            case "function_call" | "custom_tool_call" if item.get("namespace") not in spaces:
                own = item.get("namespace") == item.get("name")
                found.append({key: value for key, value in item.items() if not (own and key == "namespace")})
            case _:
                found.append(item)
    return found


def _as_told(tools: JsonValue, labels: Container[str]) -> Iterator[JsonValue]:
    """Yield tools of an answer, whose fields have been checked, as the model was told of them."""
    for tool in tools if isinstance(tools, list) else ():
        space = str(tool.get("name"))
        if tool.get("type") != "namespace":
            yield _in_order(tool)
        elif space not in labels:
            yield tool | {"tools": [_in_order(member) for member in tool["tools"]]}
        else:
            for member in tool["tools"]:
                yield _in_order(member) | {"name": qualified_name(space, str(member.get("name")))}


def _in_order(tool: JsonObject) -> JsonObject:
    """Return a tool with its fields in our order, which clients change: what a server has cached of it stands then."""
    return {field: tool[field] for field in _FIELDS if field in tool} | tool


_FIELDS = ("type", "name", "description", "strict", "parameters", "format", "defer_loading")


def _asked(arguments: JsonValue) -> tuple[str, int]:
    """Return the query and the limit of a call, of which only the query has to make sense: an answer has no words."""
    given = arguments if isinstance(arguments, dict) else {}
    limit = given.get("limit")
    most = limit if isinstance(limit, int) and limit > 0 else DEFAULT_LIMIT
    return str(given.get("query") or ""), min(most, MAX_LISTED)


def _about(tools: Sequence[Later]) -> Iterator[str]:
    """Yield a line for each namespace and server, and for each tool that is in none."""
    groups: dict[str, list[DeferredTool]] = {}
    for one in tools:
        if one.tool.space is not None:
            groups.setdefault(one.tool.space, []).append(one.tool)
    for space, members in groups.items():
        yield _line(f"{space} ({len(members)} tools)", members[0].space_description)
    for one in tools:
        if one.tool.space is None:
            yield _line(one.tool.spec.name, one.tool.spec.description)


def _line(name: str, about: str) -> str:
    told = " ".join(about.split())
    told = told if len(told) <= LONGEST_ABOUT else f"{told[:LONGEST_ABOUT].rstrip()}…"
    return f"{name}: {told}" if told else name


def bounded(lines: Iterable[str]) -> list[str]:
    """Return the lines that fit, and how many more there are."""
    kept: list[str] = []
    room, left = MOST_ABOUT, 0
    for line in lines:
        if left or len(line) > room:
            left += 1
        else:
            kept.append(line)
            room -= len(line)
    return [*kept, f"and {left} more"] if left else kept
