"""Schemas of Python types and functions, as short as a model needs them."""

import enum
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NotRequired

import jsonschema_rs
import msgspec
import pytest
from pydantic import BaseModel, ConfigDict, Field
from typing_extensions import TypedDict

from ferrule.schemas.signatures import keyword_arguments, read_signature, signature_model
from ferrule.schemas.writer import schema_of_model
from ferrule.tools.arguments import ModelValidator, read_arguments

Json = Any


class Colour(enum.Enum):
    """A colour."""

    RED = "red"
    BLUE = "blue"


class Point(BaseModel):
    """Where it is."""

    x: int
    y: int = 0


class Shape(BaseModel):
    """The tool's own description."""

    name: Annotated[str, Field(description="What it is called")]
    at: Point = Field(description="Where to draw")
    colour: Colour = Colour.RED
    title: str = "untitled"
    kind: Literal["round"] | None = None
    width: Annotated[int, Field(ge=1, le=9)] | None = None
    corner: Point | None = Field(None, description="Other corner")
    either: int | str | None = None
    nullable: int | None = 3
    must: int | None
    free: dict[str, Any] = {}
    counts: dict[str, int] = {}
    anything: Any = None


def test_a_model_in_short() -> None:
    point = {
        "type": "object",
        "properties": {"x": {"type": "integer"}, "y": {"type": "integer", "default": 0}},
        "required": ["x"],
        "additionalProperties": False,
    }
    nullable = {"anyOf": [{"type": "integer"}, {"type": "null"}]}
    assert schema_of_model(Shape).mapping == {
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "What it is called"},
            "at": {**point, "description": "Where to draw"},
            "colour": {"type": "string", "description": "A colour.", "enum": ["red", "blue"], "default": "red"},
            "title": {"type": "string", "default": "untitled"},
            "kind": {"type": "string", "enum": ["round"]},
            "width": {"type": "integer", "minimum": 1, "maximum": 9},
            "corner": {**point, "description": "Other corner"},
            "either": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
            "nullable": {**nullable, "default": 3},
            "must": nullable,
            "free": {"type": "object", "additionalProperties": True, "default": {}},
            "counts": {"type": "object", "additionalProperties": {"type": "integer"}, "default": {}},
            "anything": {"type": ["string", "number", "boolean", "object", "array", "null"], "items": {}},
        },
        "required": ["name", "at", "must"],
        "additionalProperties": False,
    }


def test_the_order_of_keywords_is_the_usual_one() -> None:
    assert list(schema_of_model(Shape).mapping) == ["type", "properties", "required", "additionalProperties"]
    assert list(schema_of_model(Shape).mapping["properties"]["colour"]) == ["type", "description", "enum", "default"]


class Tree(BaseModel):
    """A tree."""

    label: str
    kids: list["Tree"] = []
    side: "Branch | None" = None


class Branch(BaseModel):
    """A branch."""

    twigs: list["Branch"] = []


def test_recursion_refers_to_the_root_or_to_defs() -> None:
    mapping = schema_of_model(Tree).mapping
    assert mapping["properties"]["kids"]["items"] == {"$ref": "#"}
    assert mapping["properties"]["side"] == {"$ref": "#/$defs/Branch"}
    assert mapping["$defs"]["Branch"]["properties"]["twigs"]["items"] == {"$ref": "#/$defs/Branch"}
    validator = jsonschema_rs.validator_for(dict(mapping))
    assert validator.is_valid({"label": "a", "kids": [{"label": "b", "side": {"twigs": [{}]}}]})
    assert not validator.is_valid({"label": "a", "kids": [{"lable": "b"}]})


class StructOf(msgspec.Struct):
    """A Struct."""

    path: Annotated[str, msgspec.Meta(description="Where")]
    limit: int | None = None
    kids: "list[StructOf]" = []


@dataclass
class DataOf:
    """A dataclass."""

    path: Annotated[str, Field(description="Where")]
    limit: int | None = None


class DictOf(TypedDict):
    """A TypedDict."""

    path: Annotated[str, Field(description="Where")]
    limit: NotRequired[int]


@pytest.mark.parametrize("model", [StructOf, DataOf, DictOf])
def test_structs_dataclasses_and_typed_dicts_alike(model: type[Any]) -> None:
    mapping = schema_of_model(model).mapping
    assert mapping["properties"]["path"] == {"type": "string", "description": "Where"}
    assert mapping["properties"]["limit"] == {"type": "integer"}
    assert mapping["required"] == ["path"]
    assert mapping["additionalProperties"] is False
    assert "title" not in str(mapping)
    assert "description" not in mapping


def test_a_model_that_takes_more_says_so() -> None:
    class Open(BaseModel):
        model_config = ConfigDict(extra="allow")

        a: int

    assert schema_of_model(Open).mapping["additionalProperties"] is True


def search(  # type: ignore[no-untyped-def]
    query: str,
    limit: Annotated[int, Field(ge=1, description="At most so many")] = 10,
    *,
    schema: bool = False,
    _hidden: list[Point] | None = None,
    token: object = object(),
    untyped=None,
) -> str:
    """Search the index.

    It is slow.

    Args:
        query: What to look for,
            in plain words.
        limit (int): Not this text.
        schema: Whether to show the schema.

    Returns:
        The hits.
    """
    return f"{query} {limit} {schema} {_hidden} {untyped}"


def test_a_function_with_its_docstring() -> None:
    model = signature_model(read_signature(search, hidden=object))
    schema = schema_of_model(model)
    assert model.__name__ == "search"
    assert model.__doc__ == "Search the index.\n\nIt is slow.\n\nReturns:\n    The hits."
    properties = schema.mapping["properties"]
    assert list(properties) == ["query", "limit", "schema", "_hidden", "untyped"]
    assert properties["query"] == {"type": "string", "description": "What to look for, in plain words."}
    assert properties["limit"] == {"type": "integer", "description": "At most so many", "default": 10, "minimum": 1}
    assert properties["schema"]["description"] == "Whether to show the schema."
    assert properties["_hidden"]["items"]["required"] == ["x"]
    assert schema.mapping["required"] == ["query"]


def test_the_arguments_of_a_function_are_validated_and_given_by_name() -> None:
    model = signature_model(read_signature(search, hidden=object))
    validator = ModelValidator(model, schema_of_model(model))
    arguments = read_arguments('{"query":"q","limit":"3","schema":true,"_hidden":[{"x":1}]}', validator)
    given = keyword_arguments(arguments)
    assert given == {"query": "q", "limit": 3, "schema": True, "_hidden": [Point(x=1)]}
    call: Json = search
    assert call(**given) == "q 3 True [Point(x=1, y=0)] None"
    assert keyword_arguments(read_arguments('{"query":"q"}', validator)) == {"query": "q"}


def test_a_base_gives_its_ways_to_the_model_and_its_names_are_left_alone() -> None:
    class Base(BaseModel):
        model_config = ConfigDict(frozen=True)

        @property
        def visualize(self) -> str:
            return "base"

    def paint(visualize: int, copy: int = 1) -> None:
        """Paint."""

    model = signature_model(read_signature(paint), base=Base)
    assert issubclass(model, Base)
    assert (model.__name__, model.__doc__) == ("paint", "Paint.")
    assert list(schema_of_model(model).mapping["properties"]) == ["visualize", "copy"]
    instance = model.model_validate_json('{"visualize":2}')
    assert instance.visualize == "base"
    assert keyword_arguments(instance) == {"visualize": 2}


def test_parameters_that_cannot_be_named_are_refused() -> None:
    def positional(a: int, /) -> None: ...
    def variadic(*parts: int) -> None: ...
    def open_ended(**parts: int) -> None: ...

    for function in (positional, variadic, open_ended):
        with pytest.raises(TypeError, match=f"^{function.__name__}: a model gives arguments by name"):
            read_signature(function)
