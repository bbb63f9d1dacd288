"""When the model must, may or may not call: what each request says, over all wires."""

from pathlib import Path
from typing import Any

import pytest

from ferrule import Agent, FerruleError, UsageError, tool
from ferrule.model.stream import ForcedTool
from ferrule.protocol.specs import Wire
from ferrule.session.tool_choice import ToolChoiceLike, as_tool_choice
from ferrule.testing import ScriptedModel, function_call

FORCED = {"type": "function", "function": {"name": "look"}}


@tool(read_only=True)
async def look() -> str:
    return "a.txt"


async def choices(cwd: Path, choice: ToolChoiceLike, wire: Wire = "responses") -> list[object]:
    """The `tool_choice` of both requests of a turn with one call."""
    with ScriptedModel([[function_call("look", {})], "Done."]) as model:
        agent = Agent("gpt-5.5", tools=[look], cwd=cwd, base_url=model.base_url, wire=wire)
        assert (await agent.run("go", tool_choice=choice)).text == "Done."
        return [request.body["tool_choice"] for request in model.requests if request.wire == wire]


@pytest.mark.parametrize(
    ("choice", "first", "second"),
    [
        ("auto", "auto", "auto"),
        ("none", "none", "none"),
        ("required", "required", "auto"),
        (FORCED, {"type": "function", "name": "look"}, "auto"),
    ],
)
async def test_each_choice_is_sent_and_a_forced_call_is_forced_once(
    tmp_path: Path, choice: ToolChoiceLike, first: object, second: object
) -> None:
    assert await choices(tmp_path, choice) == [first, second]


async def test_chat_says_it_in_its_own_spelling(tmp_path: Path) -> None:
    assert await choices(tmp_path, FORCED, "chat") == [FORCED, "auto"]
    assert await choices(tmp_path, "required", "chat") == ["required", "auto"]


async def test_messages_says_it_in_its_own_spelling(tmp_path: Path) -> None:
    auto = {"type": "auto"}
    assert await choices(tmp_path, FORCED, "messages") == [{"type": "tool", "name": "look"}, auto]
    assert await choices(tmp_path, "required", "messages") == [{"type": "any"}, auto]
    assert await choices(tmp_path, "none", "messages") == [{"type": "none"}] * 2


async def test_a_choice_is_for_one_turn(tmp_path: Path) -> None:
    with ScriptedModel([[function_call("look", {})], "Done.", [function_call("look", {})], "Done.", "Bye."]) as model:
        agent = Agent("gpt-5.5", tools=[look], cwd=tmp_path, base_url=model.base_url, wire="responses")
        async with await agent.open() as session:
            await session.run("go", tool_choice="required")
            await session.run("go on", tool_choice="required")
            await session.run("bye")
    choices = [request.body["tool_choice"] for request in model.requests]
    assert choices == ["required", "auto", "required", "auto", "auto"]


@pytest.mark.parametrize(("choice", "named"), [("required", "one of its tools"), (FORCED, "the tool 'look'")])
async def test_a_forced_call_that_does_not_come_is_an_error(tmp_path: Path, choice: Any, named: str) -> None:
    with ScriptedModel(["I would rather talk."]) as model:
        agent = Agent("gpt-5.5", tools=[look], cwd=tmp_path, base_url=model.base_url, wire="responses")
        with pytest.raises(FerruleError, match=f"the model was to call {named} and answered without a call"):
            await agent.run("go", tool_choice=choice)


@pytest.mark.parametrize(
    ("choice", "name"),
    [
        (FORCED, "look"),
        ({"type": "function", "name": "look"}, "look"),
        ({"type": "custom", "custom": {"name": "apply_patch"}}, "apply_patch"),
        ({"type": "web_search"}, "web_search"),
        (ForcedTool("look"), "look"),
    ],
)
def test_one_tool_in_every_spelling(choice: ToolChoiceLike, name: str) -> None:
    assert as_tool_choice(choice) == ForcedTool(name)


@pytest.mark.parametrize("choice", ["always", {"type": "function"}, {}, {"type": "function", "function": {}}])
def test_other_words_are_refused_with_the_right_ones(choice: ToolChoiceLike) -> None:
    with pytest.raises(UsageError, match="auto, none, required"):
        as_tool_choice(choice)
