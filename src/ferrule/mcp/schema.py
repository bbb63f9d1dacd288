"""A pydantic model of a server's schema, for code that wants one. Calls are validated against the schema itself."""

import keyword
import re
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import ConfigDict, Field, create_model

from ferrule.protocol.json_text import JsonValue
from ferrule.tools.action import Action

MAX_DEPTH = 16
"""Levels of nested objects that become models; deeper ones stay plain JSON."""

_PLAIN: dict[str, Any] = {
    "string": str, "integer": int, "number": float, "boolean": bool, "null": None, "object": dict[str, Any],
    "array": list[Any],
}  # fmt: skip


class Schema(Action):
    """Base of the models that `from_mcp_schema` makes. Fields carry the schema's own names as aliases."""

    model_config = ConfigDict(extra="ignore", frozen=True, populate_by_name=True)

    @classmethod
    def from_mcp_schema(cls, name: str, schema: Mapping[str, JsonValue]) -> "type[Schema]":
        """Return a model of an object schema, without what pydantic cannot express (conditions, patterns of names)."""
        return _model(cls, name, schema, MAX_DEPTH)

    def to_mcp_arguments(self) -> dict[str, JsonValue]:
        """Return the given arguments under the schema's own names."""
        return self.model_dump(by_alias=True, exclude_unset=True, mode="json")


def _model(base: type[Schema], name: str, schema: Mapping[str, JsonValue], depth: int) -> type[Schema]:
    properties, required = schema.get("properties"), schema.get("required")
    needed = set(required) if isinstance(required, list) else set()
    fields: dict[str, Any] = {}
    for key, value in (properties if isinstance(properties, Mapping) else {}).items():
        node = value if isinstance(value, Mapping) else {}
        kind = _type(base, f"{name}_{key}", node, depth)
        told = {"alias": key, "description": node.get("description")}
        field = _field_name(key, fields)
        fields[field] = (
            (kind, Field(**told)) if key in needed else (_optional(kind), Field(node.get("default"), **told))
        )
    return create_model(re.sub(r"\W", "_", name), __base__=base, **fields)


def _type(base: type[Schema], name: str, node: Mapping[str, JsonValue], depth: int) -> Any:
    choices = node.get("enum")
    if isinstance(choices, list) and choices and all(isinstance(choice, str | int | bool | None) for choice in choices):
        return Literal[tuple(choices)]
    named = node.get("type")
    kinds = named if isinstance(named, list) else [named]
    if named is None or not all(isinstance(kind, str) and kind in _PLAIN for kind in kinds):
        return Any
    made = [_one(base, name, str(kind), node, depth) for kind in kinds]
    union = made[0]
    for kind in made[1:]:
        union = _optional(union) if kind is None else (_optional(kind) if union is None else union | kind)
    return union


def _optional(kind: Any) -> Any:
    return kind if kind is None else kind | None


def _one(base: type[Schema], name: str, kind: str, node: Mapping[str, JsonValue], depth: int) -> Any:
    if kind == "object" and depth > 0 and isinstance(node.get("properties"), Mapping):
        return _model(base, name, node, depth - 1)
    if kind == "array" and depth > 0 and isinstance(node.get("items"), Mapping):
        return list[_type(base, name, node["items"], depth - 1)]  # type: ignore[misc]  # made at run time
    return _PLAIN[kind]


def _field_name(key: str, taken: Mapping[str, object]) -> str:
    """Return a name that pydantic accepts: no keyword, no leading underscore, no attribute of the model."""
    name = re.sub(r"\W", "_", key, flags=re.ASCII).lstrip("_") or "field"
    if (
        name[0].isdigit()
        or keyword.iskeyword(name)
        or hasattr(Schema, name)
        or name in taken
        or name.startswith("model_")
    ):
        name = f"field_{name}"
    while name in taken:
        name += "_"
    return name
