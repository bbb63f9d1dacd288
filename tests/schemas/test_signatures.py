"""Arguments of JSON's own types: what msgspec makes of them, pydantic makes of them, too."""

import inspect
import json
from collections.abc import Callable
from enum import Enum
from typing import Annotated, Any, Literal, Optional

import msgspec
import pytest
from pydantic import BaseModel, Field, ValidationError

from ferrule.schemas.signatures import keyword_arguments, plain_arguments, read_signature, signature_model
from ferrule.schemas.writer import schema_of_model
from ferrule.tools.action import Action

HINTS: list[Any] = [
    str, int, float, bool, Any,
    list[int], list[Any], list[list[str]], dict[str, float], dict[str, Any], list[dict[str, bool]],
    int | None, Optional[float], list[str] | None, dict[str, int | None],  # noqa: UP045 - both ways to write it
    Literal["b", "a"], Literal["b", "a"] | None, list[Literal["x"]],
    Annotated[int, Field(description="How many")], Annotated[list[str] | None, Field(description="Which")],
]  # fmt: skip
VALUES = [
    "1", "-0", "1.0", "-0.0", "1e3", "0.1", "9007199254740993", "123456789012345678901234567890", "1e400", "NaN",
    "true", "null", '"x"', '"b"', '"1"', '"\\u0000"', '"\\ud83d\\ude00"', '"\\ud800"', '"\u00e9"', '"\ud800"',
    "[]", "[1]", "[1.5, null]", '["x"]', '[["x"]]', '[{"k": true}]', "{}",
    '{"k": 1}', '{"k": null}', '{"k": 1, "k": 2}',
    "[" * 5_000 + "]" * 5_000, "",
]  # fmt: skip
TEXTS = ["{{}}", '{{"a": {0}}}', ' {{"z": {0}, "a": {0}}} ', '{{"a": 1, "a": {0}}}', '{{"a": {0}}} x', "{0}"]
NONE = inspect.Parameter.empty


def function(hint: Any, default: Any = NONE) -> Callable[..., object]:
    """A function with the parameters `a` and `schema`."""

    def made(a, schema=1):  # type: ignore[no-untyped-def]
        """Make.

        Args:
            a: The first.
        """

    made.__annotations__ = {"a": hint, "schema": int}
    made.__defaults__ = (1,) if default is NONE else (default, 1)
    return made


@pytest.mark.parametrize("hint", HINTS, ids=str)
def test_plain_arguments_are_those_of_the_model(hint: Any) -> None:
    for default in (NONE, None, 1, "x", True, 0.5):
        signature = read_signature(function(hint, default))
        plain, model = plain_arguments(signature), signature_model(signature, Action)
        assert plain is not None
        shown = json.dumps(dict(plain.schema.mapping))
        assert shown == json.dumps(dict(schema_of_model(model).mapping))
        read = msgspec.json.Decoder(plain.struct).decode
        accepted = 0
        for raw in {text.format(value) for text in TEXTS for value in VALUES}:
            try:
                ours = msgspec.structs.asdict(read(raw))
            except (ValueError, RecursionError):
                continue  # pydantic decides
            theirs = {"a": default, "schema": 1} | keyword_arguments(model.model_validate_json(raw, strict=True))
            assert repr(ours) == repr(theirs), raw
            accepted += 1
        assert accepted


class Colour(Enum):
    RED = "red"


@pytest.mark.parametrize(
    ("hint", "default"),
    [
        (Annotated[int, Field(ge=1)], NONE),
        (Annotated[int, Field(description="Some", gt=0)], NONE),
        (Annotated[int, "a word"], NONE),
        (int | str, NONE),
        (Literal[1], NONE),
        (bytes, NONE),
        (Colour, NONE),
        (BaseModel, NONE),
        (list[bytes], NONE),
        (dict[int, str], NONE),
        (tuple[int, ...], NONE),
        (str, Colour.RED),
        (list[str], []),
    ],
    ids=str,
)
def test_other_types_are_left_to_pydantic(hint: Any, default: Any) -> None:
    assert plain_arguments(read_signature(function(hint, default))) is None


def test_a_default_is_not_validated_and_not_shared() -> None:
    signature = read_signature(function(int, None))
    plain = plain_arguments(signature)
    assert plain is not None
    assert msgspec.structs.asdict(msgspec.json.decode(b"{}", type=plain.struct)) == {"a": None, "schema": 1}
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"a":null}', type=plain.struct)
    with pytest.raises(ValidationError):
        signature_model(signature).model_validate_json(b'{"a":null}', strict=True)
