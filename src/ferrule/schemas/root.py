"""The root of a tool's parameters: providers require an object there and refuse references and alternatives."""

from collections.abc import Callable, Mapping, Sequence

from ferrule.protocol.json_text import JsonValue
from ferrule.schemas.type_words import type_names
from ferrule.schemas.walk import Node, branches, resolve

_REFUSED = ("$ref", "allOf", "anyOf", "oneOf", "not", "enum", "const")
"""Keywords that providers answer with 400 at the root."""

_MAX_HOPS = 64
"""Nesting of references and alternatives at the root; more is a loop or an attack."""

_MAX_PARTS = 500
"""Parts merged into one root. References to references can name each part many times over."""

_ANNOTATIONS = frozenset({"description", "title", "default", "examples", "$schema", "$id", "$comment"})


def flat_root(root: Node, note: Callable[[str], None]) -> dict[str, JsonValue]:
    """Return `root` without refused keywords: references and allOf merged, alternatives combined.

    `note` is called with everything the result no longer says.
    """
    flat = dict(root) if root.keys().isdisjoint(_REFUSED) else _Flattener(root, note).flat(root, ())
    named = flat.get("type", "object")
    if any("object" in type_names(name) for name in (named if isinstance(named, list) else [named])):
        return flat
    if _properties(flat):
        note(f"arguments are an object, not {named!r}: the properties are kept")
        return flat
    note(f"arguments are an object, not {named!r}: any object is taken")
    return {"properties": {}}


class _Flattener:
    """The flattening of one root."""

    def __init__(self, root: Node, note: Callable[[str], None]) -> None:
        self._root = root
        self._note = note
        self._left = _MAX_PARTS

    def flat(self, node: JsonValue, above: tuple[int, ...]) -> dict[str, JsonValue]:
        """Flatten `node`, a part of the root; `above` are the parts that contain it."""
        if not isinstance(node, Mapping):
            if node is False:
                self._note("a part of the root takes nothing: it is left out")
            return {}
        self._left -= 1
        if id(node) in above or len(above) > _MAX_HOPS or self._left < 0:
            self._note("the root refers to itself or to too much: that part is left out")
            return {}
        above = (*above, id(node))
        flat = {key: value for key, value in node.items() if key not in _REFUSED}
        if "$ref" in node:
            flat = _merged(self._referred(node["$ref"], above), flat, self._note)
        for branch in branches(node, "allOf"):
            flat = _merged(flat, self.flat(branch, above), self._note)
        for keyword in ("anyOf", "oneOf"):
            if keyword in node:
                flat = _merged(flat, self._chosen(keyword, branches(node, keyword), above), self._note)
        for keyword in ("not", "enum", "const"):
            if keyword in node:
                self._note(f"{keyword} at the root is left out; it is checked when called")
        return flat

    def _referred(self, reference: JsonValue, above: tuple[int, ...]) -> dict[str, JsonValue]:
        try:
            return self.flat(resolve(reference, self._root), above)
        except KeyError:
            self._note(f"$ref {reference!r} leads nowhere: it is left out")
            return {}

    def _chosen(self, keyword: str, branches: list[JsonValue], above: tuple[int, ...]) -> dict[str, JsonValue]:
        taken = [branch for branch in branches if branch != {"type": "null"}]
        if len(taken) > 1:
            self._note(f"the alternatives of {keyword} are offered together; the choice is checked when called")
        elif not taken:
            self._note(f"{keyword} has no alternative for an object: it is left out")
            return {}
        return _united([self.flat(branch, above) for branch in taken])


def _merged(
    one: dict[str, JsonValue], other: dict[str, JsonValue], note: Callable[[str], None]
) -> dict[str, JsonValue]:
    """Return the schema that requires both."""
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
    """Return the object that has the properties of all `branches` and requires what all of them require."""
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
    """Merge the properties of both; one that differs is combined under `keyword`."""
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
