"""Parse a model's argument text: strictly first, then tolerantly if its meaning is certain, else refuse.

`read_arguments` does all of it. A dispatch that lets hooks rewrite arguments uses its two halves: `decode_arguments`,
then `validate_value`. A refusal is a `RespondToModel` of one or two lines: the JSON path, the value, what is right.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

import msgspec

from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.json_schema import JsonSchema
from ferrule.protocol.json_text import PARSE_ERROR, JsonValue, decode
from ferrule.tools.argument_errors import Problem, explain, pydantic_problems, struct_problems
from ferrule.tools.argument_repair import repaired

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Validator(Protocol[T_co]):
    """A strict JSON reader for one type: no coercion between JSON's own types."""

    @property
    def strict(self) -> Callable[[str | bytes], T_co]:
        """The parser of JSON text; raises `refusal`."""

    @property
    def refusal(self) -> type[Exception]:
        """The exception that `strict` raises for text that does not match the schema, or is not JSON at all."""

    @property
    def schema(self) -> JsonSchema:
        """The schema that the model was given; guides tolerant parsing and the hints of errors."""

    def problems(self, refusal: Exception, value: JsonValue) -> Sequence[Problem]:
        """Return the problems of `value`, most important first."""


def read_arguments(raw: str | bytes, validator: Validator[T]) -> T:
    """Parse and validate the arguments of a call.

    Raises `RespondToModel` if the text is not a JSON object or does not match the schema.
    """
    try:
        return validator.strict(raw)
    except validator.refusal:
        return validate_value(decode_arguments(raw, validator), validator)


def decode_arguments(raw: str | bytes, validator: Validator[object]) -> dict[str, JsonValue]:
    """Parse the arguments, the first half of `read_arguments`: return the object before validation, for a caller that
    may rewrite it.

    Empty text is `{}`. A value that the validator accepts is not changed. Raises `RespondToModel` if the text is not a
    JSON object.
    """
    value = decode(raw) if raw and not raw.isspace() else {}
    if not _accepts(validator, value):
        value = repaired(value, validator.schema)
    if not isinstance(value, dict):
        raise RespondToModel(explain([Problem((), "expected an object", value)]))
    return value


def validate_value(value: JsonValue, validator: Validator[T]) -> T:
    """Validate a decoded (and perhaps rewritten) value, the second half of `read_arguments`.

    Raises `RespondToModel` if the value does not match the schema.
    """
    if not _accepts(validator, value):
        value = repaired(value, validator.schema)
    try:
        return validator.strict(_encoded(value))
    except validator.refusal as refusal:
        raise RespondToModel(explain(validator.problems(refusal, value))) from refusal


def _accepts(validator: Validator[object], value: JsonValue) -> bool:
    try:
        validator.strict(_encoded(value))
    except validator.refusal:
        return False
    return True


def _encoded(value: JsonValue) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (UnicodeEncodeError, RecursionError, TypeError, ValueError) as error:
        raise RespondToModel(f"{PARSE_ERROR}{error}") from error


class ModelValidator(Generic[T]):
    """A validator for pydantic models, or anything else that pydantic validates (dataclass, TypedDict)."""

    def __init__(self, model: "type[T] | TypeAdapter[T]", schema: JsonSchema) -> None:
        from pydantic import TypeAdapter, ValidationError

        adapter = model if isinstance(model, TypeAdapter) else TypeAdapter(model)
        validate_json = adapter.validator.validate_json
        self.strict: Callable[[str | bytes], T] = partial(validate_json, strict=True)
        self.refusal: type[Exception] = ValidationError
        self.schema = schema

    def problems(self, refusal: Exception, value: JsonValue) -> Sequence[Problem]:
        """Return pydantic's errors as problems."""
        return pydantic_problems(refusal, value, self.schema)


class StructValidator(Generic[T]):
    """A validator for a msgspec Struct."""

    def __init__(self, struct: type[T], schema: JsonSchema) -> None:
        self.strict: Callable[[str | bytes], T] = msgspec.json.Decoder(struct).decode
        self.refusal: type[Exception] = msgspec.DecodeError
        self.schema = schema

    def problems(self, refusal: Exception, value: JsonValue) -> Sequence[Problem]:
        """Return msgspec's errors as problems."""
        return struct_problems(refusal, value, self.schema)
