"""Strict mode: the provider constrains the model to the schema, but supports only a subset of JSON Schema.

Every object is closed and requires all its properties; an optional one may be null instead (Structured Outputs of
OpenAI).
"""

import json
from collections.abc import Mapping

from ferrule.protocol.errors import FerruleError
from ferrule.protocol.json_schema import JsonSchema
from ferrule.protocol.json_text import MAX_DEPTH, JsonValue
from ferrule.schemas.sanitize import sanitize
from ferrule.schemas.walk import (
    Node,
    accepted_types,
    item_nodes,
    property_names,
    property_nodes,
    with_below,
)


class StrictError(FerruleError):
    """A schema that strict mode cannot express; the message says where and why. The tool stays non-strict."""


_REFUSED = frozenset(
    {
        "allOf",
        "not",
        "if",
        "then",
        "else",
        "patternProperties",
        "propertyNames",
        "dependentRequired",
        "dependentSchemas",
        "dependencies",
        "unevaluatedItems",
        "unevaluatedProperties",
        "contains",
        "prefixItems",
    }
)
"""Keywords that strict mode does not support and that cannot be dropped without changing the meaning."""

_LEFT_OUT = frozenset(
    {"default", "examples", "minLength", "maxLength", "uniqueItems", "minProperties", "maxProperties", "$comment"}
)
"""Keywords that providers answer with 400; limits among them still hold when the arguments are validated."""

_FORMATS = frozenset({"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"})


def to_strict(schema: JsonSchema) -> JsonSchema:
    """Convert to strict mode; `schema` itself is not changed, and a strict schema stays as it is.

    Raises `StrictError` if a part cannot be expressed, so that the whole tool stays non-strict.
    """
    clean = sanitize(schema)
    if clean.notes:
        raise StrictError(str(clean.notes[0]))
    root = clean.schema.mapping
    return JsonSchema(_strict(root, root, "$"))


def _strict(node: Node, root: Node, where: str) -> dict[str, JsonValue]:
    if refused := _REFUSED & node.keys():
        raise StrictError(f"{where}: strict mode has no {min(refused)}")
    if node.keys().isdisjoint(("type", "enum", "anyOf", "oneOf", "$ref")):
        raise StrictError(f"{where}: strict mode has no schema for any value at all")
    strict = with_below(_plain(node), lambda below: _strict(below, root, _path(node, below, where)))
    if "oneOf" in strict:
        strict["anyOf"] = [*strict.get("anyOf", []), *strict.pop("oneOf")]
    if "object" in _named_types(node):
        _close(strict, node, root, where)
    if "$ref" in strict and len(strict) > 1 and "$defs" not in strict:
        strict["anyOf"] = [{"$ref": strict.pop("$ref")}]
    return strict


def _path(node: Node, below: Node, where: str) -> str:
    """Return the path of `below` for an error: properties by name, everything else as its owner."""
    properties = node.get("properties") or {}
    return next((f"{where}.{name}" for name, schema in properties.items() if schema is below), where)


def _named_types(node: Node) -> list[str]:
    named = node.get("type", [])
    return named if isinstance(named, list) else [named]


def _plain(node: Node) -> dict[str, JsonValue]:
    """Return `node` without dropped keywords; a default moves into the description."""
    plain = {key: value for key, value in node.items() if key not in _LEFT_OUT}
    if plain.get("format") not in _FORMATS:
        plain.pop("format", None)
    if node.get("default") is not None:
        told = f"Default: {json.dumps(node['default'], ensure_ascii=False)}"
        plain["description"] = f"{node['description']} {told}" if node.get("description") else told
    return plain


def _close(strict: dict[str, JsonValue], node: Node, root: Node, where: str) -> None:
    extra, properties = node.get("additionalProperties"), node.get("properties") or {}
    if (extra is None and not properties) or extra is True or isinstance(extra, Mapping):
        raise StrictError(f"{where}: strict mode has no object with free names")
    needed = node.get("required", [])
    if undeclared := [name for name in needed if name not in properties]:
        raise StrictError(f"{where}: {undeclared[0]} is required but not declared")
    for name, schema in strict.get("properties", {}).items():
        if name not in needed and "null" not in accepted_types(properties[name], root):
            strict["properties"][name] = _nullable(schema)
    strict["required"] = list(properties)
    strict["additionalProperties"] = False


def _nullable(schema: dict[str, JsonValue]) -> dict[str, JsonValue]:
    if "anyOf" in schema:
        return {**schema, "anyOf": [*schema["anyOf"], {"type": "null"}]}
    if "$ref" in schema:
        return {"anyOf": [schema, {"type": "null"}]}
    nullable = dict(schema)
    if "type" in schema:
        nullable["type"] = [*_named_types(schema), "null"]
    if "enum" in schema:
        nullable["enum"] = [*schema["enum"], None]
    return nullable


def drop_forced_nulls(value: JsonValue, schema: JsonSchema) -> JsonValue:
    """Drop the nulls that stand for omitted optional properties; return `value` itself if there are none.

    `schema` is the one from before `to_strict`: where it allows null, null stays.
    """
    return _dropped(value, [schema.mapping], schema.mapping, 0)


def _dropped(value: JsonValue, nodes: list[JsonValue], root: Node, depth: int) -> JsonValue:
    if not nodes or depth > MAX_DEPTH:
        return value
    if isinstance(value, list):
        items = [_dropped(item, item_nodes(nodes, i, root), root, depth + 1) for i, item in enumerate(value)]
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    if not isinstance(value, dict):
        return value
    names = property_names(nodes, root)
    kept: dict[str, JsonValue] = {}
    for key, below in value.items():
        schemas = property_nodes(nodes, key, root)
        if below is None and names.get(key) is False and not any("null" in accepted_types(s, root) for s in schemas):
            continue
        kept[key] = _dropped(below, schemas, root, depth + 1)
    changed = len(kept) < len(value) or any(kept[key] is not value[key] for key in kept)
    return kept if changed else value
