"""Generated JSON Schemas, as servers write them, and values that are near to what they describe.

A plain random generator: a seed is an example, thousands of them take a second.
"""

from collections.abc import Callable
from random import Random
from typing import Any

Json = Any

NAMES = ["a", "b", "c", "type", "properties", "required", "$ref", "items"]
TYPES = ["string", "number", "integer", "boolean", "object", "array", "null"]
SCALARS: list[Json] = [None, True, False, 0, 1, 3, 12, -2, 0.5, 1.0, 2.5, "", "a", "b", "auto", "12", "true"]
REFERENCES = ["#/$defs/A", "#/$defs/B", "#/$defs/odd~1name", "#/definitions/A", "#", "#/properties/a", "#/$defs/gone"]


class Maker:
    """Everything that one seed makes."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def value(self, depth: int = 3) -> Json:
        """Any JSON value."""
        kind = self.random.random()
        if depth == 0 or kind < 0.6:
            return self.random.choice(SCALARS)
        if kind < 0.75:
            return [self.value(depth - 1) for _ in range(self.random.randint(0, 3))]
        return self.arguments(depth - 1)

    def arguments(self, depth: int = 2) -> dict[str, Json]:
        """An object of values."""
        return {name: self.value(depth) for name in self.some(NAMES, 4)}

    def schema(self, depth: int = 3) -> Json:
        """Any schema."""
        if depth == 0 or self.random.random() < 0.35:
            return self._leaf()
        make = self.random.choice([self._typed, self._typed, self._combined])
        return make(lambda: self.schema(depth - 1))

    def root(self) -> dict[str, Json]:
        """The schema of a tool's parameters: mostly an object, with definitions that its references may mean."""
        root: Json = None
        while not isinstance(root, dict):
            root = self.schema() if self.chance(0.3) else self._object(lambda: self.schema(2))
        definitions = {"A": self.schema(2), "B": self.schema(2), "odd/name": self.schema(1)}
        return {**root, "$defs": definitions, "definitions": {"A": self.schema(1)}}

    def closed_object(self) -> dict[str, Json]:
        """An object that strict mode can express, with some properties required and some not."""
        kinds: list[Json] = [
            *({"type": "string"}, {"type": "integer"}, {"type": "boolean"}, {"type": ["number", "null"]}),
            {"type": "string", "enum": ["a", "auto"]},
            {"anyOf": [{"type": "string"}, {"type": "integer"}]},
            {"type": "array", "items": {"type": "string"}},
        ]
        properties = {name: self.random.choice(kinds) for name in self.some(NAMES, 4)}
        required = self.some(list(properties), len(properties))
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}

    def chance(self, probability: float) -> bool:
        """True as often as that."""
        return self.random.random() < probability

    def some(self, of: list[str], most: int) -> list[str]:
        """Up to `most` of them, each once."""
        return self.random.sample(of, self.random.randint(0, min(most, len(of))))

    def _leaf(self) -> Json:
        members = self.random.sample(SCALARS, self.random.randint(1, 4))
        text = {"description": "text"} if self.chance(0.3) else {}
        return self.random.choice(
            [
                True,
                self.chance(0.7),
                {"enum": members, **text},
                {"const": members[0], **text},
                {"$ref": self.random.choice(REFERENCES), **text},
                {"type": self.random.choice(TYPES), **text},
                {"type": self.random.choice(TYPES), **self._limits()},
                self._limits(),
            ]
        )

    def _limits(self) -> dict[str, Json]:
        limits = {"minimum": 1, "maxLength": 3, "minItems": 1, "default": 1, "title": "T", "exclusiveMaximum": 9}
        return {name: limits[name] for name in self.some(list(limits), 2)}

    def _object(self, below: Callable[[], Json]) -> dict[str, Json]:
        schema: dict[str, Json] = {"type": "object", "properties": {name: below() for name in self.some(NAMES, 4)}}
        if self.chance(0.4):
            schema["required"] = self.some(NAMES, 2)
        if self.chance(0.4):
            schema["additionalProperties"] = self.random.choice([True, False, below()])
        return schema

    def _typed(self, below: Callable[[], Json]) -> dict[str, Json]:
        schema = self._object(below) if self.chance(0.5) else {}
        if self.chance(0.4):
            schema["items"] = below()
        if self.chance(0.2):
            schema["prefixItems"] = [below(), below()]
        kinds = self.random.sample(TYPES, self.random.randint(1, 3))
        return {**schema, **self._limits(), "type": kinds if self.chance(0.3) else kinds[0]}

    def _combined(self, below: Callable[[], Json]) -> dict[str, Json]:
        branches = [below() for _ in range(self.random.randint(1, 3))]
        company = self._limits() if self.chance(0.3) else {}
        return self.random.choice(
            [
                {"anyOf": branches, **company},
                {"oneOf": branches, **company},
                {"allOf": branches, "additionalProperties": self.chance(0.5)},
                {"allOf": branches, **company},
                {"not": branches[0]},
                {"if": branches[0], "then": branches[-1], "else": below()},
            ]
        )
