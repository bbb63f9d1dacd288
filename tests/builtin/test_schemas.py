"""The checked-in data of the tools is what the tools say."""

import msgspec
import pytest

from ferrule.builtin import BUILTINS
from ferrule.builtin.table import FILE
from tests.builtin.schemas import generate


def test_the_checked_in_file_is_up_to_date() -> None:
    assert FILE.read_bytes() == generate(), "run scripts/schemas"


@pytest.mark.parametrize("name", [tool.name for tool in BUILTINS.values() if tool.native is None and not tool.hidden])
def test_every_function_tool_has_a_closed_schema(name: str) -> None:
    schema = msgspec.json.decode(BUILTINS[name].parameters)
    assert schema["type"] == "object" and schema["additionalProperties"] is False


def test_every_tool_that_the_api_does_not_describe_says_how_to_use_it() -> None:
    told = {tool.name: tool.description for tool in BUILTINS.values() if tool.native is None}
    assert [name for name, text in told.items() if len(text.split()) < 8] == []


NUMBER, STRING, BOOLEAN = {"type": "number"}, {"type": "string"}, {"type": "boolean"}
STRINGS = {"type": "array", "items": STRING}
ESCALATION = {"sandbox_permissions": STRING, "justification": STRING, "prefix_rule": STRINGS}
CONTRACT = {
    "shell": ({"command": STRINGS, "workdir": STRING, "timeout_ms": NUMBER, **ESCALATION}, ["command"]),
    "shell_command": (
        {"command": STRING, "workdir": STRING, "timeout_ms": NUMBER, "login": BOOLEAN, **ESCALATION},
        ["command"],
    ),
    "exec_command": (
        {
            "cmd": STRING,
            "workdir": STRING,
            "shell": STRING,
            "tty": BOOLEAN,
            "yield_time_ms": NUMBER,
            "max_output_tokens": NUMBER,
            "login": BOOLEAN,
            "timeout": NUMBER,
            **ESCALATION,
        },
        ["cmd"],
    ),
    "write_stdin": (
        {"session_id": NUMBER, "chars": STRING, "yield_time_ms": NUMBER, "max_output_tokens": NUMBER},
        ["session_id"],
    ),
}


@pytest.mark.parametrize("name", CONTRACT)
def test_parameters_of_the_shells_are_the_contract(name: str) -> None:
    schema = msgspec.json.decode(BUILTINS[name].parameters)
    shapes = {
        field: {key: value for key, value in node.items() if key != "description"}
        for field, node in schema["properties"].items()
    }
    assert (shapes, schema["required"]) == CONTRACT[name]
    assert all(node["description"] for node in schema["properties"].values())
