"""Schemas that are made to be expensive cost no more than others."""

import time
from contextlib import nullcontext, suppress
from typing import Any

import pytest

from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.json_schema import JsonSchema
from ferrule.schemas.alias import PORTABLE_NAMES
from ferrule.schemas.sanitize import sanitize
from ferrule.schemas.strict import StrictError, to_strict
from ferrule.tools.argument_repair import repaired
from ferrule.tools.arguments import read_arguments
from ferrule.tools.foreign import ForeignValidator

Json = Any

SECONDS = 10.0
"""Far above what any of these takes, far below what one exponential step more would."""


def doubling(keyword: str, levels: int) -> Json:
    """Definitions that each name the next one twice: few bytes, 2 to the power of `levels` parts."""
    names = {f"A{i}": {keyword: [{"$ref": f"#/$defs/A{i + 1}"}] * 2} for i in range(levels)}
    return {**names, f"A{levels}": {"type": "object"}}


def chain(length: int) -> Json:
    return {**{f"A{i}": {"$ref": f"#/$defs/A{i + 1}"} for i in range(length)}, f"A{length}": {"type": "integer"}}


def nested(keyword: str, levels: int) -> Json:
    schema: Json = {"type": "string"}
    for _ in range(levels):
        schema = {keyword: [schema]}
    return schema


PARAMETER = {"$ref": "#/$defs/A0"}

SCHEMAS: list[Json] = [
    *({"$ref": "#/$defs/A0", "$defs": doubling(keyword, 60)} for keyword in ("anyOf", "oneOf", "allOf")),
    *({"type": "object", "properties": {"p": PARAMETER}, "$defs": doubling(k, 60)} for k in ("anyOf", "allOf")),
    {"type": "object", "properties": {"p": PARAMETER}, "$defs": chain(1_200)},
    {"$ref": "#/$defs/A0", "$defs": chain(1_200)},
    *({"type": "object", "properties": {"p": nested(keyword, 5_000)}} for keyword in ("anyOf", "oneOf", "allOf")),
    nested("allOf", 5_000),
    {"type": "object", "properties": {f"p{i}[]": {"anyOf": [PARAMETER] * 3} for i in range(3_000)}, "$defs": chain(3)},
    {"enum": list(range(50_000))},
]


@pytest.mark.parametrize("schema", SCHEMAS, ids=range(len(SCHEMAS)))
def test_hostile_schemas_end_soon(schema: Json) -> None:
    start = time.process_time()
    clean, notes, _ = sanitize(JsonSchema(schema), property_names=PORTABLE_NAMES)
    assert clean.mapping["type"] == "object"
    assert len(notes) <= 20
    repaired({"p": "[1]", "p0": "1"}, clean)
    with suppress(StrictError):
        to_strict(clean)
    assert time.process_time() - start < SECONDS


def ways(into: Json) -> Json:
    """A schema with 3 to the power of 30 ways to one definition; `into` makes a reference of each step."""
    names = {f"A{i}": into({"$ref": f"#/$defs/A{i + 1}"}) for i in range(30)}
    return {"type": "object", "properties": {"p": PARAMETER}, "$defs": {**names, "A30": {"type": "string"}}}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (ways(lambda step: {"anyOf": [step] * 3}), "5"),
        (ways(lambda step: {"not": {"oneOf": [step, step]}}), "5"),
        (ways(lambda step: {"if": step, "then": step, "else": step}), "5"),
        (ways(lambda step: {"anyOf": [{"items": step}, {"prefixItems": [step]}]}), "[" * 30 + "5" + "]" * 30),
        (ways(lambda step: {"properties": {"a": step}, "additionalProperties": step, "patternProperties": {"": step}}),
         '{"a":' * 30 + "5" + "}" * 30),
        ({"$defs": {"A0": {"$anchor": "a", "anyOf": [{"$ref": "#a"}] * 2}}, "properties": {"p": PARAMETER}}, "5"),
    ],
    ids=range(6),
)  # fmt: skip
def test_arguments_are_not_validated_for_ever(schema: Json, value: str) -> None:
    start = time.process_time()
    found = read_arguments(f'{{"p":{value}}}', ForeignValidator(JsonSchema(schema)))
    assert "p" in found
    assert time.process_time() - start < SECONDS


def test_recursive_schemas_are_validated() -> None:
    tree: Json = {"properties": {name: {"$ref": "#"} for name in "abcdef"} | {"n": {"type": "integer"}}}
    validator = ForeignValidator(JsonSchema({"type": "object"} | tree))
    for value, right in (("5", True), ('"x"', False)):
        text = '{"a":{"b":{"c":' * 5 + f'{{"n":{value}}}' + "}}}" * 5
        with nullcontext() if right else pytest.raises(RespondToModel, match="n: expected an integer"):
            read_arguments(text, validator)
