"""Foreign schemas as servers send them, and what the model is told instead."""

import json
from typing import Any

import pytest

from ferrule.protocol.json_schema import JsonSchema
from ferrule.schemas.alias import PORTABLE_NAMES
from ferrule.schemas.sanitize import MAX_LEVELS, Sanitized, sanitize, sanitize_json_schema
from ferrule.schemas.type_words import TYPES, type_names
from ferrule.schemas.walk import schemas_below
from ferrule.tools.arguments import read_arguments
from ferrule.tools.foreign import ForeignValidator
from tests.compat.function_collections import lost

Json = Any

ANYTHING = {"type": ["string", "number", "boolean", "object", "array", "null"], "items": {}}


def told(mapping: Json) -> Json:
    return sanitize_json_schema(JsonSchema(mapping)).mapping


def parameter(schema: Json) -> Json:
    """What becomes of the schema of one parameter."""
    return told({"type": "object", "properties": {"p": schema}})["properties"]["p"]


def notes(mapping: Json) -> list[str]:
    return [str(note) for note in sanitize(JsonSchema(mapping), tool="srv.tool").notes]


def object_of(**properties: Json) -> Json:
    return {"type": "object", "properties": properties}


def test_b091_a_reference_that_leads_nowhere_degrades_its_place_only_and_names_tool_and_pointer() -> None:
    schema = object_of(good={"type": "string"}, bad={"$ref": "#/$defs/Missing"})
    assert told(schema) == object_of(good={"type": "string"}, bad=ANYTHING)
    assert notes(schema) == ["srv.tool: #/properties/bad: $ref '#/$defs/Missing' leads nowhere: anything is taken"]
    root = {"$ref": "#/$defs/Missing"}
    assert told(root) == {"type": "object", "properties": {}}
    assert notes(root)[0].startswith("srv.tool: #: $ref '#/$defs/Missing' leads nowhere")


@pytest.mark.parametrize("reference", ["https://example.invalid/schema.json", "other.json#/a", "#anchor", 7, None])
def test_b091_only_references_into_the_schema_itself_are_followed(reference: Json) -> None:
    schema = object_of(bad={"$ref": reference})
    assert told(schema) == object_of(bad=ANYTHING)
    assert len(notes(schema)) == 1


def test_b091_one_bad_tool_leaves_fourteen_usable() -> None:
    tools = [object_of(n={"type": "integer"})] * 13 + [{"$ref": "#/$defs/Gone"}, {"$ref": "#"}]
    schemas = [sanitize(JsonSchema(tool), tool=f"t{i}") for i, tool in enumerate(tools)]
    assert [bool(schema.notes) for schema in schemas] == [False] * 13 + [True, True]
    assert all(schema.schema.mapping["type"] == "object" for schema in schemas)


def test_b092_recursion_stays_a_reference() -> None:
    node = {"type": "object", "properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/N"}}}}
    clean = told({"$defs": {"N": node}, "$ref": "#/$defs/N"})
    assert clean == {**node, "$defs": {"N": node}}
    assert told(object_of(next={"$ref": "#"})) == object_of(next={"$ref": "#"})


def test_b092_definitions_that_are_nothing_but_each_other_are_cut() -> None:
    schema = {
        **object_of(x={"$ref": "#/$defs/A"}),
        "$defs": {"A": {"allOf": [{"$ref": "#/$defs/B"}]}, "B": {"allOf": [{"$ref": "#/$defs/A"}]}},
    }
    assert told(schema) == {**object_of(x={"$ref": "#/$defs/A"}), "$defs": {"A": {}}}
    assert "only refers to itself" in notes(schema)[0]
    assert told({"$ref": "#/$defs/A", "$defs": schema["$defs"]}) == {"type": "object", "properties": {}}


def test_b092_depth_is_bounded_and_the_result_is_json() -> None:
    deep: Json = {}
    for _ in range(5_000):
        deep = {"type": "object", "properties": {"a": deep}}
    clean, noted, _ = sanitize(JsonSchema(deep))
    assert clean.encoded.count(b"properties") == MAX_LEVELS + 1
    assert "too deep" in noted[0].text
    branches: Json = {"type": "object"}
    for _ in range(5_000):
        branches = {"anyOf": [branches, {"type": "object"}]}
    assert json.loads(sanitize_json_schema(JsonSchema(branches)).encoded)["type"] == "object"
    text = b'{"properties":{"a":' * 5_000 + b"{}" + b"}}" * 5_000
    assert told_from(text) == {"type": "object", "properties": {}}


def told_from(encoded: bytes) -> Json:
    return sanitize_json_schema(JsonSchema(encoded=encoded)).mapping


def test_b092_a_mapping_that_holds_itself_ends() -> None:
    loop: Json = {"type": "object", "properties": {}}
    loop["properties"] = {"a": loop, "b": loop}
    clean = sanitize_json_schema(JsonSchema(loop))
    assert len(clean.encoded) < 1_000_000


@pytest.mark.parametrize("encoded", [b"null", b"true", b"[]", b"{", b"\xff", b'"x"'])
def test_what_is_no_schema_at_all_takes_any_object(encoded: bytes) -> None:
    assert told_from(encoded) == {"type": "object", "properties": {}}
    assert len(sanitize(JsonSchema(encoded=encoded)).notes) == 1


def test_what_is_no_mapping_takes_any_object() -> None:
    assert told([1]) == {"type": "object", "properties": {}}


def test_b094_missing_and_union_types() -> None:
    schema = object_of(
        value={"description": "any", "default": None}, n={"type": "integer"}, s={"type": ["string", "null"]}
    )
    assert told(schema) == object_of(
        value={"description": "any", "default": None, **ANYTHING},
        n={"type": "integer"},
        s={"type": ["string", "null"]},
    )
    assert notes(schema) == []


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"properties": {"a": {"type": "string"}}}, "object"),
        ({"additionalProperties": {"type": "string"}}, "object"),
        ({"items": {"type": "string"}}, "array"),
        ({"prefixItems": [{"type": "string"}]}, "array"),
        ({"pattern": "^a"}, "string"),
        ({"minimum": 1}, "number"),
        ({"enum": ["a", "b"]}, "string"),
        ({"enum": [1, 2]}, "integer"),
        ({"enum": [1, 2.5]}, "number"),
        ({"enum": ["a", None]}, ["string", "null"]),
        ({"const": True}, "boolean"),
        ({"type": "INT"}, "integer"),
        ({"type": ["str", "none"]}, ["string", "null"]),
        ({"type": "string", "nullable": True}, ["string", "null"]),
    ],
)
def test_b094_types_are_inferred(schema: Json, kind: Json) -> None:
    assert parameter(schema)["type"] == kind


def test_b095_alternatives_stay_as_they_are() -> None:
    schema = object_of(v={"anyOf": [object_of(id={"type": "integer"}), {"type": "array", "items": {"type": "string"}}]})
    assert told(schema) == schema
    assert notes(schema) == []


def test_alternatives_at_the_root_are_offered_together() -> None:
    schema = {
        "oneOf": [
            {**object_of(a={"type": "string"}, n={"type": "integer"}), "required": ["n", "a"]},
            {**object_of(b={"type": "string"}, n={"type": "string"}), "required": ["n", "b"]},
        ]
    }
    assert told(schema) == {
        **object_of(a={"type": "string"}, n={"anyOf": [{"type": "integer"}, {"type": "string"}]}, b={"type": "string"}),
        "required": ["n"],
    }
    assert "oneOf are offered together" in notes(schema)[0]


def test_all_of_at_the_root_is_merged_without_loss() -> None:
    schema = {
        "allOf": [{"$ref": "#/definitions/Base"}, {**object_of(b={"type": "string"}), "required": ["b"]}],
        "definitions": {"Base": {**object_of(a={"type": "string"}), "required": ["a"]}},
    }
    assert told(schema) == {**object_of(a={"type": "string"}, b={"type": "string"}), "required": ["a", "b"]}
    assert notes(schema) == []


def test_b097_parameters_with_the_names_of_keywords() -> None:
    schema = {
        "type": "object",
        "properties": {
            "properties": {"type": "object"},
            "type": {"type": "string"},
            "required": {"type": "boolean"},
            "$ref": {"type": "string"},
            "$defs": {"type": "object", "properties": {"items": {"type": "string"}, "enum": {"type": "string"}}},
        },
        "patternProperties": {"type": {"type": "string"}},
        "dependentSchemas": {"$ref": {"required": ["type"]}},
    }
    assert told(schema) == schema
    assert notes(schema) == []


@pytest.mark.parametrize(
    "schema", [{"type": "object"}, {"type": "object", "properties": None}, {}, {"type": ["object", "null"]}]
)
def test_b100_a_tool_without_parameters(schema: Json) -> None:
    assert told(schema) == {"type": "object", "properties": {}}
    assert notes(schema) == []
    validator = ForeignValidator(JsonSchema(schema))
    assert read_arguments("", validator) == {}
    assert read_arguments('{"extra":1}', validator) == {"extra": 1}


def test_b101_enums_keep_every_member() -> None:
    assert parameter({"enum": [0, 1, 3], "type": "integer"}) == {"enum": [0, 1, 3], "type": "integer"}
    assert parameter({"enum": [1, "auto"], "description": "d"}) == {
        "anyOf": [{"type": "integer", "enum": [1]}, {"type": "string", "enum": ["auto"]}],
        "description": "d",
    }
    assert parameter({"type": "array", "items": {"type": "string", "enum": None}}) == {
        "type": "array",
        "items": {"type": "string"},
    }
    assert parameter({"const": "x"}) == {"type": "string", "enum": ["x"]}


def test_references_are_gathered_in_defs_and_the_rest_is_pruned() -> None:
    schema = {
        **object_of(
            a={"type": "string", "format": "uri", "contentMediaType": "text/x"},
            b={"$ref": "#/definitions/odd~1name"},
            c={"$ref": "#/properties/a"},
            d={"$ref": "#/$defs/A%20B"},
        ),
        "$schema": "http://json-schema.org/draft-07/schema#",
        "definitions": {"odd/name": {"type": "integer"}, "Unused": {"type": "string"}},
        "$defs": {"A B": {"type": "boolean"}},
    }
    clean = told(schema)
    assert clean["$defs"] == {
        "odd_1name": {"type": "integer"},
        "a": schema["properties"]["a"],
        "A_B": {"type": "boolean"},
    }
    assert {name: p.get("$ref") for name, p in clean["properties"].items()} == {
        "a": None,
        "b": "#/$defs/odd_1name",
        "c": "#/$defs/a",
        "d": "#/$defs/A_B",
    }
    assert "$schema" not in clean
    assert "definitions" not in clean


def test_older_drafts_are_rewritten() -> None:
    assert parameter({"type": "array", "items": [{"type": "string"}], "additionalItems": False}) == {
        "type": "array",
        "prefixItems": [{"type": "string"}],
        "items": {},
        "maxItems": 1,
    }
    assert parameter({"type": "integer", "minimum": 0, "exclusiveMinimum": True}) == {
        "type": "integer",
        "exclusiveMinimum": 0,
    }
    assert parameter({"type": "object", "dependencies": {"a": ["b"], "c": {"required": ["d"]}}}) == {
        "type": "object",
        "dependentRequired": {"a": ["b"]},
        "dependentSchemas": {"c": {"required": ["d"]}},
    }
    siblings = object_of(p={"$ref": "#/$defs/S", "type": "integer", "description": "d"})
    siblings |= {"$defs": {"S": {"type": "string"}}}
    assert told(siblings)["properties"]["p"] == {"$ref": "#/$defs/S", "type": "integer", "description": "d"}
    old = {**siblings, "$schema": "http://json-schema.org/draft-07/schema#"}
    assert told(old)["properties"]["p"] == {"$ref": "#/$defs/S", "description": "d"}


def test_a_single_alternative_stands_in_its_place() -> None:
    assert parameter({"allOf": [{"type": "string", "description": "inner"}], "description": "outer"}) == {
        "type": "string",
        "description": "outer",
    }
    closed = {"allOf": [object_of(a={"type": "string"})], "additionalProperties": False}
    assert "allOf" in parameter(closed)


def test_half_characters_do_not_reach_the_wire() -> None:
    clean = sanitize_json_schema(JsonSchema(object_of(a={"type": "string", "description": "x\ud800"})))
    assert json.loads(clean.encoded)["properties"]["a"]["description"] == "x\ufffd"


def test_the_original_is_not_touched() -> None:
    schema = {**object_of(p={"enum": [1, "a"]}, q={"type": "array"}), "definitions": {}, "oneOf": [{"required": ["p"]}]}
    before = json.dumps(schema)
    sanitize(JsonSchema(schema), property_names=PORTABLE_NAMES)
    assert json.dumps(schema) == before


ODD_NAMES = {
    "type": "object",
    "properties": {
        "uids[]": {"type": "array", "items": {"type": "integer"}},
        "projects.any": {"type": "string", "description": "Which"},
        "名前": {"type": "string"},
        "a b": {"type": "string"},
        "a_b": {
            "type": "object",
            "properties": {"a b": {"type": "integer"}, "free": {"type": "object"}},
            "required": ["a b"],
        },
    },
    "required": ["uids[]"],
}


def aliased() -> Sanitized:
    return sanitize(JsonSchema(ODD_NAMES), property_names=PORTABLE_NAMES)


def test_b106_names_stay_where_the_provider_takes_them() -> None:
    assert told(ODD_NAMES) == ODD_NAMES


def test_b106_refused_names_get_aliases_also_when_required_and_nested() -> None:
    clean, noted, aliases = aliased()
    assert aliases.names == {"uids[]": "uids", "projects.any": "projects_any", "名前": "field", "a b": "a_b_2"}
    properties = clean.mapping["properties"]
    assert list(properties) == ["uids", "projects_any", "field", "a_b_2", "a_b"]
    assert clean.mapping["required"] == ["uids"]
    assert properties["a_b"]["required"] == ["a_b_2"]
    assert properties["projects_any"]["description"] == "projects.any: Which"
    assert noted == ()
    assert all(PORTABLE_NAMES.fullmatch(name) for name in properties)


def test_b106_an_alias_is_never_another_name_that_the_schema_knows() -> None:
    schema = {**object_of(**{"a[]": {"type": "string"}, "a.": {"type": "string"}}), "required": ["a"]}
    assert sanitize(JsonSchema(schema), property_names=PORTABLE_NAMES).aliases.names == {"a[]": "a_2", "a.": "a_3"}


def test_b106_arguments_are_mapped_back_and_data_is_not() -> None:
    aliases = aliased().aliases
    own = {"uids[]": [1], "名前": "x", "a_b": {"a b": 2, "free": {"uids": 1, "a_b_2": 2}}}
    model = {"uids": [1], "field": "x", "a_b": {"a_b_2": 2, "free": {"uids": 1, "a_b_2": 2}}}
    assert aliases.to_model(own) == model
    assert aliases.from_model(model) == own


def test_b106_the_server_gets_its_own_names_and_the_model_reads_its_own() -> None:
    validator = ForeignValidator(JsonSchema(ODD_NAMES), aliased())
    assert read_arguments('{"uids":["1"],"a_b":{"a_b_2":2}}', validator) == {"uids[]": [1], "a_b": {"a b": 2}}
    with pytest.raises(Exception, match=r"\$\.uids: missing, expected an array; you sent \"uid\""):
        read_arguments('{"uid":[1]}', validator)


@pytest.mark.parametrize("bare", [{"type": "array"}, {"type": ["array", "string"]}, {"type": "list"}])
def test_m034_an_array_names_its_items(bare: Json) -> None:
    assert parameter(bare)["items"] == {}
    assert parameter({"anyOf": [bare, {"type": "null"}]})["anyOf"][0]["items"] == {}
    assert parameter({"type": "array", "items": bare})["items"]["items"] == {}
    assert told({"$defs": {"L": bare}, **object_of(p={"$ref": "#/$defs/L"})})["$defs"]["L"]["items"] == {}


@pytest.mark.parametrize("place", ["items", "raw", "never"])
def test_m037_a_schema_that_is_true_or_false_is_usable(place: str) -> None:
    schema = {"items": {"type": "array", "items": True}, "raw": True, "never": False}[place]
    clean = parameter(schema)
    assert all(isinstance(node, dict) for node in nodes(clean)) and notes(object_of(p=schema)) is not None
    validator = ForeignValidator(JsonSchema(object_of(p=schema, q={"type": "string"})))
    assert read_arguments('{"q":"x"}', validator) == {"q": "x"}
    if place != "never":
        assert read_arguments('{"p":[1,{"a":2}],"q":"x"}', validator) == {"p": [1, {"a": 2}], "q": "x"}


def test_m041_null_is_left_out_where_it_is_no_value() -> None:
    schema = object_of(n={"type": "integer"}, s={"type": "string"}, o={"anyOf": [{"type": "string"}, {"type": "null"}]})
    validator = ForeignValidator(JsonSchema(schema))
    assert read_arguments('{"n":null,"s":"x","o":null}', validator) == {"s": "x", "o": None}


def test_m035_doubles_in_an_enum_stand_once() -> None:
    assert parameter({"type": "string", "enum": ["GET", "GET", "PUT"]}) == {"type": "string", "enum": ["GET", "PUT"]}
    assert parameter({"enum": [1, 1, True]}) == {
        "anyOf": [{"type": "integer", "enum": [1]}, {"type": "boolean", "enum": [True]}]
    }


def test_m035_null_takes_no_foreign_members() -> None:
    schema = {"anyOf": [{"type": "string", "enum": ["A", "B"]}, {"type": "null", "enum": ["A", "B"]}]}
    assert parameter(schema) == {"anyOf": [{"type": "string", "enum": ["A", "B"]}, {"type": "null"}]}


@pytest.mark.parametrize("kind", ["array", ["array", "null"], "list", "Array"])
def test_m035_members_of_an_array_are_those_of_its_items(kind: Json) -> None:
    moved = parameter({"type": kind, "enum": [0, 1], "items": {"type": "integer"}})
    assert moved["items"] == {"type": "integer", "enum": [0, 1]} and "enum" not in moved
    assert parameter({"type": kind, "enum": ["a", "a"]})["items"] == {"enum": ["a"], "type": "string"}
    whole = {"type": "array", "enum": [[0], [1]], "items": {"type": "integer"}}
    assert parameter(whole) == whole


ROOT_TYPES = [
    "dict",
    "Dict",
    "Object",
    "OBJECT",
    "HashMap",
    "map",
    "struct",
    ["dict", "null"],
    "parameters",
    "array",
    7,
]


@pytest.mark.parametrize("kind", ROOT_TYPES)
def test_m039_a_root_of_any_type_keeps_its_properties(kind: Json) -> None:
    schema = {"type": kind, "properties": {"a": {"type": "String"}, "b": {"type": "dict[str, int]"}}, "required": ["a"]}
    assert told(schema) == {
        "type": "object",
        "properties": {"a": {"type": "string"}, "b": {"type": "object"}},
        "required": ["a"],
    }
    free = {"type": "dict", "additionalProperties": {"type": "string"}}
    assert told(free) == {"type": "object", "properties": {}, "additionalProperties": {"type": "string"}}


@pytest.mark.parametrize("kind", ["int[]", "String[]", "dict[]"])
def test_m039_a_type_with_brackets_is_an_array(kind: str) -> None:
    assert parameter({"type": kind})["type"] == "array"


@pytest.mark.parametrize(
    ("kind", "meant"),
    [
        ("std::map<std::string, int>", "object"),
        ("std::map<>", "object"),
        ("std::vector<std::map<std::string, int>>", "array"),
        ("typing.Dict[str, int]", "object"),
        ("collections.abc.Sequence[str]", "array"),
        ("java.util.List<String>", "array"),
        ("Optional[str]", ["string", "null"]),
        ("typing.Optional[typing.List[int]]", ["array", "null"]),
        ("Union[int, str, None]", ["integer", "string", "null"]),
        ("int | None", ["integer", "null"]),
        ("string?", ["string", "null"]),
        ("dict[str, int | None]", "object"),
        ("std::optional<double>", ["number", "null"]),
        ("Annotated[float, Gt(0)]", "number"),
        ("const unsigned int", "integer"),
        ("array of strings", "array"),
        ("Map.Entry", None),
        ("any", None),
        ("Optional", "null"),
        ("optional[" * 10_000, None),
        ("[]" * 50, "array"),
        ("?" * 100, "null"),
        ("", None),
    ],
)
def test_m039_a_type_word_of_any_language_keeps_its_kind(kind: str, meant: Json) -> None:
    assert type_names(kind) == ([] if meant is None else [meant] if isinstance(meant, str) else meant)
    below = parameter({"type": "array", "items": {"type": kind, "properties": {"a": {"type": kind}}}})["items"]
    if meant is not None:
        assert below["type"] == below["properties"]["a"]["type"] == meant


COLLECTION: list[Json] = [
    {"type": "dict", "properties": {"base": {"type": "integer"}, "unit": {"type": "string", "default": "m"}}},
    {"type": "dict", "properties": {"rate": {"type": "float"}, "on": {"type": "tuple", "items": {"type": "float"}}}},
    {
        "type": "dict",
        "properties": {"db": {"type": "HashMap"}, "ids": {"type": "ArrayList", "items": {"type": "long"}}},
    },
    {
        "type": "dict",
        "properties": {"q": {"type": "dict", "properties": {"a": {"type": "any"}, "b": {"type": "Bigint"}}}},
    },
    {
        "type": "dict",
        "properties": {"x": {"type": "array", "items": {"type": "dict", "properties": {"y": {"type": "Any"}}}}},
    },
    {"type": "dict", "properties": {"type": {"type": "string", "enum": ["a"]}, "required": {"type": "Boolean"}}},
    {"type": "dict", "properties": {"items": {"type": "string"}, "properties": {"type": "dict", "properties": {}}}},
]
"""The shapes of a public collection of functions: Python, Java and JavaScript types at the root and below."""


@pytest.mark.parametrize("schema", COLLECTION)
def test_m039_no_property_of_a_public_collection_is_lost(schema: Json) -> None:
    assert lost(schema) == []
    assert all(set(names_of(node)) <= TYPES for node in nodes(told(schema)))


def nodes(node: Json) -> list[Json]:
    return [node, *(below for one in schemas_below(node) for below in nodes(one))]


def names_of(node: Json) -> list[str]:
    named = node.get("type", [])
    return named if isinstance(named, list) else [named]
