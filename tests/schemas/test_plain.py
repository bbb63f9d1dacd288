"""Schemas for providers that take a part of JSON Schema only."""

from typing import Any

import pytest

from ferrule.model.adapt import adapt_tools
from ferrule.model.profiles import load_profiles
from ferrule.protocol.json_schema import JsonSchema
from ferrule.protocol.specs import ResponsesApiTool
from ferrule.schemas.plain import plain_schema
from ferrule.schemas.sanitize import sanitize

Json = Any
DEFS = {"A": {"type": "object", "properties": {"x": {"type": "string"}}}, "B": {"type": "string", "description": "b"}}


def plain(schema: Json) -> Json:
    root = {"type": "object", "properties": {"p": schema, "a": {"$ref": "#/$defs/A"}}, "$defs": DEFS}
    return plain_schema(sanitize(JsonSchema(root)).schema).mapping["properties"]["p"]


def test_m038_nothing_but_a_description_stands_beside_a_reference() -> None:
    assert plain({"$ref": "#/$defs/A", "type": "object", "description": "dd", "default": {}}) == {
        "$ref": "#/$defs/A",
        "description": "dd",
    }
    assert plain({"$ref": "#/$defs/B", "description": "dd"}) == {"$ref": "#/$defs/B"}


def test_m038_in_definitions_and_items_too() -> None:
    root = {
        "type": "object",
        "properties": {"p": {"type": "array", "items": {"$ref": "#/$defs/C", "minLength": 1}}},
        "$defs": {"C": {"$ref": "#/$defs/D", "type": "string"}, "D": {"type": "string"}},
    }
    told = plain_schema(sanitize(JsonSchema(root)).schema).mapping
    assert told["properties"]["p"]["items"] == {"$ref": "#/$defs/C"}
    assert told["$defs"]["C"] == {"$ref": "#/$defs/D"}


@pytest.mark.parametrize("keyword", ["anyOf", "oneOf"])
def test_m036_a_type_beside_alternatives_goes_into_them(keyword: str) -> None:
    schema = {"type": "string", "description": "d", keyword: [{"minLength": 3}, {"type": "null"}]}
    assert plain(schema) == {"description": "d", "anyOf": [{"type": "string", "minLength": 3}, {"type": "null"}]}
    told = {"type": "integer", "minimum": 0, keyword: [{"description": "a"}, {"maximum": 3}]}
    assert plain(told)["anyOf"] == [
        {"type": "integer", "minimum": 0, "description": "a"},
        {"type": "integer", "minimum": 0, "maximum": 3},
    ]
    a, b = {"a": {"type": "string"}}, {"b": {"type": "string"}}
    objects = {"type": "object", "properties": a, keyword: [{"required": ["a"]}, {"properties": b, "required": ["b"]}]}
    assert plain(objects)["anyOf"] == [
        {"type": "object", "properties": a, "required": ["a"]},
        {"type": "object", "properties": {**a, **b}, "required": ["b"]},
    ]


def test_m036_every_schema_has_one_type() -> None:
    assert plain({"type": ["string", "null"], "enum": ["a", None]}) == {
        "anyOf": [{"type": "string", "enum": ["a"]}, {"type": "null"}]
    }
    assert plain({"anyOf": [{"type": "integer"}, {"enum": ["all"]}]}) == {
        "anyOf": [{"type": "integer"}, {"type": "string", "enum": ["all"]}]
    }
    assert {branch["type"] for branch in plain({"description": "any"})["anyOf"]} >= {"string", "object", "array"}
    assert plain({"type": "array"})["items"]["anyOf"]


def test_m038_a_tool_goes_to_moonshot_in_the_plain_form_and_to_others_as_it_is() -> None:
    parameters = sanitize(
        JsonSchema({"type": "object", "properties": {"a": {"$ref": "#/$defs/A", "type": "object"}}, "$defs": DEFS})
    ).schema
    tool = ResponsesApiTool(name="f", description="d", parameters=parameters)
    providers = load_profiles().providers
    sent = {name: adapt_tools([tool], providers[name], "chat").tools[0].json for name in ("moonshot", "generic")}
    assert b'"a":{"$ref":"#/$defs/A"}' in sent["moonshot"]
    assert b'"a":{"$ref":"#/$defs/A","type":"object"}' in sent["generic"]


def test_a_plain_schema_stays_the_same_object() -> None:
    schema = JsonSchema({"type": "object", "properties": {"a": {"type": "string"}}})
    assert plain_schema(schema) is schema


def test_a_plain_form_without_end_is_not_made() -> None:
    node: Json = {"type": "string"}
    for _ in range(12):
        node = {"type": "object", "properties": {"p": node}, "anyOf": [{"title": str(n)} for n in range(8)]}
    schema = JsonSchema({"type": "object", "properties": {"p": node}})
    assert plain_schema(schema) is schema
