"""How much work a value is for a validator, which follows a reference each time that it meets one.

Definitions that name each other twice are few bytes, and 2 to the power of their number of ways lead through them.
"""

import re
from collections.abc import Iterator, Sequence

import msgspec

from ferrule.protocol.json_text import JsonValue
from ferrule.schemas.walk import Node, branches, resolve

MOST_VISITS = 10_000
"""Schemas that are met in a value: a validator explains as many errors within a second, a sane tool has a hundredth."""
_REFERS = re.compile(rb'"\$(?:ref|dynamicRef|recursiveRef)"')
_ELSEWHERE = re.compile(rb'"\$(?:dynamicRef|recursiveRef|anchor|dynamicAnchor)"|"\$id".*"\$id"|draft-0[34]', re.DOTALL)
"""Ways of references that are not followed here."""
_LISTS = ("allOf", "anyOf", "oneOf")
_SINGLE = ("not", "if", "then", "else")
_NAMED = ("dependentSchemas", "dependencies")
_OF_EACH = (
    "additionalProperties", "items", "additionalItems", "contains", "propertyNames", "unevaluatedItems",
    "unevaluatedProperties",
)  # fmt: skip


class _TooMany(Exception):
    """There are more than `MOST_VISITS`, or a reference leads where it is not followed."""


class Visits:
    """Counts the schemas of one root that are met in a value."""

    def __init__(self, root: Node) -> None:
        text = msgspec.json.encode(root)
        self._root = root
        self._refers = _REFERS.search(text) is not None
        self._elsewhere = _ELSEWHERE.search(text) is not None or ("$id" in text.decode() and "$id" not in root)

    def are_too_many(self, value: JsonValue) -> bool:
        """Return whether a validator may never end with this value. Without references it always ends soon."""
        if not self._refers:
            return False
        try:
            self._count([self._root], value, 0)
        except (_TooMany, RecursionError):
            return True
        return self._elsewhere

    def _count(self, nodes: Sequence[JsonValue], value: JsonValue, before: int) -> int:
        """Return the number of visits with those that there were before. Raises `_TooMany`."""
        here: list[Node] = []
        pending = list(nodes)
        while pending:
            node = pending.pop()
            if isinstance(node, dict):
                here.append(node)
                pending.extend(self._in_place(node))
            if before + len(here) + len(pending) > MOST_VISITS:
                raise _TooMany
        visits = before + len(here)
        children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, child in children:
            visits = self._count([schema for node in here for schema in _below(node, key)], child, visits)
        return visits

    def _in_place(self, node: Node) -> Iterator[JsonValue]:
        """Yield the schemas that apply to the same value."""
        if "$ref" in node:
            try:
                yield resolve(node["$ref"], self._root)
            except KeyError as error:
                raise _TooMany from error
        for keyword in _LISTS:
            yield from branches(node, keyword)
        for keyword in _SINGLE:
            yield node.get(keyword)
        for keyword in _NAMED:
            yield from named.values() if isinstance(named := node.get(keyword), dict) else ()


def _below(node: Node, key: str | int) -> Iterator[JsonValue]:
    """Yield the schemas that may apply to a property, or to an element."""
    if isinstance(key, int):
        yield from branches(node, "prefixItems")[key : key + 1]
        yield from branches(node, "items")[key : key + 1]
    elif isinstance(properties := node.get("properties"), dict):
        yield properties.get(key)
    yield from patterns.values() if isinstance(patterns := node.get("patternProperties"), dict) else ()
    for keyword in _OF_EACH:
        yield node.get(keyword)
