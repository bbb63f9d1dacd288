"""Tolerant parsing: repair values of the wrong JSON type if the schema leaves only one meaning."""

import re
from collections.abc import Mapping

from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.json_schema import JsonSchema
from ferrule.protocol.json_text import MAX_DEPTH, JsonValue, decode
from ferrule.schemas.strict import drop_forced_nulls
from ferrule.schemas.walk import (
    ANY_TYPE,
    Node,
    accepted_types,
    branches,
    item_nodes,
    property_names,
    property_nodes,
    referred,
    type_of,
)

_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_NOTHING = frozenset({"", "none", "null", "nil", "undefined"})
_WORDS = {"true": True, "false": False, "null": None}


def repaired(value: JsonValue, schema: JsonSchema) -> JsonValue:
    """`value` with these put right, or `value` itself when there is nothing to do:

    - text that spells a number, a boolean or null where the schema takes that and no text;
    - text that holds a JSON object or array where the schema takes that and no text, at any depth;
    - 10.0 where the schema takes integers only;
    - null for an optional property that cannot be null: the property is left out;
    - empty text there where the schema takes no empty text, and `"None"` where it takes no text: they say null, too.
    """
    root = schema.mapping
    return drop_forced_nulls(_repaired(value, [root], root, 0), schema)


def _repaired(value: JsonValue, nodes: list[JsonValue], root: Node, depth: int) -> JsonValue:
    accepted = _accepted(nodes, root)
    if isinstance(value, str) and "string" not in accepted and accepted:
        value = _from_text(value, accepted)
    elif isinstance(value, float) and "number" not in accepted and type_of(value) == "integer":
        return int(value)
    if depth >= MAX_DEPTH or not nodes:
        return value
    if isinstance(value, dict):
        return _repaired_object(value, nodes, root, depth)
    if isinstance(value, list):
        items = [_repaired(item, item_nodes(nodes, i, root), root, depth + 1) for i, item in enumerate(value)]
        return items if any(new is not old for new, old in zip(items, value, strict=True)) else value
    return value


def _accepted(nodes: list[JsonValue], root: Node) -> frozenset[str]:
    if not nodes:
        return ANY_TYPE
    return frozenset().union(*(accepted_types(node, root) for node in nodes))


def _repaired_object(value: dict[str, JsonValue], nodes: list[JsonValue], root: Node, depth: int) -> JsonValue:
    names = property_names(nodes, root)
    result: dict[str, JsonValue] = {}
    for key, old in value.items():
        schemas = property_nodes(nodes, key, root)
        nothing = names.get(key) is False and isinstance(old, str) and _says_nothing(old, schemas, root)
        result[key] = None if nothing else _repaired(old, schemas, root, depth + 1)
    return result if any(result[key] is not old for key, old in value.items()) else value


def _says_nothing(text: str, schemas: list[JsonValue], root: Node) -> bool:
    """Return whether a text can only stand for an omitted property."""
    word = text.strip().lower()
    if "string" in _accepted(schemas, root):
        return not text and not any(_takes_empty(schema, root, 0) for schema in schemas)
    return bool(schemas) and word in _NOTHING


def _takes_empty(node: JsonValue, root: Node, depth: int) -> bool:
    """Return whether a schema accepts the empty text, as far as enum, pattern and length say."""
    if not isinstance(node, Mapping) or depth > MAX_DEPTH:
        return node is not False
    if "string" not in accepted_types(node, root):
        return False
    members, pattern, shortest = node.get("enum"), node.get("pattern"), node.get("minLength")
    if (isinstance(members, list) and "" not in members) or (isinstance(shortest, int) and shortest > 0):
        return False
    if isinstance(pattern, str) and not _matches_empty(pattern):
        return False
    if "$ref" in node and not _takes_empty(referred(node, root), root, depth + 1):
        return False
    if not all(_takes_empty(branch, root, depth + 1) for branch in branches(node, "allOf")):
        return False
    choices = [branches(node, keyword) for keyword in ("anyOf", "oneOf")]
    return all(any(_takes_empty(one, root, depth + 1) for one in choice) for choice in choices if choice)


def _matches_empty(pattern: str) -> bool:
    try:
        return re.search(pattern, "") is not None
    except re.error:
        return True


def _from_text(text: str, accepted: frozenset[str]) -> JsonValue:
    """Return the JSON value that `text` spells if it is of an accepted type, else `text`."""
    stripped = text.strip()
    word = stripped.lower()
    value: JsonValue = None
    if word in _WORDS:
        value = _WORDS[word]
    elif _NUMBER.fullmatch(stripped) or stripped.startswith(("{", "[", "```", '"')):
        try:
            value = decode(stripped)
        except RespondToModel:
            return text
    else:
        return text
    if isinstance(value, float) and value.is_integer() and "number" not in accepted:
        value = int(value)
    if isinstance(value, str) and value != text:
        return _from_text(value, accepted)
    return value if type_of(value) in accepted else text
