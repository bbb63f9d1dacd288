"""Aliases for property names that a provider refuses, in both directions."""

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import NamedTuple

from ferrule.protocol.json_text import JsonValue
from ferrule.schemas.walk import Node, item_nodes, property_names, property_nodes, schemas_below, with_below

PORTABLE_NAMES = re.compile(r"[A-Za-z0-9_-]{1,64}")
"""Property names that every known provider accepts."""

_LONGEST = 56
"""Characters of a name that its alias keeps; leaves room for a number."""

_Step = Callable[[str, Mapping[str, bool]], tuple[str, str]]
"""Maps a key and the declared names to the key's other name and the tool's own name."""


class Aliases(NamedTuple):
    """The renamed properties of one schema. An alias belongs to one name and stands for it everywhere."""

    schema: Node
    names: Mapping[str, str]
    """Maps the tool's own name to the model's."""

    def to_model(self, value: JsonValue) -> JsonValue:
        """Convert the tool's arguments to the model's spelling."""

        def step(key: str, declared: Mapping[str, bool]) -> tuple[str, str]:
            return (self.names.get(key, key) if key in declared else key), key

        return self._renamed(value, [self.schema], step) if self.names else value

    def from_model(self, value: JsonValue) -> JsonValue:
        """Convert a model's arguments to the tool's spelling. Only declared properties are renamed, never data."""
        originals = {alias: name for name, alias in self.names.items()}

        def step(key: str, declared: Mapping[str, bool]) -> tuple[str, str]:
            name = originals.get(key, key)
            return (name, name) if name in declared else (key, key)

        return self._renamed(value, [self.schema], step) if self.names else value

    def _renamed(self, value: JsonValue, nodes: list[JsonValue], step: _Step) -> JsonValue:
        if isinstance(value, list):
            return [self._renamed(item, item_nodes(nodes, i, self.schema), step) for i, item in enumerate(value)]
        if not isinstance(value, Mapping):
            return value
        declared = property_names(nodes, self.schema)
        renamed = {}
        for key, below in value.items():
            other, own = step(key, declared)
            renamed[other] = self._renamed(below, property_nodes(nodes, own, self.schema), step)
        return renamed


NO_ALIASES = Aliases({}, {})


def with_aliases(schema: dict[str, JsonValue], allowed: re.Pattern[str]) -> tuple[dict[str, JsonValue], Aliases]:
    """Return `schema` with an alias for each property name that `allowed` does not fully match, and the aliases."""
    declared = list(dict.fromkeys(_declared(schema)))
    refused = [name for name in declared if not allowed.fullmatch(name)]
    if not refused:
        return schema, NO_ALIASES
    taken = {*declared, *_mentioned(schema)} - set(refused)
    names: dict[str, str] = {}
    for name in refused:
        names[name] = _alias(name, taken, allowed)
        taken.add(names[name])
    return _with_names(schema, names), Aliases(schema, names)


def _declared(schema: Node) -> Iterator[str]:
    properties = schema.get("properties")
    yield from properties if isinstance(properties, Mapping) else ()
    for below in schemas_below(schema):
        yield from _declared(below)


def _mentioned(schema: Node) -> Iterator[str]:
    """Yield names that are required without being declared: no alias may collide with them."""
    for names in (schema.get("required", ()), *schema.get("dependentRequired", {}).values()):
        yield from names
    for below in schemas_below(schema):
        yield from _mentioned(below)


def _alias(name: str, taken: set[str], allowed: re.Pattern[str]) -> str:
    stem = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_")[:_LONGEST] or "field"
    candidates = (stem if i == 1 else f"{stem}_{i}" for i in count(1))
    return next(alias for alias in candidates if alias not in taken and (allowed.fullmatch(alias) or alias != stem))


def _with_names(schema: Node, names: Mapping[str, str]) -> dict[str, JsonValue]:
    renamed = with_below(schema, lambda below: _with_names(below, names))
    for keyword in ("properties", "dependentSchemas", "dependentRequired", "dependencies"):
        if isinstance(entries := renamed.get(keyword), Mapping):
            renamed[keyword] = {names.get(name, name): _listed(below, names) for name, below in entries.items()}
    if "properties" in renamed:
        for name, alias in names.items():
            if alias in renamed["properties"]:
                renamed["properties"][alias] = _described(renamed["properties"][alias], name)
    if "required" in renamed:
        renamed["required"] = _listed(renamed["required"], names)
    return renamed


def _listed(value: JsonValue, names: Mapping[str, str]) -> JsonValue:
    return [names.get(name, name) for name in value] if isinstance(value, list) else value


def _described(schema: JsonValue, name: str) -> JsonValue:
    """Return the property's schema; its description states the original name, which may carry meaning."""
    if not isinstance(schema, Mapping):
        return schema
    description = schema.get("description")
    return {**schema, "description": f"{name}: {description}" if description else name}
