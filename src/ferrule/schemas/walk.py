"""Reading a JSON Schema alongside a value: which schemas apply at a place, and which types they accept there."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from urllib.parse import unquote

from ferrule.protocol.json_text import JsonValue

Node = Mapping[str, JsonValue]

ANY_TYPE = frozenset({"null", "boolean", "integer", "number", "string", "array", "object"})
"""Every type of JSON Schema; here `number` means one with a fraction, while a schema's "number" means both."""

_MAX_HOPS = 64
"""Nesting of references and alternatives; a type hidden deeper is not found."""

_IN_PLACE = ("allOf", "anyOf", "oneOf")


def type_of(value: JsonValue) -> str:
    """Return the JSON type of a decoded value."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        return "integer" if value.is_integer() else "number"
    if isinstance(value, str):
        return "string"
    return "object" if isinstance(value, Mapping) else "array"


def resolve(pointer: JsonValue, root: Node) -> JsonValue:
    """Resolve `#/a/b` in `root`. Raises KeyError if it names nothing there, or another document."""
    if not isinstance(pointer, str) or not pointer.startswith("#"):
        raise KeyError(pointer)
    node: JsonValue = root
    for part in unquote(pointer[1:]).split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, list):
            if not key.isdecimal() or int(key) >= len(node):
                raise KeyError(pointer)
            node = node[int(key)]
        elif isinstance(node, Mapping) and key in node:
            node = node[key]
        else:
            raise KeyError(pointer)
    if pointer[1:2] not in ("", "/") or not isinstance(node, Mapping | bool):
        raise KeyError(pointer)
    return node


def referred(node: Node, root: Node) -> JsonValue:
    """Return the schema that `node` refers to, or the any-value schema if it leads nowhere."""
    try:
        return resolve(node["$ref"], root)
    except KeyError:
        return True


def applicable(nodes: Iterable[JsonValue], root: Node) -> Iterator[Node]:
    """Yield `nodes` and every schema they apply to the same value: by reference, by allOf, anyOf and oneOf."""
    pending, seen = list(nodes), set[int]()
    while pending:
        node = pending.pop()
        if not isinstance(node, Mapping) or id(node) in seen:
            continue
        seen.add(id(node))
        yield node
        if "$ref" in node:
            pending.append(referred(node, root))
        for keyword in _IN_PLACE:
            pending.extend(branches(node, keyword))


def accepted_types(node: JsonValue, root: Node) -> frozenset[str]:
    """Return the types that `node` accepts; `ANY_TYPE` if it does not say."""
    return _accepted(node, root, {}, 0)


def _accepted(node: JsonValue, root: Node, known: dict[int, frozenset[str]], depth: int) -> frozenset[str]:
    """Find the accepted types. `known` caches results: references can name one schema repeatedly, and itself."""
    if not isinstance(node, Mapping):
        return frozenset() if node is False else ANY_TYPE
    if id(node) in known or depth > _MAX_HOPS:
        return known.get(id(node), ANY_TYPE)
    known[id(node)] = ANY_TYPE
    types = _own_types(node)
    if "$ref" in node:
        types &= _accepted(referred(node, root), root, known, depth + 1)
    for branch in branches(node, "allOf"):
        types &= _accepted(branch, root, known, depth + 1)
    for keyword in ("anyOf", "oneOf"):
        if choice := branches(node, keyword):
            types &= frozenset().union(*(_accepted(branch, root, known, depth + 1) for branch in choice))
    known[id(node)] = types
    return types


def branches(node: Node, keyword: str) -> list[JsonValue]:
    """Return the schemas listed under a keyword."""
    found = node.get(keyword)
    return found if isinstance(found, list) else []


def _own_types(node: Node) -> frozenset[str]:
    types = ANY_TYPE
    if isinstance(named := node.get("type"), str):
        types = frozenset({named})
    elif isinstance(named, list):
        types = frozenset(name for name in named if isinstance(name, str))
    if "number" in types:
        types |= {"integer"}
    if isinstance(members := node.get("enum"), list):
        types &= {type_of(member) for member in members}
    if "const" in node:
        types &= {type_of(node["const"])}
    return types


def property_nodes(nodes: Iterable[JsonValue], key: str, root: Node) -> list[JsonValue]:
    """Return the schemas that `nodes` apply to an object's property `key`, declared or additional."""
    found = []
    for node in applicable(nodes, root):
        properties = node.get("properties")
        if isinstance(properties, Mapping) and key in properties:
            found.append(properties[key])
        elif isinstance(extra := node.get("additionalProperties"), Mapping):
            found.append(extra)
    return found


def item_nodes(nodes: Iterable[JsonValue], index: int, root: Node) -> list[JsonValue]:
    """Return the schemas that `nodes` apply to an array's element `index`."""
    found = []
    for node in applicable(nodes, root):
        first = node.get("prefixItems")
        if isinstance(first, list) and index < len(first):
            found.append(first[index])
        elif isinstance(rest := node.get("items"), Mapping):
            found.append(rest)
    return found


def property_names(nodes: Iterable[JsonValue], root: Node) -> dict[str, bool]:
    """Return the declared properties of an object under `nodes`, each with whether some node requires it."""
    names: dict[str, bool] = {}
    for node in applicable(nodes, root):
        properties, required = node.get("properties"), node.get("required")
        needed = required if isinstance(required, list) else []
        for name in properties if isinstance(properties, Mapping) else ():
            names[name] = names.get(name, False) or name in needed
    return names


_MAPS = ("properties", "$defs", "patternProperties", "dependentSchemas", "dependencies")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_SINGLE = (
    "items",
    "additionalProperties",
    "not",
    "if",
    "then",
    "else",
    "contains",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
)


def with_below(node: Node, change: Callable[[Node], JsonValue]) -> dict[str, JsonValue]:
    """Return `node` with every schema directly below it changed. The keys of a map of schemas are names, never
    keywords."""
    changed = dict(node)
    for keyword in _MAPS:
        if isinstance(named := node.get(keyword), Mapping):
            changed[keyword] = {name: change(s) if isinstance(s, Mapping) else s for name, s in named.items()}
    for keyword in _LISTS:
        if isinstance(listed := node.get(keyword), list):
            changed[keyword] = [change(s) if isinstance(s, Mapping) else s for s in listed]
    for keyword in _SINGLE:
        if isinstance(single := node.get(keyword), Mapping):
            changed[keyword] = change(single)
    return changed


def schemas_below(node: Node) -> list[Node]:
    """Return every schema directly below `node`, except booleans."""
    found: list[Node] = []
    with_below(node, found.append)
    return found
