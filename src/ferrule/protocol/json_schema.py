"""JSON Schemas of tools: the lossless mapping, its bytes encoded once, and the view in five kinds.

`schemas.sanitize` adapts foreign schemas to a provider, `schemas.strict` adapts them to strict mode.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from ferrule.protocol.json_text import JsonValue


class JsonSchema:
    """A whole JSON Schema, made from a mapping or from its JSON; the other form is made on demand."""

    __slots__ = ("_encoded", "_mapping")

    def __init__(self, mapping: Mapping[str, JsonValue] | None = None, *, encoded: bytes | None = None) -> None:
        if mapping is None and encoded is None:
            raise TypeError("JsonSchema needs a mapping or its JSON")
        self._mapping = mapping
        self._encoded = encoded

    @classmethod
    def of(cls, variant: "SchemaVariant") -> "JsonSchema":
        """Return the schema that one of the five kinds describes."""
        return cls(encoded=msgspec.json.encode(variant, enc_hook=lambda schema: dict(schema.mapping)))

    @property
    def mapping(self) -> Mapping[str, JsonValue]:
        """The schema as a mapping."""
        if self._mapping is None:
            self._mapping = msgspec.json.decode(self._encoded or b"", type=dict[str, Any])
        return self._mapping

    @property
    def encoded(self) -> bytes:
        """The schema as JSON."""
        if self._encoded is None:
            self._encoded = msgspec.json.encode(self._mapping)
        return self._encoded

    def view(self) -> "SchemaVariant":
        """Return the schema as the nearest of the five kinds, which cannot express enums, unions or formats."""
        mapping = self.mapping
        description = mapping.get("description")
        match _kind(mapping):
            case "object":
                return _object_view(mapping)
            case "array":
                items = mapping.get("items")
                return ArraySchema(JsonSchema(items if isinstance(items, Mapping) else {}), description)
            case "boolean":
                return BooleanSchema(description)
            case "number" | "integer":
                return NumberSchema(description)
        return StringSchema(description)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JsonSchema) and self.mapping == other.mapping

    __hash__ = None  # type: ignore[assignment]  # how Python says that there is none

    def __repr__(self) -> str:
        return f"JsonSchema({dict(self.mapping)!r})"


AdditionalProperties = bool | JsonSchema
"""Whether an object may have undeclared properties, or the schema of those."""


class BooleanSchema(msgspec.Struct, frozen=True, tag="boolean", omit_defaults=True):
    """True or false."""

    description: str | None = None


class StringSchema(msgspec.Struct, frozen=True, tag="string", omit_defaults=True):
    """A text."""

    description: str | None = None


class NumberSchema(msgspec.Struct, frozen=True, tag="number", omit_defaults=True):
    """A number, whole or not."""

    description: str | None = None


class ArraySchema(msgspec.Struct, frozen=True, tag="array", omit_defaults=True):
    """A list of `items`."""

    items: JsonSchema
    description: str | None = None


class ObjectSchema(msgspec.Struct, frozen=True, tag="object", omit_defaults=True, rename="camel"):
    """Named values."""

    properties: dict[str, JsonSchema]
    required: tuple[str, ...] | None = None
    additional_properties: AdditionalProperties | None = None


SchemaVariant = BooleanSchema | StringSchema | NumberSchema | ArraySchema | ObjectSchema

_KINDS = ("object", "array", "string", "number", "integer", "boolean")
"""Kinds in the order in which a union of types is reduced to one of them."""


def _kind(mapping: Mapping[str, JsonValue]) -> str | None:
    named = mapping.get("type")
    names = named if isinstance(named, list) else [named or inferred_type(mapping)]
    return next((kind for kind in _KINDS if kind in names), None)


_HINTS = {
    "object": ("properties", "required", "additionalProperties", "patternProperties", "propertyNames"),
    "array": ("items", "prefixItems", "minItems", "maxItems", "uniqueItems"),
    "string": ("pattern", "minLength", "maxLength", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}


def inferred_type(mapping: Mapping[str, JsonValue]) -> str | None:
    """Infer the type of a schema without one from its other keywords."""
    return next((kind for kind, keywords in _HINTS.items() if not mapping.keys().isdisjoint(keywords)), None)


def _object_view(mapping: Mapping[str, JsonValue]) -> ObjectSchema:
    properties, required, extra = (mapping.get(k) for k in ("properties", "required", "additionalProperties"))
    declared = properties if isinstance(properties, Mapping) else {}
    return ObjectSchema(
        {name: JsonSchema(s if isinstance(s, Mapping) else {}) for name, s in declared.items()},
        tuple(required) if isinstance(required, list) else None,
        JsonSchema(extra) if isinstance(extra, Mapping) else extra if isinstance(extra, bool) else None,
    )
