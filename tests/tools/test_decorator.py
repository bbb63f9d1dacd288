"""`@tool`: plain functions as tools."""

import threading
from typing import Annotated, Literal

import pytest
from pydantic import Field

from ferrule import RespondToModel, ToolContext, ToolInvocation, tool
from ferrule.protocol.payload import FunctionPayload
from tests.tools.contexts import RecordingHost, context


@tool
def word_count(path: str, limit: int = 10, unit: Literal["words", "lines"] = "words") -> int:
    """Count the words of a text file.

    Args:
        path: Path of the file.
        limit: Stop after so many.
    """
    return len(path) + limit


def invoke(arguments: str) -> ToolInvocation:
    return ToolInvocation("call_1", "f", FunctionPayload(arguments))


def test_the_signature_gives_the_schema_and_the_docstring_the_words() -> None:
    assert word_count.name == "word_count"
    assert word_count.description == "Count the words of a text file."
    assert dict(word_count.parameters().mapping) == {
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "Path of the file."},
            "limit": {"type": "integer", "description": "Stop after so many.", "default": 10},
            "unit": {"type": "string", "enum": ["words", "lines"], "default": "words"},
        },
        "required": ["path"],
        "additionalProperties": False,
    }


async def test_a_call_runs_the_function() -> None:
    output = await word_count.handle(invoke('{"path":"abc","limit":"4"}'), context())
    assert output.text == "7"
    assert word_count.function("abc") == 13


async def test_plain_functions_block_a_thread_and_not_the_loop() -> None:
    seen: list[bool] = []

    @tool
    def blocks() -> None:
        seen.append(threading.current_thread() is threading.main_thread())

    @tool(blocking=False, read_only=True)
    def instant() -> None:
        seen.append(threading.current_thread() is threading.main_thread())

    await blocks.handle(invoke("{}"), context())
    await instant.handle(invoke("{}"), context())
    assert seen == [False, True]
    assert instant.parallel
    assert not blocks.parallel


async def test_the_context_is_given_and_not_shown() -> None:
    @tool
    async def where(ctx: ToolContext, suffix: str = "") -> str:
        return ctx.call_id + suffix

    assert "ctx" not in where.parameters().mapping["properties"]
    host = RecordingHost()
    assert (await where.handle(invoke('{"suffix":"!"}'), context(host))).text == "call_1!"
    assert host.effects == []


async def test_names_that_models_of_pydantic_keep_for_themselves() -> None:
    @tool(read_only=True)
    async def odd(schema: str, copy: Annotated[int, Field(description="How many")], _under: int = 1) -> str:
        return f"{schema}{copy}{_under}"

    assert list(odd.parameters().mapping["properties"]) == ["schema", "copy", "_under"]
    assert (await odd.handle(invoke('{"schema":"s","copy":2,"_under":3}'), context())).text == "s23"


@pytest.mark.parametrize(
    ("value", "text"),
    [("as it is", "as it is"), (None, "(no output)"), ({"a": [1]}, '{"a":[1]}'), (True, "true"), (b"x", '"x"')],
)
async def test_what_a_function_returns(value: object, text: str) -> None:
    @tool(read_only=True, name="give")
    async def f() -> object:
        return value

    assert (await f.handle(invoke(""), context())).text == text
    assert f.name == "give"


def test_what_no_model_can_call_is_refused() -> None:
    def positional(a: int, /) -> None: ...

    with pytest.raises(TypeError, match="positional"):
        tool(positional)


async def test_wrong_arguments_name_the_parameter() -> None:
    with pytest.raises(RespondToModel, match="limit"):
        await word_count.handle(invoke('{"path":"a","limit":"ten"}'), context())
