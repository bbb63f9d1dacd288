"""What a model's argument text becomes: read strictly, then tolerantly where its meaning is certain, else refused.

`read_arguments` is the whole way. A dispatch that lets hooks rewrite takes it in two halves: `decode_arguments`, then
`validate_value`. A refusal is a `RespondToModel` of one or two lines: the JSON path, what came, what is right.
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
    """Reads JSON strictly into a value: no coercion between JSON's own types."""

    @property
    def strict(self) -> Callable[[str | bytes], T_co]:
        """Reads JSON text; raises `refusal`."""

    @property
    def refusal(self) -> type[Exception]:
        """What `strict` raises for text that is not what the schema asks for, or not JSON at all."""

    @property
    def schema(self) -> JsonSchema:
        """What the model was told; leads the tolerant reading and the hints of errors."""

    def problems(self, refusal: Exception, value: JsonValue) -> Sequence[Problem]:
        """What was wrong with `value`, most important first."""


def read_arguments(raw: str | bytes, validator: Validator[T]) -> T:
    """The arguments of a call, validated.

    Raises `RespondToModel` when the text is no JSON object or not what the schema asks for.
    """
    try:
        return validator.strict(raw)
    except validator.refusal:
        return validate_value(decode_arguments(raw, validator), validator)


def decode_arguments(raw: str | bytes, validator: Validator[object]) -> dict[str, JsonValue]:
    """The first half of `read_arguments`: the object as it would be validated, for a reader that may rewrite it.

    Empty text is `{}`. What the validator takes as it stands is not touched. Raises `RespondToModel` when the text is
    no JSON object.
    """
    value = decode(raw) if raw and not raw.isspace() else {}
    if not _accepts(validator, value):
        value = repaired(value, validator.schema)
    if not isinstance(value, dict):
        raise RespondToModel(explain([Problem((), "expected an object", value)]))
    return value


def validate_value(value: JsonValue, validator: Validator[T]) -> T:
    """The second half of `read_arguments`, for a value that was decoded (and perhaps rewritten) before.

    Raises `RespondToModel` when the value is not what the schema asks for.
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
    """Arguments that become a pydantic model, or anything else that pydantic validates (dataclass, TypedDict)."""

    def __init__(self, model: "type[T] | TypeAdapter[T]", schema: JsonSchema) -> None:
        from pydantic import TypeAdapter, ValidationError

        adapter = model if isinstance(model, TypeAdapter) else TypeAdapter(model)
        validate_json = adapter.validator.validate_json
        self.strict: Callable[[str | bytes], T] = partial(validate_json, strict=True)
        self.refusal: type[Exception] = ValidationError
        self.schema = schema

    def problems(self, refusal: Exception, value: JsonValue) -> Sequence[Problem]:
        """What pydantic found wrong."""
        return pydantic_problems(refusal, value, self.schema)


class StructValidator(Generic[T]):
    """Arguments that become a msgspec Struct."""

    def __init__(self, struct: type[T], schema: JsonSchema) -> None:
        self.strict: Callable[[str | bytes], T] = msgspec.json.Decoder(struct).decode
        self.refusal: type[Exception] = msgspec.DecodeError
        self.schema = schema

    def problems(self, refusal: Exception, value: JsonValue) -> Sequence[Problem]:
        """What msgspec found wrong."""
        return struct_problems(refusal, value, self.schema)
