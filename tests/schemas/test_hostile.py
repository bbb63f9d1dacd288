"""Schemas that are made to be expensive cost no more than others."""

import time
from contextlib import suppress
from typing import Any

import pytest

from ferrule.protocol.json_schema import JsonSchema
from ferrule.schemas.alias import PORTABLE_NAMES
from ferrule.schemas.sanitize import sanitize
from ferrule.schemas.strict import StrictError, to_strict
from ferrule.tools.argument_repair import repaired

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
