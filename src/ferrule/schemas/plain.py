"""Schemas for providers that take a part of JSON Schema only: one type a schema, alternatives without a type beside
them, and nothing beside a reference.

Source: what Moonshot answers (`not a valid moonshot flavored json schema`): "when using $ref, type should be defined in
the referenced schema instead of the parent schema", "conflicting keywords found after $ref expansion", "when using
anyOf, type should be defined in anyOf items instead of the parent schema", "type is not defined".
"""

from collections.abc import Mapping

from ferrule.protocol.json_schema import JsonSchema, inferred_type
from ferrule.protocol.json_text import JsonValue
from ferrule.schemas.shape import ANNOTATIONS
from ferrule.schemas.walk import Node, resolve, type_of, with_below

_ANYTHING = ("string", "number", "boolean", "object", "array", "null")
_OF_TYPE = {
    "string": ("minLength", "maxLength", "pattern", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    "array": ("items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains"),
    "object": (
        "properties", "required", "additionalProperties", "patternProperties", "propertyNames", "minProperties",
        "maxProperties", "dependentRequired", "dependentSchemas",
    ),
}  # fmt: skip
"""Keywords that apply to values of one type."""


MAX_NODES = 10_000
"""Size limit of a plain form: what stands beside nested alternatives is repeated in each of them."""


class _TooLarge(Exception):
    """The plain form has more than `MAX_NODES` schemas."""


def plain_schema(schema: JsonSchema) -> JsonSchema:
    """Convert a sanitised schema to its plain form; return the same object if it is already plain or would be too
    large."""
    root = schema.mapping
    try:
        plain = _Plain(root).below(root)
    except _TooLarge:
        return schema
    return schema if plain == root else JsonSchema(plain)


class _Plain:
    """The conversion of one schema."""

    def __init__(self, root: Node) -> None:
        self._root = root
        self._left = MAX_NODES

    def below(self, node: Node) -> dict[str, JsonValue]:
        """Convert every schema below `node` to the plain form. Raises `_TooLarge`."""
        return with_below(node, self._node)

    def _node(self, node: Node) -> dict[str, JsonValue]:
        self._left -= 1
        if self._left < 0:
            raise _TooLarge
        if "$ref" in node:
            return _reference(node, self._root)
        for keyword in ("anyOf", "oneOf"):
            if isinstance(node.get(keyword), list):
                return self._alternatives(node, keyword)
        plain = self.below(node)
        named = plain.get("type", inferred_type(plain))
        types = named if isinstance(named, list) else [named] if named else _types_of(plain)
        return (
            {"type": types[0], **{key: value for key, value in plain.items() if key != "type"}}
            if len(types) == 1
            else _split(plain, types)
        )

    def _alternatives(self, node: Node, keyword: str) -> dict[str, JsonValue]:
        """Move the keywords beside alternatives into each of them, first of all a type."""
        outer = {key: value for key, value in node.items() if key in ANNOTATIONS}
        shared = {key: value for key, value in node.items() if key not in outer and key != keyword}
        branches: list[JsonValue] = []
        for branch in node[keyword]:
            one = self._node(_both(shared, branch)) if isinstance(branch, Mapping) else branch
            nested = one.get("anyOf") if isinstance(one, Mapping) and one.keys() == {"anyOf"} else None
            branches += [new for new in (nested if isinstance(nested, list) else [one]) if new not in branches]
        return {**outer, "anyOf": branches}


def _reference(node: Node, root: Node) -> dict[str, JsonValue]:
    """Keep only a description beside a reference, and none if the referenced schema has one."""
    try:
        target = resolve(node["$ref"], root)
    except KeyError:
        target = {}
    told = isinstance(target, Mapping) and "description" in target
    kept = {"$ref"} if told else {"$ref", "description"}
    return {key: value for key, value in node.items() if key in kept}


def _both(shared: Node, branch: Node) -> Node:
    """Merge one alternative with what all share; the alternative's own keywords win."""
    if "$ref" in branch:
        return branch
    both = {**shared, **branch}
    if isinstance(shared.get("properties"), Mapping) and isinstance(branch.get("properties"), Mapping):
        both["properties"] = {**shared["properties"], **branch["properties"]}
    if isinstance(shared.get("required"), list) and isinstance(branch.get("required"), list):
        both["required"] = list(dict.fromkeys([*shared["required"], *branch["required"]]))
    return both


def _types_of(node: Node) -> list[str]:
    members = node.get("enum")
    if isinstance(members, list) and members:
        return list(dict.fromkeys(type_of(member) for member in members))
    return list(_ANYTHING)


def _split(node: dict[str, JsonValue], types: list[str]) -> dict[str, JsonValue]:
    """Split into one alternative per type, each with the keywords of its type."""
    outer = {key: value for key, value in node.items() if key in ANNOTATIONS or key in ("$defs", "allOf", "not")}
    branches = [branch for kind in types if (branch := _of_type(node, kind)) is not None]
    return {**outer, "anyOf": branches}


def _of_type(node: Node, kind: str) -> dict[str, JsonValue] | None:
    keywords = _OF_TYPE.get("number" if kind == "integer" else kind, ())
    branch: dict[str, JsonValue] = {"type": kind, **{key: node[key] for key in keywords if key in node}}
    members = node.get("enum")
    if isinstance(members, list):
        mine = [member for member in members if type_of(member) == kind or (kind == "number" and _is_number(member))]
        if not mine:
            return None
        if kind != "null":
            branch["enum"] = mine
    if kind == "array":
        branch.setdefault("items", {"type": "string"})
    return branch


def _is_number(member: JsonValue) -> bool:
    return type_of(member) in ("integer", "number")
