"""Any text as arguments ends in a value or in one error, and what is right as it stands is never changed."""

import json
import os
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.json_schema import JsonSchema
from ferrule.schemas.writer import schema_of_model
from ferrule.tools.arguments import ModelValidator, Validator, decode_arguments, read_arguments
from ferrule.tools.foreign import ForeignValidator
from tests.schemas.generate import Maker

PREFIX = "failed to parse function arguments: "
SEEDS = range(int(os.environ.get("FERRULE_FUZZ_EXAMPLES", "400")))


class Node(BaseModel):
    """Every kind of field, and itself."""

    a: str
    b: int = 0
    c: list["Node"] = []
    type: bool | None = None
    items: dict[str, float] = {}


VALIDATORS: list[Validator[object]] = [
    ModelValidator(Node, schema_of_model(Node)),
    ForeignValidator(schema_of_model(Node)),
]

DAMAGE: list[Callable[[str], str]] = [
    lambda text: text,
    lambda text: text[: len(text) // 2],
    lambda text: text + text,
    lambda text: f"```json\n{text}\n```",
    json.dumps,
    lambda text: json.dumps({"a": "", "c": text}),
    lambda text: text.replace('"', "'"),
    lambda text: text.replace(" ", "\n\t"),
]


def ends_well(raw: str | bytes, validator: Validator[object]) -> bool:
    """Read `raw`; whether it was taken. A refusal must be short and fit for the wire."""
    try:
        read_arguments(raw, validator)
    except RespondToModel as error:
        text = str(error)
        text.encode()
        if not text.startswith(PREFIX) or text.count("\n") > 1 or len(text) > 1_000:
            pytest.fail(f"{raw!r}: {text}")
        return False
    return True


@settings(deadline=None, max_examples=200)
@given(st.one_of(st.text(), st.binary()))
def test_any_text_ends_in_a_value_or_one_error(raw: str | bytes) -> None:
    for validator in VALIDATORS:
        ends_well(raw, validator)


@pytest.mark.parametrize(
    "raw", ["[" * 100_000, '{"a":' * 100_000, '"\\ud800"', '{"a":"b","c":"' + "[" * 100_000 + '"}']
)
def test_hostile_text_ends_in_one_error(raw: str) -> None:
    assert not any(ends_well(raw, validator) for validator in VALIDATORS)


def test_damaged_arguments_end_in_a_value_or_one_error() -> None:
    taken = 0
    for seed in SEEDS:
        maker = Maker(seed)
        raw = maker.random.choice(DAMAGE)(json.dumps({"a": "x", **maker.arguments()}))
        taken += sum(ends_well(raw, validator) for validator in VALIDATORS)
    assert 0 < taken < 2 * len(SEEDS)


def test_what_is_right_as_it_stands_is_never_changed() -> None:
    right = 0
    for seed in SEEDS:
        maker = Maker(seed)
        validator = ForeignValidator(JsonSchema(maker.root()))
        value = maker.arguments()
        raw = json.dumps(value)
        try:
            assert validator.strict(raw) == value
        except validator.refusal:
            continue
        right += 1
        assert read_arguments(raw, validator) == value, seed
        assert decode_arguments(raw, validator) == value, seed
    assert right > len(SEEDS) / 10


def test_a_refusal_by_a_foreign_schema_always_names_a_path() -> None:
    for seed in SEEDS:
        maker = Maker(seed)
        validator = ForeignValidator(JsonSchema(maker.root()))
        try:
            read_arguments(json.dumps(maker.arguments()), validator)
        except RespondToModel as error:
            text = str(error).removeprefix(PREFIX)
            if not text.startswith("$") or "None" in text:
                pytest.fail(f"{seed}: {text}")


def test_a_model_survives_double_encoding_of_everything() -> None:
    node = Node(a="1", b=-3, c=[Node(a="[]", items={"x": 0.5}), Node(a="", type=False)], items={"y": 2.0})
    plain = node.model_dump(mode="json")
    once = plain | {"c": json.dumps([json.dumps(child) for child in plain["c"]]), "b": "-3", "items": {"y": "2"}}
    assert read_arguments(json.dumps(json.dumps(once)), VALIDATORS[0]) == node
