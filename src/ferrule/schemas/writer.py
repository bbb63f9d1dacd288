"""Generate JSON Schemas of Python types, as short as a model needs them.

No titles; definitions inlined unless they recur; objects closed; an optional field is a plain one that may be left
out.
"""

import sys
from collections.abc import Iterable, Mapping
from typing import Any, is_typeddict

import msgspec

from ferrule.protocol.json_schema import JsonSchema
from ferrule.protocol.json_text import JsonValue
from ferrule.schemas.sanitize import sanitize_json_schema
from ferrule.schemas.walk import with_below

_ORDER = ("type", "description", "enum", "properties", "required", "items", "additionalProperties")
"""The order in which people and providers write a schema; other keywords follow."""


def schema_of_model(model: type[object]) -> JsonSchema:
    """Return the schema of a pydantic model, a msgspec Struct, a dataclass or a TypedDict.

    The docstring of the model itself is left out: it is the tool's description.
    """
    return shortest(msgspec.json.schema(model) if only_for_msgspec(model) else _pydantic_schema(model))


def shortest(raw: dict[str, JsonValue]) -> JsonSchema:
    """Return the shortest schema that says the same as `raw`, without the description of the whole."""
    schema = _Minimal(raw).schema()
    schema.pop("description", None)
    return sanitize_json_schema(JsonSchema(schema))


def only_for_msgspec(model: type[object]) -> bool:
    """Return whether pydantic cannot read a type that msgspec can: a Struct, and before Python 3.12 a TypedDict of
    `typing`."""
    return issubclass(model, msgspec.Struct) or (sys.version_info < (3, 12) and is_typeddict(model))


def _pydantic_schema(model: type[object]) -> dict[str, JsonValue]:
    from pydantic import TypeAdapter
    from pydantic.json_schema import GenerateJsonSchema

    class Quiet(GenerateJsonSchema):
        def __init__(self, *arguments: Any, **keywords: Any) -> None:
            super().__init__(*arguments, **keywords)
            self.ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}

    return TypeAdapter(model).json_schema(schema_generator=Quiet)


class _Minimal:
    """The shortening of one schema."""

    def __init__(self, raw: dict[str, JsonValue]) -> None:
        self._raw = raw
        self._definitions: Mapping[str, dict[str, JsonValue]] = raw.get("$defs", {})
        self._recursive = {name for name in self._definitions if name in self._reached(name)}
        self._root_name = _definition(raw)
        self._kept: dict[str, JsonValue] = {}

    def schema(self) -> dict[str, JsonValue]:
        """Return the short form; recursive definitions stay in `$defs`."""
        root = {key: value for key, value in self._raw.items() if key != "$defs"}
        if self._root_name is not None:
            root = {**self._definitions[self._root_name], **root}
            del root["$ref"]
        schema = self._node(root)
        return {**schema, "$defs": self._kept} if self._kept else schema

    def _reached(self, name: str) -> set[str]:
        reached, pending = set[str](), [name]
        while pending:
            fresh = set(_definitions_in(self._definitions[pending.pop()])) - reached
            reached |= fresh
            pending += fresh
        return reached

    def _node(self, node: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        if (name := _definition(node)) is not None:
            siblings = {key: value for key, value in node.items() if key != "$ref"}
            if name not in self._recursive:
                return self._node({**self._definitions[name], **siblings})
            if name == self._root_name:
                return _in_order(self._without_noise({"$ref": "#", **siblings}))
            if name not in self._kept:
                self._kept[name] = {}
                self._kept[name] = self._node(self._definitions[name])
        return _in_order(self._without_noise(with_below(node, self._node)))

    def _without_noise(self, node: dict[str, JsonValue]) -> dict[str, JsonValue]:
        node.pop("title", None)
        if "const" in node:
            node["enum"] = [node.pop("const")]
        if "properties" in node:
            node.setdefault("additionalProperties", False)
        if "default" in node and node["default"] is None:
            del node["default"]
            node = _without_null(node)
        return node


def _definition(node: Mapping[str, JsonValue]) -> str | None:
    """Return the name of the definition that `node` refers to."""
    reference = node.get("$ref")
    return reference.removeprefix("#/$defs/") if isinstance(reference, str) else None


def _definitions_in(node: JsonValue) -> Iterable[str]:
    if isinstance(node, dict):
        if (name := _definition(node)) is not None:
            yield name
        for value in node.values():
            yield from _definitions_in(value)
    elif isinstance(node, list):
        for value in node:
            yield from _definitions_in(value)


def _without_null(node: dict[str, JsonValue]) -> dict[str, JsonValue]:
    """Drop the alternative null of `node`: leaving the field out means the same."""
    branches = node.get("anyOf")
    if not isinstance(branches, list):
        return node
    rest = [branch for branch in branches if branch != {"type": "null"}]
    if len(rest) == 1:
        return {**rest[0], **{key: value for key, value in node.items() if key != "anyOf"}}
    return {**node, "anyOf": rest}


def _in_order(node: dict[str, JsonValue]) -> dict[str, JsonValue]:
    return {key: node[key] for key in _ORDER if key in node} | node
