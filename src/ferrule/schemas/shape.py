"""Repair one schema's own keywords: its type, its enum, its array and object parts. The schemas below are clean."""

from collections.abc import Callable, Mapping
from enum import Enum

from ferrule.protocol.json_schema import inferred_type
from ferrule.protocol.json_text import JsonValue
from ferrule.schemas.type_words import TYPES, type_names
from ferrule.schemas.walk import type_of

Shape = dict[str, JsonValue]
Tell = Callable[[str], None]


class Place(Enum):
    """The role of a schema, which decides how much may be inferred when it leaves its type out."""

    PROPERTY = 1
    """A value of its own, for which providers require a type."""
    VALUE = 2
    """A value of its own."""
    CONSTRAINT = 3
    """An additional condition on a value that another schema describes."""


_ANYTHING = ["string", "number", "boolean", "object", "array", "null"]

ANNOTATIONS = frozenset({"description", "title", "default", "examples", "deprecated", "readOnly", "writeOnly"})
"""Keywords that describe a value without constraining it."""

_TEXT, _COUNT, _NUMBER, _YES_OR_NO = (str,), (int,), (int, float), (bool,)

WANTED: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(("description", "title", "format", "pattern", "contentMediaType", "contentEncoding"), _TEXT),
    **dict.fromkeys(("$comment", "$ref"), _TEXT),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minContains", "maxContains"), _COUNT),
    **dict.fromkeys(("minProperties", "maxProperties"), _COUNT),
    **dict.fromkeys(("minimum", "maximum", "multipleOf"), _NUMBER),
    **dict.fromkeys(("exclusiveMinimum", "exclusiveMaximum"), (int, float, bool)),
    **dict.fromkeys(("uniqueItems", "deprecated", "readOnly", "writeOnly"), _YES_OR_NO),
    "examples": (list,),
    "dependentRequired": (dict,),
}
"""The Python types of plain keywords' values; a provider refuses the whole request over a wrong one."""

_COMBINERS = frozenset({"anyOf", "oneOf", "allOf", "$ref", "not", "if"})


def shaped(node: Shape, place: Place, tell: Tell) -> Shape:
    """Repair `node` in place where a provider would refuse it; `tell` is called with what it no longer says."""
    for keyword in [key for key in node if key in WANTED and not is_wanted(key, node[key])]:
        tell(f"{keyword} cannot be {node.pop(keyword)!r:.40}: it is left out")
    if "type" in node:
        _name_types(node, tell)
    if "enum" in node or "const" in node:
        _list_members(node, tell)
    if "required" in node:
        _list_required(node, tell)
    if "type" not in node and node.keys().isdisjoint(_COMBINERS):
        _infer_type(node, place, tell)
    if "exclusiveMinimum" in node or "exclusiveMaximum" in node:
        _draft4_limits(node)
    if "dependencies" in node:
        _split_dependencies(node, tell)
    if "nullable" in node:
        node = _nullable(node, tell)
    kind = node.get("type")
    if kind == "array" or (type(kind) is list and "array" in kind) or isinstance(node.get("items"), list | bool):
        _fill_array(node)
    return node


def is_wanted(keyword: str, value: JsonValue) -> bool:
    """Return whether a plain keyword may have this value."""
    types = WANTED[keyword]
    if type(value) not in types:
        return False
    if types is _COUNT or keyword == "multipleOf":
        return bool(value > 0 or (value == 0 and types is _COUNT))
    if keyword == "dependentRequired":
        return all(isinstance(names, list) and _unique_names(names) == names for names in value.values())
    return True


def _unique_names(names: list[JsonValue]) -> list[str]:
    return list(dict.fromkeys(name for name in names if isinstance(name, str)))


def _name_types(node: Shape, tell: Tell) -> None:
    named = node["type"]
    if type(named) is str and named in TYPES:
        return
    given = named if isinstance(named, list) else [named]
    names = list(dict.fromkeys(name for item in given for name in type_names(item)))
    if names != given:
        tell(f"type {named!r} is none of JSON Schema: {' or '.join(names) or 'it is left out'}")
    if names:
        node["type"] = names[0] if len(names) == 1 else names
    else:
        del node["type"]


def _list_members(node: Shape, tell: Tell) -> None:
    """Turn `const` into an enum of one, drop empty enums and duplicates, and give untyped enums their types."""
    if "const" in node and "enum" not in node:
        node["enum"] = [node.pop("const")]
    members = node.get("enum")
    if not isinstance(members, list) or not members:
        if members is not None:
            tell("enum lists nothing: it is left out")
        node.pop("enum")
        return
    members = node["enum"] = _distinct(members)
    if "type" in node and _move_members(node, members, tell):
        return
    if "type" in node or not node.keys().isdisjoint(_COMBINERS):
        return
    groups: dict[str, list[JsonValue]] = {}
    for member in members:
        kind = type_of(member)
        groups.setdefault("number" if kind == "integer" and _has_fractions(members) else kind, []).append(member)
    kinds = [kind for kind in groups if kind != "null"]
    if len(kinds) <= 1:
        names = [*kinds, *(["null"] if "null" in groups else [])]
        node["type"] = names[0] if len(names) == 1 else names
        return
    del node["enum"]
    node["anyOf"] = [
        {"type": kind, "enum": listed} if kind != "null" else {"type": kind} for kind, listed in groups.items()
    ]


def _distinct(members: list[JsonValue]) -> list[JsonValue]:
    """Return the members without duplicates; True and 1 are two."""
    seen: list[tuple[str, JsonValue]] = []
    for member in members:
        if (known := (type_of(member), member)) not in seen:
            seen.append(known)
    return [member for _, member in seen]


def _move_members(node: Shape, members: list[JsonValue], tell: Tell) -> bool:
    """Move members that no value of the type can be: for an array they are meant for its items, for null they are
    void."""
    named = node["type"]
    if named == "null":
        if members != [None]:
            del node["enum"]
        return True
    kinds = set(named if isinstance(named, list) else [named]) - {"null"}
    if kinds != {"array"} or any(type_of(member) in ("array", "object") for member in members):
        return False
    tell("enum of an array lists what its items may be")
    del node["enum"]
    items = node.get("items", {})
    if isinstance(items, Mapping) and items.keys().isdisjoint(("enum", "$ref", "anyOf", "oneOf", "allOf")):
        node["items"] = shaped({**items, "enum": members}, Place.VALUE, tell)
    return True


def _has_fractions(members: list[JsonValue]) -> bool:
    return any(type_of(member) == "number" for member in members)


def _list_required(node: Shape, tell: Tell) -> None:
    required = node["required"]
    if isinstance(required, list):
        names = _unique_names(required)
        if names == required:
            return
        node["required"] = names
    else:
        del node["required"]
    if required is not None:
        tell("required is not a list of names: it is left out as far as it is not")


def _infer_type(node: Shape, place: Place, tell: Tell) -> None:
    if place is Place.CONSTRAINT:
        return
    if (kind := inferred_type(node)) is not None:
        tell(f"type is missing: taken to be {kind}")
        node["type"] = kind
    elif place is Place.PROPERTY:
        node["type"] = list(_ANYTHING)


def _draft4_limits(node: Shape) -> None:
    """Convert `exclusiveMinimum: true` beside `minimum`, an exclusive limit in drafts up to 4."""
    for exclusive, limit in (("exclusiveMinimum", "minimum"), ("exclusiveMaximum", "maximum")):
        if isinstance(node.get(exclusive), bool) and node.pop(exclusive) and limit in node:
            node[exclusive] = node.pop(limit)


def _split_dependencies(node: Shape, tell: Tell) -> None:
    """Split `dependencies`, which is two keywords since draft 2019-09: lists of names, and schemas."""
    for name, below in node.pop("dependencies").items():
        keyword = "dependentRequired" if isinstance(below, list) else "dependentSchemas"
        if isinstance(below, list) and below != _unique_names(below):
            tell(f"dependencies of {name!r} are not a list of names: they are left out")
        else:
            node[keyword] = {name: below, **node.get(keyword, {})}


def _nullable(node: Shape, tell: Tell) -> Shape:
    """Express OpenAPI's `nullable: true` with types."""
    if node.pop("nullable") is not True:
        return node
    tell("nullable is no JSON Schema: null is taken, too")
    named = node.get("type")
    if named is None:
        outer = {key: node.pop(key) for key in list(node) if key in ANNOTATIONS}
        return {"anyOf": [node, {"type": "null"}], **outer} if node else outer
    names = named if isinstance(named, list) else [named]
    node["type"] = names if "null" in names else [*names, "null"]
    if "enum" in node and None not in node["enum"]:
        node["enum"] = [*node["enum"], None]
    return node


def _fill_array(node: Shape) -> None:
    """Add the `items` that providers require; tuples use `prefixItems` since draft 2020-12."""
    items, rest = node.get("items"), node.pop("additionalItems", True)
    if isinstance(items, list):
        node["prefixItems"], items = items, rest
        if not node["prefixItems"]:
            del node["prefixItems"]
    if items is False:
        longest = len(node.get("prefixItems", ()))
        node["maxItems"] = min(longest, node["maxItems"]) if isinstance(node.get("maxItems"), int) else longest
    node["items"] = items if isinstance(items, Mapping) else {}
