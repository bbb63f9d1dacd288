"""Validate arguments against foreign schemas: those of MCP servers and dynamic tools."""

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING

import msgspec

from ferrule.protocol.json_schema import JsonSchema
from ferrule.protocol.json_text import JsonValue
from ferrule.schemas.sanitize import Sanitized, sanitize
from ferrule.schemas.visits import Visits
from ferrule.tools.argument_errors import Problem, foreign_problems

if TYPE_CHECKING:
    import jsonschema_rs


class Mismatch(Exception):
    """A value that its schema does not allow, or text that is no JSON."""


class ForeignValidator:
    """A validator for arguments that stay plain JSON: checks the tool's own schema and returns its own names.

    `told` is the schema that the model was given. If the schema cannot be compiled, or would take a validator for ever,
    every object passes: its owner decides.
    """

    refusal: type[Exception] = Mismatch

    def __init__(self, schema: JsonSchema, told: Sanitized | None = None) -> None:
        told = told or sanitize(schema)
        self.schema = told.schema
        self._aliases = told.aliases
        self._original = schema

    @cached_property
    def _own(self) -> "jsonschema_rs.Validator | None":
        return _compiled(self._original) or (None if self._aliases.names else _compiled(self.schema))

    @cached_property
    def _visits(self) -> Visits:
        return Visits(self._original.mapping)

    @cached_property
    def _told(self) -> "jsonschema_rs.Validator | None":
        return _compiled(self.schema)

    def strict(self, raw: str | bytes) -> dict[str, JsonValue]:
        """Return the object in `raw`, as the tool takes it. Raises `Mismatch`."""
        try:
            value = self._aliases.from_model(msgspec.json.decode(raw))
        except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
            raise Mismatch(str(error)) from error
        if isinstance(value, dict) and self._allows(value):
            return value
        raise Mismatch

    def _allows(self, value: dict[str, JsonValue]) -> bool:
        try:
            return self._own is None or self._visits.are_too_many(value) or self._own.is_valid(value)
        except ValueError:  # nested deeper than the validator can go
            return False

    def problems(self, refusal: Exception, value: JsonValue) -> Sequence[Problem]:
        """Return the problems of `value`, in the model's names; else in the tool's own."""
        found: list[Problem] = []
        if self._visits.are_too_many(self._aliases.from_model(value)):
            return [Problem((), "expected an object", value)]
        if self._told is not None:
            found = foreign_problems(self._told.iter_errors(value), value, self.schema)
        if not found and self._own is not None:
            own = self._aliases.from_model(value)
            found = foreign_problems(self._own.iter_errors(own), own, self._original)
        return found or [Problem((), str(refusal) or "expected an object", value)]


def _compiled(schema: JsonSchema) -> "jsonschema_rs.Validator | None":
    """Compile a validator that never accesses the network, or return None for an invalid schema."""
    import jsonschema_rs

    try:
        return jsonschema_rs.validator_for(dict(schema.mapping), offline=True)
    except (jsonschema_rs.ValidationError, msgspec.DecodeError, ValueError, TypeError, RecursionError):
        return None
