"""Reading a JSON Schema beside a value: which schemas apply at a place, and which types they accept there."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from urllib.parse import unquote

from ferrule.protocol.json_text import JsonValue

Node = Mapping[str, JsonValue]

ANY_TYPE = frozenset({"null", "boolean", "integer", "number", "string", "array", "object"})
"""Every type of JSON Schema; `number` here means one with a fraction, a schema's "number" is both."""

_MAX_HOPS = 64
"""References and alternatives inside each other; whoever hides a type deeper does not get it read."""

_IN_PLACE = ("allOf", "anyOf", "oneOf")


def type_of(value: JsonValue) -> str:
    """The JSON type of a decoded value."""
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
    """What `#/a/b` names in `root`. Raises KeyError when it names nothing there, or another document."""
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
    """The schema that `node` refers to; anything where it leads nowhere."""
    try:
        return resolve(node["$ref"], root)
    except KeyError:
        return True


def applicable(nodes: Iterable[JsonValue], root: Node) -> Iterator[Node]:
    """`nodes` and every schema that they put on the same value: by reference, by allOf, anyOf and oneOf."""
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
    """The types that `node` lets pass; `ANY_TYPE` when it does not say."""
    return _accepted(node, root, {}, 0)


def _accepted(node: JsonValue, root: Node, known: dict[int, frozenset[str]], depth: int) -> frozenset[str]:
    """`known` holds what was found before: references can name one schema again and again, and itself."""
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
    """The schemas listed under a keyword."""
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
    """The schemas that `nodes` put on the property `key` of an object, declared or additional."""
    found = []
    for node in applicable(nodes, root):
        properties = node.get("properties")
        if isinstance(properties, Mapping) and key in properties:
            found.append(properties[key])
        elif isinstance(extra := node.get("additionalProperties"), Mapping):
            found.append(extra)
    return found


def item_nodes(nodes: Iterable[JsonValue], index: int, root: Node) -> list[JsonValue]:
    """The schemas that `nodes` put on the element `index` of an array."""
    found = []
    for node in applicable(nodes, root):
        first = node.get("prefixItems")
        if isinstance(first, list) and index < len(first):
            found.append(first[index])
        elif isinstance(rest := node.get("items"), Mapping):
            found.append(rest)
    return found


def property_names(nodes: Iterable[JsonValue], root: Node) -> dict[str, bool]:
    """The declared properties of an object under `nodes`, each with whether some node requires it."""
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
    """`node` with every schema right below it changed. The keys of a map of schemas are names, never keywords."""
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
    """Every schema right below `node`, booleans left out."""
    found: list[Node] = []
    with_below(node, found.append)
    return found
