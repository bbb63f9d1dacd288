"""Tool search: the tools that the model is not shown, BM25 over them, and those found so far."""

import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from ferrule.protocol.specs import FreeformTool, NamespaceTool, ResponsesApiTool
from ferrule.tools.registry import DeferrableSpec, ToolKey

if TYPE_CHECKING:
    import sqlite3

MAX_LISTED = 40
"""Tools listed in a request; with more of them models choose worse, so external ones are deferred to the search."""
DEFAULT_LIMIT = 8
"""Tools that one search returns at most, if the call gives no limit."""

_WEIGHTS = "8.0, 4.0, 1.0, 1.0"
"""The weight of a word in the name, the title, the description and the names of the parameters."""
_WORD = re.compile(r"[^\W_]+")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_MCP_NAME = re.compile(r"(mcp__(.+?))__(.+)")


class DeferredTool(msgspec.Struct, frozen=True):
    """A deferred tool. `space` is the namespace that it is shown in, `space_description` its description."""

    spec: ResponsesApiTool | FreeformTool
    space: str | None = None
    space_description: str = ""
    title: str = ""

    @property
    def key(self) -> ToolKey:
        """The key it is called by."""
        return (self.space, self.spec.name)

    @property
    def flat_name(self) -> str:
        """The tool's name on wires without namespaces."""
        return self.spec.name if self.space is None else f"{self.space}__{self.spec.name}"

    @property
    def server(self) -> str | None:
        """The MCP server or the namespace of the tool."""
        return None if self.space is None else self.space.removeprefix("mcp__")

    @property
    def parameter_names(self) -> list[str]:
        """The names of the tool's top-level parameters."""
        if isinstance(self.spec, FreeformTool):
            return []
        properties = self.spec.parameters.mapping.get("properties")
        return sorted(properties) if isinstance(properties, dict) else []


class Hit(msgspec.Struct, frozen=True):
    """A match; a higher score is better."""

    tool: DeferredTool
    score: float


class ToolIndex:
    """A BM25 index over tools: SQLite's FTS5 in memory, built at the first search."""

    def __init__(self, tools: Sequence[DeferredTool]) -> None:
        self.tools = sorted(tools, key=lambda tool: tool.flat_name)

    @cached_property
    def _database(self) -> "sqlite3.Connection":
        import sqlite3

        database = sqlite3.connect(":memory:", check_same_thread=False)
        database.execute(
            "CREATE VIRTUAL TABLE tools USING fts5(name, title, description, parameters, "
            "tokenize='porter unicode61 remove_diacritics 2')"
        )
        rows = ((number, *_document(tool)) for number, tool in enumerate(self.tools))
        database.executemany(
            "INSERT INTO tools(rowid, name, title, description, parameters) VALUES (?, ?, ?, ?, ?)", rows
        )
        return database

    def search(self, query: str, limit: int = DEFAULT_LIMIT) -> list[Hit]:
        """Return the tools that contain words of the query, best first; if there are none, those with words that begin
        so."""
        words = _WORD.findall(_HUMP.sub(" ", query))
        if not words or not self.tools:
            return []
        return self._matches((f'"{word}"' for word in words), limit) or self._matches(
            (f'"{word}"*' for word in words), limit
        )

    def _matches(self, terms: Iterable[str], limit: int) -> list[Hit]:
        score = f"bm25(tools, {_WEIGHTS})"
        found = self._database.execute(
            f"SELECT rowid, {score} FROM tools WHERE tools MATCH ? ORDER BY {score}, rowid LIMIT ?",
            (" OR ".join(dict.fromkeys(terms)), limit),
        )
        return [Hit(self.tools[number], -score) for number, score in found]

    def close(self) -> None:
        """Drop the index."""
        if "_database" in self.__dict__:
            self._database.close()


def _document(tool: DeferredTool) -> tuple[str, str, str, str]:
    name = tool.flat_name
    parts = _HUMP.sub(" ", name)
    parameters = tool.parameter_names
    told = " ".join([*parameters, *(_HUMP.sub(" ", one) for one in parameters if _HUMP.search(one))])
    return name if parts == name else f"{name} {parts}", tool.title, tool.spec.description, told


class ToolSearch:
    """The deferred tools of a session. Found tools join later requests: then `revision` grows."""

    def __init__(self) -> None:
        self.revision = 0
        self._offered: list[DeferrableSpec] = []
        self._index = ToolIndex([])
        self._found: dict[ToolKey, None] = {}

    @property
    def tools(self) -> Sequence[DeferredTool]:
        """All tools that can be found, by name."""
        return self._index.tools

    @property
    def found(self) -> list[DeferredTool]:
        """The tools found so far and still offered, in order of finding."""
        offered = {tool.key: tool for tool in self._index.tools} if self._found else {}
        return [offered[key] for key in self._found if key in offered]

    def offer(self, specs: Sequence[DeferrableSpec]) -> None:
        """Replace the deferred tools."""
        if self._offered != specs:
            self._offered = list(specs)
            self._index.close()
            self._index = ToolIndex([tool for spec in specs for tool in _tools_of(spec)])

    def search(self, query: str, limit: int = DEFAULT_LIMIT) -> list[Hit]:
        """Return the best tools for the query; they are callable from the next request on, in every wire's form."""
        hits = self._index.search(query, limit)
        self.mark(hit.tool.key for hit in hits)
        return hits

    def mark(self, keys: Iterable[ToolKey]) -> None:
        """Mark tools as found (by a search before a resume)."""
        before = len(self._found)
        self._found.update(dict.fromkeys(keys))
        self.revision += len(self._found) > before

    def close(self) -> None:
        """Drop the index."""
        self._index.close()


def _tools_of(deferred: DeferrableSpec) -> list[DeferredTool]:
    spec, titles = deferred.entry.spec, deferred.titles
    if isinstance(spec, NamespaceTool):
        return [DeferredTool(tool, spec.name, spec.description, titles.get(tool.name, "")) for tool in spec.tools]
    assert isinstance(spec, ResponsesApiTool | FreeformTool)
    title = titles.get(spec.name, "")
    named = _MCP_NAME.fullmatch(spec.name)
    if named is None:
        return [DeferredTool(spec, title=title)]
    space, server, name = named.groups()
    return [DeferredTool(msgspec.structs.replace(spec, name=name), space, f"Tools of the MCP server {server}.", title)]


def as_loaded_specs(tools: Iterable[DeferredTool]) -> list[ResponsesApiTool | FreeformTool | NamespaceTool]:
    """Return full specs with `defer_loading`, in one group per namespace, in order of first appearance."""
    groups: dict[str | int, list[DeferredTool]] = {}
    for number, tool in enumerate(tools):
        groups.setdefault(number if tool.space is None else tool.space, []).append(tool)
    specs: list[ResponsesApiTool | FreeformTool | NamespaceTool] = []
    for group in groups.values():
        loaded = tuple(msgspec.structs.replace(tool.spec, defer_loading=True) for tool in group)
        space = group[0].space
        specs += (
            loaded
            if space is None
            else [NamespaceTool(name=space, description=group[0].space_description, tools=loaded)]
        )
    return specs


class _LoadedSpec(msgspec.Struct):
    name: str
    tools: list["_LoadedSpec"] | None = None


def loaded_keys(specs: Iterable[msgspec.Raw]) -> list[ToolKey]:
    """Return the tools that specs in a search's answer stand for."""
    loaded = [msgspec.json.decode(spec, type=_LoadedSpec) for spec in specs]
    return [
        (None, one.name) if one.tools is None else (one.name, tool.name)
        for one in loaded
        for tool in one.tools or [one]
    ]
