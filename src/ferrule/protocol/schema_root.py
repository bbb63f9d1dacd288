"""The root of a tool's parameters: providers take an object there and refuse references and alternatives."""

from collections.abc import Callable, Mapping, Sequence

from ferrule.protocol.json_text import JsonValue
from ferrule.protocol.schema_walk import Node, resolve

_REFUSED = ("$ref", "allOf", "anyOf", "oneOf", "not", "enum", "const")
"""Keywords that providers answer with 400 when they stand at the root."""

_MAX_HOPS = 64
"""References and alternatives inside each other at the root; more is a loop or an attack."""

_ANNOTATIONS = frozenset({"description", "title", "default", "examples", "$schema", "$id", "$comment"})


def flat_root(root: Node, note: Callable[[str], None]) -> dict[str, JsonValue]:
    """`root` without what is refused there: references and allOf merged, alternatives offered together.

    `note` hears what the result does not say any more.
    """
    flat = dict(root) if root.keys().isdisjoint(_REFUSED) else _flat(root, root, note, ())
    named = flat.get("type", "object")
    if named != "object" and not (isinstance(named, list) and "object" in named):
        note(f"arguments are an object, not {named!r}: any object is taken")
        return {"properties": {}}
    return flat


def _flat(node: JsonValue, root: Node, note: Callable[[str], None], above: tuple[int, ...]) -> dict[str, JsonValue]:
    if not isinstance(node, Mapping):
        if node is False:
            note("a part of the root takes nothing: it is left out")
        return {}
    if id(node) in above or len(above) > _MAX_HOPS:
        note("the root refers to itself: that part is left out")
        return {}
    above = (*above, id(node))
    flat = {key: value for key, value in node.items() if key not in _REFUSED}
    if "$ref" in node:
        try:
            flat = _merged(_flat(resolve(node["$ref"], root), root, note, above), flat, note)
        except KeyError:
            note(f"$ref {node['$ref']!r} leads nowhere: it is left out")
    for branch in _schemas(node, "allOf"):
        flat = _merged(flat, _flat(branch, root, note, above), note)
    for keyword in ("anyOf", "oneOf"):
        taken = [branch for branch in _schemas(node, keyword) if branch != {"type": "null"}]
        branches = [_flat(branch, root, note, above) for branch in taken]
        if len(branches) > 1:
            note(f"the alternatives of {keyword} are offered together; the choice is checked when called")
        elif not branches and keyword in node:
            note(f"{keyword} has no alternative for an object: it is left out")
        if branches:
            flat = _merged(flat, _united(branches), note)
    for keyword in ("not", "enum", "const"):
        if keyword in node:
            note(f"{keyword} at the root is left out; it is checked when called")
    return flat


def _schemas(node: Node, keyword: str) -> list[JsonValue]:
    found = node.get(keyword)
    return found if isinstance(found, list) else []


def _merged(
    one: dict[str, JsonValue], other: dict[str, JsonValue], note: Callable[[str], None]
) -> dict[str, JsonValue]:
    """The schema that asks for both."""
    result = {**one, **other}
    properties = _joined(_properties(one), _properties(other), "allOf")
    if properties:
        result["properties"] = properties
    if required := [*_required(one), *(name for name in _required(other) if name not in _required(one))]:
        result["required"] = required
    known = _ANNOTATIONS | {"properties", "required", "$defs", "definitions"}
    if clash := [key for key in one.keys() & other.keys() - known if one[key] != other[key]]:
        note(f"parts of the root disagree on {', '.join(sorted(clash))}: the last one counts")
    closed = [part for part in (one, other) if part.get("additionalProperties", True) is not True]
    if closed and _properties(one).keys() != _properties(other).keys() and all(map(_properties, (one, other))):
        note("parts of the root that exclude each other's properties are joined")
    return result


def _united(branches: Sequence[dict[str, JsonValue]]) -> dict[str, JsonValue]:
    """The object that has the properties of all `branches` and needs what all of them need."""
    if len(branches) == 1:
        return branches[0]
    properties: dict[str, JsonValue] = {}
    for branch in branches:
        properties = _joined(properties, _properties(branch), "anyOf")
    result: dict[str, JsonValue] = {"properties": properties} if properties else {}
    first, *rest = branches
    if required := [name for name in _required(first) if all(name in _required(branch) for branch in rest)]:
        result["required"] = required
    if all(branch.get("additionalProperties") is False for branch in branches):
        result["additionalProperties"] = False
    return result


def _joined(one: Node, other: Node, keyword: str) -> dict[str, JsonValue]:
    """The properties of both; one that both have differently is put under `keyword`."""
    joined = dict(one)
    for name, schema in other.items():
        joined[name] = schema if joined.get(name, schema) == schema else {keyword: [joined[name], schema]}
    return joined


def _properties(node: Node) -> Node:
    found = node.get("properties")
    return found if isinstance(found, Mapping) else {}


def _required(node: Node) -> list[str]:
    found = node.get("required")
    return [name for name in found if isinstance(name, str)] if isinstance(found, list) else []
