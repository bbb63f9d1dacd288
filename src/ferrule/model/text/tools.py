"""What a reader of calls knows of the tools: their names, and the types of their parameters."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from ferrule.model.adapt import WireTool
from ferrule.model.text.loose import Unreadable, as_text, read_value


class Said(NamedTuple):
    """A call as the model wrote it. `arguments` are JSON text."""

    name: str
    arguments: str


class KnownTools:
    """The tools of a request. `declares` answers for names with wrappers, too."""

    def __init__(self, tools: Iterable[WireTool], declares: Callable[[str], bool]) -> None:
        self.declares = declares
        self._tools = tuple(tools)
        self._read: Mapping[str, Mapping[str, Any]] | None = None

    @property
    def names(self) -> list[str]:
        """The names of the tools on the wire."""
        return [tool.name for tool in self._tools if tool.name]

    def parameters(self, name: str) -> Mapping[str, Any]:
        """Return the schemas of a tool's parameters by name; empty for a tool that nobody knows."""
        if self._read is None:
            self._read = {tool.name: _properties(tool.json) for tool in self._tools if tool.name}
        return self._read.get(name) or self._read.get(name.rpartition(".")[2]) or {}

    def call(self, name: str, texts: Mapping[str, str]) -> Said:
        """Build a call from parameters that are plain text: the schema says what each means."""
        schemas = self.parameters(name)
        return Said(name, as_text({key: as_typed(text, schemas.get(key)) for key, text in texts.items()}))


def _properties(tool: bytes) -> Mapping[str, Any]:
    function = msgspec.json.decode(tool).get("function") or {}
    properties = (function.get("parameters") or {}).get("properties")
    return properties if isinstance(properties, dict) else {}


def as_typed(text: str, schema: object) -> object:
    """Return the value that a text stands for where the schema wants this type."""
    kinds = _kinds(schema)
    if kinds == {"string"}:
        return text
    try:
        value, end = read_value(text, 0) if text.strip() else ("", len(text))
    except Unreadable:
        return text
    if text[end:].strip():
        return text
    if kinds and "string" in kinds and _kind_of(value) not in kinds:
        return text
    return text if isinstance(value, str) and not kinds else value


def _kinds(schema: object) -> set[str]:
    """Return the JSON types that a schema names, also in its alternatives."""
    if not isinstance(schema, dict):
        return set()
    said = schema.get("type")
    kinds = {said} if isinstance(said, str) else set(said) if isinstance(said, list) else set()
    for word in ("anyOf", "oneOf", "allOf"):
        for part in schema.get(word) or ():
            kinds |= _kinds(part)
    if not kinds and all(isinstance(value, str) for value in schema.get("enum") or (0,)):
        kinds.add("string")
    return kinds | ({"integer"} if "number" in kinds else set())


def _kind_of(value: object) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case list():
            return "array"
    return "object"
