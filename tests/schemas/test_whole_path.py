"""The cases of arguments and schemas through dispatch: a function tool, and a source that lists schemas as MCP does."""

import json
from typing import Any

import pytest

from ferrule import ToolContext, ToolHandler, ToolInvocation, ToolOutput, tool
from ferrule.dispatch.dispatcher import Dispatcher
from ferrule.protocol.items import FunctionCall
from ferrule.protocol.json_schema import JsonSchema
from ferrule.protocol.payload import FunctionPayload
from ferrule.protocol.specs import ConfiguredToolSpec, ResponsesApiTool
from ferrule.schemas.alias import PORTABLE_NAMES
from ferrule.schemas.sanitize import sanitize
from ferrule.tools.arguments import read_arguments
from ferrule.tools.foreign import ForeignValidator
from ferrule.tools.registry import ToolRegistry, ToolRegistryBuilder
from tests.tools.contexts import context

Json = Any


@tool(read_only=True)
def run(cmd: str, limit: int = 5, tty: bool = False, env: dict[str, str] | None = None) -> str:
    """Show what came."""
    return json.dumps([cmd, limit, tty, env])


@tool(read_only=True)
def list_dir(path: str = ".") -> str:
    """List."""
    return path


class ForeignTool(ToolHandler):
    """A tool of a server: told in a sanitised copy, checked against its own schema, called with its own names."""

    def __init__(self, name: str, own: JsonSchema) -> None:
        self.told = sanitize(own, tool=name, property_names=PORTABLE_NAMES)
        self.spec = ResponsesApiTool(name=name, description="", parameters=self.told.schema)
        self._validator = ForeignValidator(own, self.told)

    async def handle(self, invocation: ToolInvocation, ctx: ToolContext) -> ToolOutput:
        """Answer with the arguments that the server would get."""
        assert isinstance(invocation.payload, FunctionPayload)
        return ToolOutput(json.dumps(read_arguments(invocation.payload.arguments, self._validator)), True)


SERVER: dict[str, Json] = {
    **{f"plain{i}": {"type": "object", "properties": {"n": {"type": "integer"}}} for i in range(9)},
    "missing": {"$ref": "#/$defs/Missing"},
    "tree": {"$ref": "#/$defs/N", "$defs": {"N": {"type": "object", "properties": {"kid": {"$ref": "#/$defs/N"}}}}},
    "empty": {},
    "keywords": {"type": "object", "properties": {"properties": {"type": "object"}, "type": {"type": "string"}}},
    "either": {
        "type": "object",
        "properties": {
            "v": {"anyOf": [{"type": "object", "properties": {"id": {"type": "integer"}}}, {"type": "array"}]}
        },
    },
    "odd": {"type": "object", "properties": {"uids[]": {"type": "array"}, "a b": {}}, "required": ["uids[]"]},
}


def listed() -> tuple[list[ConfiguredToolSpec], ToolRegistry]:
    """What a registry makes of everything."""
    builder = ToolRegistryBuilder()
    for function in (run, list_dir):
        builder.push_spec(function.spec)
        builder.register_handler(function.name, function)
    for name, schema in SERVER.items():
        foreign = ForeignTool(name, JsonSchema(schema))
        builder.push_spec(foreign.spec)
        builder.register_handler(name, foreign)
    return builder.build()


async def answer(name: str, arguments: str) -> str:
    """What the model reads after its call."""
    dispatcher = Dispatcher(listed()[1], lambda invocation, caller: context())
    response = await dispatcher.respond(FunctionCall(call_id="c", name=name, arguments=arguments))
    assert response is not None
    text: Json = response.view.output  # type: ignore[union-attr]
    return str(text)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ('{"cmd":"ls"}', ["ls", 5, False, None]),
        ('```json\n{"cmd":"ls"}\n```', ["ls", 5, False, None]),
        ('{"cmd":"a\nb","limit":"10","tty":"true"}', ["a\nb", 10, True, None]),
        ('"{\\"cmd\\":\\"ls\\"}"', ["ls", 5, False, None]),
        ('{"cmd":"10","env":"{\\"A\\":\\"1\\"}"}', ["10", 5, False, {"A": "1"}]),
        ('{"cmd":"ls","limit":null}', ["ls", 5, False, None]),
    ],
    ids=["plain", "B065", "B067 B083", "double", "nested", "null"],
)
async def test_arguments_that_are_understood(arguments: str, expected: Json) -> None:
    assert json.loads(await answer("run", arguments)) == expected


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("", "$.cmd: missing, expected a string"),
        ('{"cmd":"ls"}{"cmd":"pwd"}', "more than one JSON value, the second from line 1 column 13"),
        ('{"cmd":"ls","limit":"ten"}', '$.limit: expected an integer, got "ten"'),
        ('{"cmd":"echo', "the JSON ends too early (was it cut off?)"),
        ('{"cmd":"ls",}', "}'"),  # 3.13 points at the comma before it
    ],
    ids=["B062", "B064", "B067", "B068", "B083"],
)
async def test_arguments_that_are_refused(arguments: str, expected: str) -> None:
    text = await answer("run", arguments)
    assert text.startswith("failed to parse function arguments: ")
    assert expected in text


async def test_b062_empty_arguments_reach_a_tool_that_needs_none() -> None:
    assert await answer("list_dir", "") == "."
    assert await answer("empty", "  ") == "{}"


def test_b091_b094_b100_every_tool_is_listed_with_an_object_that_has_properties() -> None:
    tools = [configured.spec.to_responses() for configured in listed()[0]]
    assert len(tools) == len(SERVER) + 2
    for listed_tool in tools:
        assert listed_tool["parameters"]["type"] == "object"
        assert isinstance(listed_tool["parameters"]["properties"], dict)
        assert not {"$ref", "anyOf", "oneOf", "allOf"} & listed_tool["parameters"].keys()


@pytest.mark.parametrize(
    ("name", "arguments", "expected"),
    [
        ("missing", '{"anything":1}', {"anything": 1}),
        ("tree", '{"kid":{"kid":{}}}', {"kid": {"kid": {}}}),
        ("empty", '{"extra":true}', {"extra": True}),
        ("keywords", '{"properties":{"a":1},"type":"x"}', {"properties": {"a": 1}, "type": "x"}),
        ("either", '{"v":"{\\"id\\":\\"7\\"}"}', {"v": {"id": 7}}),
        ("odd", '{"uids":[1],"a_b":2}', {"uids[]": [1], "a b": 2}),
    ],
    ids=["B091", "B092", "B100", "B097", "B095", "B106"],
)
async def test_servers_get_what_was_meant(name: str, arguments: str, expected: Json) -> None:
    assert json.loads(await answer(name, arguments)) == expected
