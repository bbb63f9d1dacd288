"""Strict mode: what it asks of a schema, what it cannot say, and the nulls that it forces."""

import json
from typing import Any

import pytest

from ferrule.protocol.json_schema import JsonSchema
from ferrule.schemas.strict import StrictError, drop_forced_nulls, to_strict

Json = Any

SEARCH = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "minLength": 1},
        "limit": {"type": "integer", "default": 10, "description": "At most."},
        "order": {"type": "string", "enum": ["up", "down"]},
        "filter": {"$ref": "#/$defs/Filter"},
        "either": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        "maybe": {"type": ["string", "null"]},
    },
    "required": ["query"],
    "$defs": {
        "Filter": {"type": "object", "properties": {"by": {"type": "string"}, "and": {"$ref": "#/$defs/Filter"}}}
    },
}


def strict(mapping: Json) -> Json:
    return to_strict(JsonSchema(mapping)).mapping


def with_parameter(schema: Json) -> Json:
    return {"type": "object", "properties": {"p": schema}, "required": ["p"]}


def test_every_object_is_closed_and_every_optional_property_may_be_null() -> None:
    assert strict(SEARCH) == {
        "type": "object",
        "properties": {
            "query": {"type": "string"},
            "limit": {"type": ["integer", "null"], "description": "At most. Default: 10"},
            "order": {"type": ["string", "null"], "enum": ["up", "down", None]},
            "filter": {"anyOf": [{"$ref": "#/$defs/Filter"}, {"type": "null"}]},
            "either": {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}]},
            "maybe": {"type": ["string", "null"]},
        },
        "required": ["query", "limit", "order", "filter", "either", "maybe"],
        "additionalProperties": False,
        "$defs": {
            "Filter": {
                "type": "object",
                "properties": {
                    "by": {"type": ["string", "null"]},
                    "and": {"anyOf": [{"$ref": "#/$defs/Filter"}, {"type": "null"}]},
                },
                "required": ["by", "and"],
                "additionalProperties": False,
            }
        },
    }


def test_strict_twice_is_strict_once_and_the_original_is_untouched() -> None:
    before = json.dumps(SEARCH)
    once = to_strict(JsonSchema(SEARCH))
    assert to_strict(once) == once
    assert json.dumps(SEARCH) == before


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "object", "description": "key/values"}, "no object with free names"),
        ({"type": "object", "additionalProperties": {"type": "string"}}, "no object with free names"),
        ({"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": True}, "free names"),
        ({"type": "object", "patternProperties": {"^x": {"type": "string"}}}, "no patternProperties"),
        ({"allOf": [{"type": "string"}, {"maxLength": 3}]}, "no allOf"),
        ({"type": "string", "not": {"const": "a"}}, "no not"),
        ({"type": "array"}, "any value"),
        ({"description": "anything"}, "any value|free names"),
        ({"$ref": "#/$defs/Gone"}, "leads nowhere"),
    ],
)
def test_b098_what_strict_mode_cannot_say_is_refused_with_its_place(schema: Json, reason: str) -> None:
    with pytest.raises(StrictError, match=reason) as refusal:
        strict(with_parameter(schema))
    assert ".p" in str(refusal.value) or "/p" in str(refusal.value)


def test_b098_a_free_root_is_refused_too() -> None:
    with pytest.raises(StrictError, match=r"^\$: strict mode has no object with free names"):
        strict({"type": "object"})
    assert strict({"type": "object", "properties": {}, "additionalProperties": False})["required"] == []


def test_forced_nulls_are_dropped_and_meant_ones_stay() -> None:
    schema = JsonSchema(SEARCH)
    value = {
        "query": "q",
        "limit": None,
        "order": None,
        "filter": {"by": None, "and": {"by": "x", "and": None}},
        "either": None,
        "maybe": None,
    }
    assert drop_forced_nulls(value, schema) == {"query": "q", "filter": {"and": {"by": "x"}}, "maybe": None}
    assert drop_forced_nulls({"query": None}, schema) == {"query": None}
    plain = {"query": "q", "limit": 3}
    assert drop_forced_nulls(plain, schema) is plain
