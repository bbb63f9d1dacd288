"""Read type names: JSON Schema's own, in any case, and those of other languages, from hand-written schemas."""

import re
from collections.abc import Iterator

from ferrule.protocol.json_text import JsonValue

TYPES = frozenset({"string", "number", "integer", "boolean", "object", "array", "null"})

_MISNAMED = {
    **dict.fromkeys(("str", "text", "char", "varchar", "date", "datetime", "timestamp", "uuid", "bytes"), "string"),
    **dict.fromkeys(("string_view", "wstring", "charsequence", "literalstring"), "string"),
    **dict.fromkeys(("int", "int8", "int16", "int32", "int64", "uint", "uint8", "uint16", "uint32"), "integer"),
    **dict.fromkeys(("uint64", "long", "short", "byte", "bigint", "biginteger", "size_t", "usize"), "integer"),
    **dict.fromkeys(("float", "float32", "float64", "double", "decimal", "bigdecimal", "real", "numeric"), "number"),
    **dict.fromkeys(("bool", "flag"), "boolean"),
    **dict.fromkeys(("dict", "dictionary", "map", "mapping", "hashmap", "hashtable", "hash", "record"), "object"),
    **dict.fromkeys(("defaultdict", "ordereddict", "mutablemapping", "typeddict", "treemap"), "object"),
    **dict.fromkeys(("unordered_map", "linkedhashmap", "struct", "class", "model", "json"), "object"),
    **dict.fromkeys(("list", "tuple", "set", "arraylist", "vector", "vec", "sequence", "slice"), "array"),
    **dict.fromkeys(("queue", "stack", "collection", "iterable", "frozenset", "linkedlist", "hashset"), "array"),
    **dict.fromkeys(("unordered_set", "deque", "pair", "readonlyarray"), "array"),
    **dict.fromkeys(("none", "nil", "nonetype", "undefined", "void", "nullptr_t"), "null"),
}
_OPTIONAL = frozenset({"optional", "nullable", "option", "maybe"})
_UNIONS = frozenset({"union", "variant"})
_WRAPPERS = frozenset({"annotated", "final", "required", "notrequired", "readonly"})
"""Types that stand for their first parameter."""
_MODIFIERS = frozenset({"const", "unsigned", "signed", "final", "readonly"})

_LONGEST = 200
"""Characters of the longest type name that is read; it also bounds the nesting."""

_NAME = re.compile(r"\s*(?:[\w$]+(?:::|\.|\\))*([\w$]*)\s*")
"""A name without its scope: `std::map`, `typing.Dict`, `java.util.List`."""
_OPENING, _CLOSING = "[<({", "]>)}"


def type_names(item: JsonValue) -> list[str]:
    """Return the JSON Schema types that a name means; none if it means none.

    Parameters may follow the name (`std::map<string, int>`, `list[str]`), and a name may stand for several types
    (`Optional[int]`, `int | None`, `string?`).
    """
    if not isinstance(item, str) or len(item) > _LONGEST:
        return []
    name = item.strip().lower()
    return [name] if name in TYPES else list(dict.fromkeys(_meant(name)))


def _meant(text: str) -> Iterator[str]:
    alternatives = _apart(text, "|")
    if len(alternatives) > 1:
        for alternative in alternatives:
            yield from _meant(alternative)
    elif text.rstrip().endswith("?"):
        yield from _meant(text.rstrip()[:-1])
        yield "null"
    elif text.rstrip().endswith("[]"):
        yield "array"
    else:
        found = _NAME.match(text)
        yield from _named(found[1], text[found.end() :]) if found else ()


def _named(word: str, rest: str) -> Iterator[str]:
    """Yield the types of a name and what stands behind it."""
    parameters = _apart(rest[1:-1], ",") if rest[:1] and rest[0] in _OPENING and rest.rstrip()[-1] in _CLOSING else []
    if word in _MODIFIERS and not parameters:
        yield from _meant(rest) if rest else ()
    elif word in _OPTIONAL | _UNIONS | _WRAPPERS:
        for parameter in parameters if word in _UNIONS else parameters[:1]:
            yield from _meant(parameter)
        if word in _OPTIONAL:
            yield "null"
    elif word in TYPES:
        yield word
    elif word in _MISNAMED:
        yield _MISNAMED[word]


def _apart(text: str, mark: str) -> list[str]:
    """Split at the marks that stand in no brackets."""
    parts, depth = [""], 0
    for char in text:
        depth += (char in _OPENING) - (char in _CLOSING)
        if char == mark and depth == 0:
            parts.append("")
        else:
            parts[-1] += char
    return parts
