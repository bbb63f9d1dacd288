"""What a model's argument text becomes."""

import dataclasses
import json
import socket
from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec
import pytest
from pydantic import BaseModel, ConfigDict, Field, field_validator

from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.json_schema import JsonSchema
from ferrule.schemas.writer import schema_of_model
from ferrule.tools.arguments import (
    ModelValidator,
    StructValidator,
    Validator,
    decode_arguments,
    read_arguments,
    validate_value,
)
from ferrule.tools.foreign import ForeignValidator


class Step(BaseModel):
    """One step."""

    name: str
    weight: float = 1.0


class Read(BaseModel):
    """The arguments of most of these calls."""

    model_config = ConfigDict(extra="ignore")

    path: str
    offset: Annotated[int, Field(ge=1)] = 1
    limit: int | None = None
    until: int | None = 7
    either: int | str = 0
    tty: bool = False
    mode: Literal["slice", "indentation"] = "slice"
    tags: list[str] = []
    steps: list[Step] = []
    extra: dict[str, int] = {}

    @field_validator("path")
    @classmethod
    def _not_empty(cls, path: str) -> str:
        if path == "":
            raise ValueError("path is empty")
        return path


class Nothing(BaseModel):
    """A tool without arguments."""


class ReadStruct(msgspec.Struct):
    """The same as a Struct, in short."""

    path: str
    offset: int = 1
    tty: bool = False
    tags: list[str] = []


@dataclasses.dataclass
class ReadData:
    """The same as a dataclass, in short."""

    path: str
    offset: int = 1
    tty: bool = False
    tags: list[str] = dataclasses.field(default_factory=list)


READ = ModelValidator(Read, schema_of_model(Read))
NOTHING = ModelValidator(Nothing, schema_of_model(Nothing))
FOREIGN = ForeignValidator(schema_of_model(Read))

PREFIX = "failed to parse function arguments: "


def read(raw: str) -> Read:
    return read_arguments(raw, READ)


def refusal(raw: str, validator: Validator[Any] = READ) -> str:
    with pytest.raises(RespondToModel) as caught:
        read_arguments(raw, validator)
    text = str(caught.value)
    assert text.startswith(PREFIX)
    assert text.count("\n") <= 1
    return text.removeprefix(PREFIX)


@pytest.mark.parametrize("raw", ["", "   ", "\n", "{}"])
def test_b062_empty_text_is_an_empty_object_and_the_schema_decides(raw: str) -> None:
    assert read_arguments(raw, NOTHING) == Nothing()
    assert decode_arguments(raw, NOTHING) == {}
    assert refusal(raw) == "$.path: missing, expected a string"


def test_b064_two_objects_in_one_text_are_refused() -> None:
    text = refusal('{"path":"ls"}{"path":"pwd"}')
    assert text == 'more than one JSON value, the second from line 1 column 14, near \'{"path":"pwd"}\''


@pytest.mark.parametrize(
    "raw", ['```json\n{"path":"a"}\n```', '```\n{"path":"a"}```', ' ```JSON\r\n{"path":"a"}\r\n``` ']
)
def test_b065_a_fence_is_taken_off(raw: str) -> None:
    assert read(raw) == Read(path="a")


def test_b065_what_is_in_a_fence_is_never_replaced() -> None:
    assert "near 'nonsense'" in refusal("```json\nnonsense\n```")
    assert "near '```json" in refusal('```json\n{"path":"a"}')


def test_b067_scalars_as_text_where_the_schema_takes_no_text() -> None:
    assert read('{"path":"a","offset":"10","limit":"5"}') == Read(path="a", offset=10, limit=5)
    assert read('{"path":"a","tty":"true"}').tty is True
    assert read('{"path":"a","tty":"False"}').tty is False
    assert read('{"path":"a","until":"null"}').until is None
    assert read('{"path":"a","offset":10.0}').offset == 10
    assert read('{"path":"a","steps":[{"name":"n","weight":"0.5"}]}').steps[0].weight == 0.5
    assert read('{"path":"a","extra":{"x":"3"}}').extra == {"x": 3}


def test_b067_what_is_not_certain_is_refused_by_name_and_type() -> None:
    assert refusal('{"path":"a","limit":"ten"}') == '$.limit: expected an integer, got "ten"'
    assert refusal('{"path":"a","tty":"yes"}') == '$.tty: expected true or false, got "yes"'
    assert refusal('{"path":"a","tty":1}') == "$.tty: expected true or false, got 1"
    assert refusal('{"path":"a","offset":1.5}') == "$.offset: expected an integer, got 1.5"
    assert refusal('{"path":"a","tags":"one"}') == '$.tags: expected an array, got "one"'
    assert refusal('{"path":5}') == "$.path: expected a string, got 5"


def test_b067_text_stays_text() -> None:
    assert read('{"path":"10","tags":["true","{}","[1]"]}') == Read(path="10", tags=["true", "{}", "[1]"])
    assert read('{"path":"{\\"a\\":1}","offset":"2"}').path == '{"a":1}'
    assert read('{"path":"a","either":"12","offset":"2"}').either == "12"


@pytest.mark.parametrize("raw", ['{"path":"echo', '{"path":"a"', '{"path":', '{"path":"a","tags":["b"', "{"])
def test_b068_a_truncated_object_is_never_completed(raw: str) -> None:
    assert "cut off?" in refusal(raw)


def test_b083_raw_control_characters_are_kept() -> None:
    assert read('{"path":"echo a\necho b\tc"}').path == "echo a\necho b\tc"


@pytest.mark.parametrize(
    "raw", ['{"path":"a",}', '{"tty":True}', '{"path":None}', '{"path":"it\\\'s"}', "{'path':'a'}", "path"]
)
def test_b083_other_damage_is_refused_with_its_place(raw: str) -> None:
    text = refusal(raw)
    assert "line 1 column" in text
    assert "near" in text


def test_double_encoding_as_a_whole_and_nested() -> None:
    assert read('"{\\"path\\":\\"a\\"}"') == Read(path="a")
    assert read('{"path":"a","steps":"[{\\"name\\":\\"n\\"}]"}').steps == [Step(name="n")]
    assert read('{"path":"a","steps":["{\\"name\\":\\"n\\"}"]}').steps == [Step(name="n")]
    assert read('{"path":"a","extra":"{\\"x\\": 1}"}').extra == {"x": 1}
    assert refusal('"hello"') == '$: expected an object, got "hello"'


@pytest.mark.parametrize("raw", ["[]", "3", "null", "true", '"{}x"'])
def test_only_an_object_is_taken(raw: str) -> None:
    assert refusal(raw).startswith("$: expected an object, got ")


def test_null_for_an_optional_property_is_the_property_left_out() -> None:
    assert read('{"path":"a","offset":null,"tty":null,"limit":null}') == Read(path="a")
    assert refusal('{"path":null}') == "$.path: expected a string, got null"


def test_the_nearest_name_and_value_are_told() -> None:
    assert refusal('{"file_path":"a"}') == '$.path: missing, expected a string; you sent "file_path"'
    wrong = '$.mode: expected one of "slice", "indentation", got "slices"; did you mean "slice"?'
    assert refusal('{"path":"a","mode":"slices"}') == wrong


def test_alternatives_of_an_enum_are_told() -> None:
    class Mixed(BaseModel):
        either: Literal["low", "high"] | int | None = 3

    validator = ModelValidator(Mixed, schema_of_model(Mixed))
    assert refusal('{"either":"hi"}', validator) == (
        '$.either: expected one of "low", "high" or an integer or null, got "hi"; did you mean "high"?'
    )


def test_a_refusal_stays_short_whatever_it_quotes() -> None:
    class Wordy(BaseModel):
        a: str

        @field_validator("a")
        @classmethod
        def _refuse(cls, a: str) -> str:
            raise ValueError("first line\nsecond line " + "x" * 5_000)

    text = refusal(f'{{"a":"{"y" * 5_000}"}}', ModelValidator(Wordy, schema_of_model(Wordy)))
    assert text.startswith("$.a: first line second line xxx")
    assert len(text) < 500


def test_limits_and_own_checks_are_told() -> None:
    assert refusal('{"path":"a","offset":0}') == "$.offset: must be greater than or equal to 1, got 0"
    assert refusal('{"path":""}') == '$.path: path is empty, got ""'
    text = refusal('{"offset":"x","tty":"y","steps":[{}]}')
    assert text == '$.path: missing, expected a string\n$.offset: expected an integer, got "x" (and 2 more)'


def test_odd_paths_are_quoted() -> None:
    assert refusal('{"path":"a","extra":{"a b":"x"}}') == '$.extra["a b"]: expected an integer, got "x"'
    assert refusal('{"path":"a","steps":[{"name":"n"},{"name":3}]}') == "$.steps[1].name: expected a string, got 3"


def test_unknown_fields_are_ignored_where_the_model_ignores_them() -> None:
    assert read('{"path":"a","colour":"red"}') == Read(path="a")


@pytest.mark.parametrize(
    "raw",
    [
        '{"path":"\\ud800"}',
        '{"path":"a","limit":1e999}',
        '{"path":"a","limit":NaN}',
        '{"path":"a","limit":' + "9" * 5000 + "}",
        "[" * 100_000,
        '{"path":' + "[" * 300 + "]" * 300 + "}",
        "\ud800",
    ],
)
def test_every_other_failure_is_one_error(raw: str) -> None:
    assert refusal(raw)


def test_bytes_that_are_no_text_are_one_error() -> None:
    with pytest.raises(RespondToModel, match=r"byte 9 is not UTF-8"):
        read_arguments(b'{"path":"\xff"}', READ)


def test_what_is_right_as_it_stands_reaches_hooks_untouched() -> None:
    assert decode_arguments('{"path":"a","limit":null}', READ) == {"path": "a", "limit": None}


def test_hooks_see_the_value_that_will_be_validated() -> None:
    value = decode_arguments('{"path":"a","steps":"[{\\"name\\":\\"n\\"}]","offset":"2"}', READ)
    assert value == {"path": "a", "steps": [{"name": "n"}], "offset": 2}
    value["offset"] = "3"
    assert validate_value(value, READ) == Read(path="a", steps=[Step(name="n")], offset=3)
    with pytest.raises(RespondToModel, match=r"\$\.offset: expected an integer"):
        validate_value({"path": "a", "offset": "x"}, READ)
    with pytest.raises(RespondToModel, match=PREFIX):
        validate_value({"path": "\ud800"}, READ)


@pytest.mark.parametrize(("model", "kind"), [(ReadStruct, StructValidator), (ReadData, ModelValidator)])
def test_structs_and_dataclasses_are_read_the_same_way(model: type[Any], kind: Callable[..., Validator[Any]]) -> None:
    validator = kind(model, schema_of_model(model))
    assert read_arguments('{"path":"a","offset":"3","tty":"true","tags":"[\\"x\\"]"}', validator) == model(
        "a", 3, True, ["x"]
    )
    assert refusal('{"path":"a","offset":"x"}', validator) == '$.offset: expected an integer, got "x"'
    assert refusal('{"pth":"a"}', validator) == '$.path: missing, expected a string; you sent "pth"'
    assert refusal('{"path":"a","tags":["a",1]}', validator) == "$.tags[1]: expected a string, got 1"


def test_foreign_schemas_are_read_the_same_way() -> None:
    assert read_arguments('{"path":"a","offset":"10","tty":"true"}', FOREIGN) == {
        "path": "a",
        "offset": 10,
        "tty": True,
    }
    assert refusal('{"path":"a","limit":"ten"}', FOREIGN) == '$.limit: expected an integer, got "ten"'
    assert refusal('{"pth":"a"}', FOREIGN).splitlines() == [
        '$.pth: no such property; did you mean "path"?',
        '$.path: missing, expected a string; you sent "pth"',
    ]
    assert "1 is greater than" in refusal('{"path":"a","offset":0}', FOREIGN) or "minimum" in refusal(
        '{"path":"a","offset":0}', FOREIGN
    )


def test_foreign_alternatives_are_told_where_they_fail() -> None:
    schema = JsonSchema(
        {
            "type": "object",
            "properties": {
                "v": {
                    "anyOf": [
                        {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]},
                        {"type": "array", "items": {"type": "string"}},
                    ]
                }
            },
        }
    )
    validator = ForeignValidator(schema)
    assert read_arguments('{"v":"{\\"id\\":\\"7\\"}"}', validator) == {"v": {"id": 7}}
    assert refusal('{"v":{"id":"x"}}', validator) == '$.v.id: expected an integer, got "x"'
    assert refusal('{"v":3}', validator) == "$.v: expected an object or an array, got 3"


def test_a_foreign_schema_that_is_none_lets_its_owner_judge() -> None:
    broken = ForeignValidator(JsonSchema({"type": "object", "properties": {"a": {"type": "nonsense"}}, "required": 3}))
    assert read_arguments('{"a":1}', broken) == {"a": 1}


def test_a_reference_to_another_host_is_never_followed() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}/x.json"
        validator = ForeignValidator(JsonSchema({"type": "object", "properties": {"a": {"$ref": address}}}))
        assert read_arguments('{"a":1}', validator) == {"a": 1}
        server.setblocking(False)
        with pytest.raises(BlockingIOError):
            server.accept()


OPTIONAL = {
    "type": "object",
    "properties": {
        "n": {"type": "integer"},
        "nul": {"type": ["integer", "null"]},
        "p": {"type": "string", "pattern": "^[a-z]+$"},
        "e": {"enum": ["a", "b"]},
        "r": {"$ref": "#/$defs/Id"},
        "any": {"anyOf": [{"type": "string", "minLength": 1}, {"type": "integer"}]},
        "s": {"type": "string"},
        "b": {"type": "boolean"},
        "o": {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False},
        "must": {"type": "integer"},
    },
    "$defs": {"Id": {"type": "string", "minLength": 2}},
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ({"n": ""}, {}),
        ({"n": "None"}, {}),
        ({"n": "null", "b": "undefined"}, {}),
        ({"nul": ""}, {"nul": None}),
        ({"p": "", "s": ""}, {"s": ""}),
        ({"e": ""}, {}),
        ({"r": "", "any": ""}, {}),
        ({"o": {"n": ""}}, {"o": {}}),
        ({"s": "None"}, {"s": "None"}),
    ],
)
def test_m040_text_that_can_only_mean_nothing_is_left_out_like_null(given: Any, meant: Any) -> None:
    assert read_arguments(json.dumps(given), ForeignValidator(JsonSchema(OPTIONAL))) == meant


@pytest.mark.parametrize("given", [{"must": ""}, {"must": "None"}, {"p": "A", "must": 1}, {"e": "None", "must": 1}])
def test_m040_what_is_required_or_says_something_is_refused(given: Any) -> None:
    with pytest.raises(RespondToModel) as refused:
        read_arguments(json.dumps(given), ForeignValidator(JsonSchema({**OPTIONAL, "required": ["must"]})))
    assert str(next(iter(given.values()))) in str(refused.value) and "null" not in str(refused.value)
