"""The five kinds of a schema."""

from ferrule.protocol.json_schema import (
    ArraySchema,
    BooleanSchema,
    JsonSchema,
    NumberSchema,
    ObjectSchema,
    SchemaVariant,
    StringSchema,
)

MAPPING = {
    "type": "object",
    "properties": {
        "flag": {"type": "boolean", "description": "f"},
        "text": {"type": "string"},
        "count": {"type": "number"},
        "list": {"type": "array", "items": {"type": "string"}, "description": "l"},
    },
    "required": ["flag"],
    "additionalProperties": {"type": "number"},
}

VARIANT = ObjectSchema(
    {
        "flag": JsonSchema({"type": "boolean", "description": "f"}),
        "text": JsonSchema({"type": "string"}),
        "count": JsonSchema({"type": "number"}),
        "list": JsonSchema.of(ArraySchema(JsonSchema({"type": "string"}), "l")),
    },
    ("flag",),
    JsonSchema({"type": "number"}),
)


def test_an_object_there_and_back() -> None:
    assert JsonSchema(MAPPING).view() == VARIANT
    assert JsonSchema.of(VARIANT) == JsonSchema(MAPPING)


def test_each_kind_there_and_back() -> None:
    text = JsonSchema.of(StringSchema())
    variants: list[SchemaVariant] = [BooleanSchema("b"), StringSchema("s"), NumberSchema("n"), ArraySchema(text, "a")]
    variants += [ObjectSchema({"x": text}, ("x",), closed) for closed in (None, False, text)]
    for variant in variants:
        assert JsonSchema.of(variant).view() == variant


def test_a_broken_schema_still_has_a_view() -> None:
    broken = {"type": "object", "properties": [1], "required": "a", "additionalProperties": 3}
    assert JsonSchema(broken).view() == ObjectSchema({})


def test_what_the_kinds_cannot_say_is_taken_for_the_nearest() -> None:
    assert JsonSchema({"type": "integer"}).view() == NumberSchema()
    assert JsonSchema({"type": ["null", "array"]}).view() == ArraySchema(JsonSchema({}))
    assert JsonSchema({"properties": {}}).view() == ObjectSchema({})
    assert JsonSchema({"enum": ["a"]}).view() == StringSchema()
    assert JsonSchema({"type": "object", "additionalProperties": False}).view() == ObjectSchema({}, None, False)
