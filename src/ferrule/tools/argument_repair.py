"""Tolerant reading: what a model wrote in the wrong JSON type, where the schema leaves one meaning only."""

import re

from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.json_schema import JsonSchema
from ferrule.protocol.json_text import MAX_DEPTH, JsonValue, decode
from ferrule.protocol.schema_strict import drop_forced_nulls
from ferrule.protocol.schema_walk import (
    ANY_TYPE,
    Node,
    accepted_types,
    item_nodes,
    property_nodes,
    type_of,
)

_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_WORDS = {"true": True, "false": False, "null": None}


def repaired(value: JsonValue, schema: JsonSchema) -> JsonValue:
    """`value` with these put right, or `value` itself when there is nothing to do:

    - text that spells a number, a boolean or null where the schema takes that and no text;
    - text that holds a JSON object or array where the schema takes that and no text, at any depth;
    - 10.0 where the schema takes integers only;
    - null for an optional property that cannot be null: the property is left out.
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
    result = {key: _repaired(old, property_nodes(nodes, key, root), root, depth + 1) for key, old in value.items()}
    return result if any(result[key] is not old for key, old in value.items()) else value


def _from_text(text: str, accepted: frozenset[str]) -> JsonValue:
    """The JSON value that `text` spells if it is of an accepted type, else `text`."""
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
