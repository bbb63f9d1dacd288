"""Whatever a server sends: sanitising keeps what is accepted, or says what it gave up; strict twice is strict once."""

import json
import os
import subprocess
import sys

import jsonschema_rs
import pytest

from ferrule.protocol.json_schema import JsonSchema
from ferrule.schemas.alias import PORTABLE_NAMES
from ferrule.schemas.sanitize import sanitize
from ferrule.schemas.strict import StrictError, drop_forced_nulls, to_strict
from tests.schemas.generate import Json, Maker

SEEDS = range(int(os.environ.get("FERRULE_FUZZ_EXAMPLES", "400")))


def accepts(schema: Json, value: Json) -> bool:
    return jsonschema_rs.validator_for(schema, offline=True).is_valid(value)


def test_sanitising_keeps_the_accepted_arguments_or_says_what_it_gave_up() -> None:
    silent = accepted = 0
    for seed in SEEDS:
        maker = Maker(seed)
        root = maker.root()
        before = json.dumps(root)
        clean, notes, _ = sanitize(JsonSchema(root), tool="t")
        assert json.dumps(root) == before
        assert json.loads(clean.encoded) == clean.mapping
        assert clean.mapping["type"] == "object"
        assert isinstance(clean.mapping["properties"], dict)
        for value in [] if notes else [maker.arguments() for _ in range(8)]:
            expected = accepts(root, value)
            accepted += expected
            assert accepts(clean.mapping, value) == expected, (seed, root, clean.mapping, value)
        silent += not notes
    assert silent > len(SEEDS) / 4
    assert accepted > len(SEEDS) / 2


def test_sanitising_twice_is_sanitising_once() -> None:
    for seed in SEEDS:
        once = sanitize(JsonSchema(Maker(seed).root())).schema
        assert sanitize(once).schema == once, (seed, once, sanitize(once))


def test_the_bytes_are_the_same_in_every_process() -> None:
    """Providers cache prompts by their bytes; the order of a set must not show."""
    annotated = {"$ref": "#", "description": "d", "title": "t", "default": 1, "examples": [], "nullable": True}
    wrong = {"type": "string", "title": 1, "description": 2, "format": 3, "pattern": 4, "minLength": -1}
    schema = {"type": "object", "properties": {"a": annotated, "b": wrong}}
    program = (
        "from ferrule.protocol.json_schema import JsonSchema\n"
        "from ferrule.schemas.sanitize import sanitize\n"
        f"told = sanitize(JsonSchema({schema!r}))\n"
        "print(told.schema.encoded, told.notes)\n"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    ]
    assert runs[0] == runs[1]


def test_what_is_no_schema_at_all_still_ends_as_one() -> None:
    for seed in SEEDS:
        mapping = Maker(seed).value(4)
        clean = sanitize(JsonSchema(encoded=json.dumps(mapping).encode())).schema
        assert clean.mapping["type"] == "object"
        for below in (mapping, {"p": mapping}):
            wrapped = sanitize(JsonSchema({"type": "object", "properties": below})).schema
            jsonschema_rs.validator_for(dict(wrapped.mapping), offline=True)


KEYWORDS = [
    *("type", "enum", "const", "required", "properties", "patternProperties", "additionalProperties", "items"),
    *("prefixItems", "additionalItems", "contains", "minContains", "maxContains", "uniqueItems", "minItems"),
    *("minLength", "maxLength", "pattern", "format", "minimum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    *("anyOf", "oneOf", "allOf", "not", "if", "then", "else", "dependentRequired", "dependentSchemas", "dependencies"),
    *("propertyNames", "unevaluatedItems", "unevaluatedProperties", "minProperties", "description", "title", "default"),
    *("examples", "deprecated", "readOnly", "nullable", "$ref", "$id", "$defs", "definitions", "$schema", "$comment"),
]


def test_any_value_of_any_keyword_still_ends_as_a_schema() -> None:
    for seed in SEEDS:
        maker = Maker(seed)
        wild = {keyword: maker.value() for keyword in maker.some(KEYWORDS, 4)}
        for schema in (wild, {"type": "object", "properties": {"p": wild}}):
            clean = sanitize(JsonSchema(schema)).schema.mapping
            try:
                jsonschema_rs.validator_for(dict(clean), offline=True)
            except (jsonschema_rs.ValidationError, ValueError) as error:
                pytest.fail(f"{seed}: {schema} became {clean}: {error}")


def test_aliases_lead_back() -> None:
    for seed in SEEDS:
        maker = Maker(seed)
        odd, value = odd_names(maker.root()), odd_names(maker.arguments())
        clean, notes, aliases = sanitize(JsonSchema(odd), property_names=PORTABLE_NAMES)
        there = aliases.to_model(value)
        assert aliases.from_model(there) == value, seed
        if not notes:
            assert accepts(clean.mapping, there) == accepts(odd, value), (seed, odd, clean, value)


def odd_names(value: Json) -> Json:
    text = json.dumps(value).replace('"a":', '"a[]":').replace('"b":', '"b c":')
    return json.loads(text.replace("#/properties/a", "#/properties/a%5B%5D"))


def test_strict_twice_is_strict_once() -> None:
    converted = 0
    for seed in SEEDS:
        maker = Maker(seed)
        for schema in (maker.root(), maker.closed_object()):
            try:
                once = to_strict(JsonSchema(schema))
            except StrictError:
                continue
            converted += 1
            assert to_strict(once) == once, (seed, schema)
    assert converted > len(SEEDS)


@pytest.mark.parametrize("nulls", [0.0, 0.5])
def test_what_strict_mode_lets_through_is_right_without_its_nulls(nulls: float) -> None:
    accepted = 0
    for seed in SEEDS:
        maker = Maker(seed)
        root = maker.closed_object()
        strict = to_strict(JsonSchema(root))
        for _ in range(5):
            value = {name: None if maker.chance(nulls) else maker.value(1) for name in root["properties"]}
            if accepts(strict.mapping, value):
                accepted += 1
                assert accepts(root, drop_forced_nulls(value, JsonSchema(root))), (seed, root, value)
    assert accepted > len(SEEDS) / 2
