"""JSON Schemas of tools: the mapping kept without loss, its bytes made once, and the view in five kinds."""

from collections.abc import Mapping
from typing import Any

import msgspec

from ferrule.protocol.json_text import JsonValue


class JsonSchema:
    """A JSON Schema, whole. Made from a mapping or from its JSON; whichever is missing is made when asked for."""

    __slots__ = ("_encoded", "_mapping")

    def __init__(self, mapping: Mapping[str, JsonValue] | None = None, *, encoded: bytes | None = None) -> None:
        if mapping is None and encoded is None:
            raise TypeError("JsonSchema needs a mapping or its JSON")
        self._mapping = mapping
        self._encoded = encoded

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

    def __eq__(self, other: object) -> bool:
        return isinstance(other, JsonSchema) and self.mapping == other.mapping

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"JsonSchema({dict(self.mapping)!r})"


def sanitize_json_schema(schema: JsonSchema) -> JsonSchema:
    """The schema with what providers refuse put right: an object has `properties`."""
    mapping = dict(schema.mapping)
    mapping.setdefault("type", "object")
    if mapping["type"] == "object" and not isinstance(mapping.get("properties"), dict):
        mapping["properties"] = {}
    return JsonSchema(mapping)
