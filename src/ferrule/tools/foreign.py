"""Validation of arguments against schemas that are not ours: MCP servers' and dynamic tools'."""

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from ferrule.protocol.json_schema import JsonSchema
from ferrule.protocol.json_text import JsonValue
from ferrule.protocol.schema_sanitize import sanitize_json_schema
from ferrule.tools.argument_errors import Problem, foreign_problems

if TYPE_CHECKING:
    from jsonschema_rs import Validator


class Mismatch(Exception):
    """A value that its schema does not allow, or text that is no JSON."""


class ForeignValidator:
    """Arguments that stay plain JSON. Every object passes a schema that cannot be compiled: its owner judges."""

    refusal: type[Exception] = Mismatch

    def __init__(self, schema: JsonSchema) -> None:
        self.original = schema
        self.schema = sanitize_json_schema(schema)

    @cached_property
    def _compiled(self) -> "Validator | None":
        import jsonschema_rs

        for schema in (self.original, self.schema):
            try:
                return jsonschema_rs.validator_for(dict(schema.mapping), offline=True)
            except (jsonschema_rs.ValidationError, ValueError):
                continue
        return None

    def strict(self, raw: str | bytes) -> dict[str, JsonValue]:
        """The object that `raw` holds. Raises `Mismatch`."""
        try:
            value = msgspec.json.decode(raw)
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise Mismatch(str(error)) from error
        if not isinstance(value, dict) or not (self._compiled is None or self._compiled.is_valid(value)):
            raise Mismatch
        return value

    def problems(self, refusal: Exception, value: JsonValue) -> Sequence[Problem]:
        """What the schema does not allow."""
        errors: Any = self._compiled.iter_errors(value) if self._compiled is not None else ()
        return foreign_problems(errors, value, self.schema) or [Problem((), "expected an object", value)]
