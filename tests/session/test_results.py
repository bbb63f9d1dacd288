"""What a program gets of a turn: its result, its events while it runs, and the bounds that end it."""

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypedDict

import pytest
from pydantic import BaseModel

from ferrule import Agent, FerruleError, UsageError, tool
from ferrule.protocol.events import ExecCommandBegin, ItemCompleted, TurnCompleted, TurnStarted
from ferrule.protocol.settings import Settings
from ferrule.session.bounds import REPEATED, RepeatWatch
from ferrule.testing import ScriptedModel, Usage, custom_tool_call, function_call, step
from tests.processes import until


@tool(read_only=True)
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool(read_only=True)
async def fails() -> int:
    """Fail."""
    raise ValueError("no luck")


def agent(model: ScriptedModel, cwd: Path, **more: Any) -> Agent:
    more.setdefault("tools", [add, fails])
    return Agent("gpt-5.5", cwd=cwd, base_url=model.base_url, wire="responses", **more)


def body(model: ScriptedModel) -> Any:
    return model.last_request.body


async def test_a_result_tells_calls_items_usage_and_time(tmp_path: Path) -> None:
    calls = [function_call("add", {"a": 1, "b": 2}, call_id="c1"), function_call("fails", {}, call_id="c2")]
    with ScriptedModel([step(*calls, usage=Usage(10, 5)), step("3.", usage=Usage(20, 7))]) as model:
        result = await agent(model, tmp_path).run("go")
    first, second = result.tool_calls
    assert (first.name, first.arguments, first.call_id, first.output, first.success) == (
        "add",
        '{"a":1,"b":2}',
        "c1",
        "3",
        True,
    )
    assert (second.name, second.success) == ("fails", False)
    assert "no luck" in second.output
    assert (result.usage.input_tokens, result.usage.output_tokens) == (30, 12)
    assert [type(item.view).__name__ for item in result.items] == [
        "FunctionCall",
        "FunctionCall",
        "FunctionCallOutput",
        "FunctionCallOutput",
        "Message",
    ]
    assert result.session_id and result.diff == "" and 0 < result.duration < 60


async def test_a_result_has_the_diff_of_its_turn_alone(tmp_path: Path) -> None:
    patch = "*** Begin Patch\n*** Add File: a.txt\n+new\n*** End Patch"
    with ScriptedModel([[custom_tool_call("apply_patch", patch)], "Done.", "Nothing more."]) as model:
        async with await agent(model, tmp_path, tools=["apply_patch"]).open() as session:
            first, second = await session.run("go"), await session.run("again")
    assert "+++ b/a.txt" in first.diff and "+new" in first.diff
    assert second.diff == ""


class Pair(BaseModel):
    left: int
    right: int


@dataclass
class PairData:
    left: int
    right: int


class PairDict(TypedDict):
    left: int
    right: int


@pytest.mark.parametrize(
    ("kind", "value"), [(Pair, Pair(left=1, right=2)), (PairData, PairData(1, 2)), (PairDict, {"left": 1, "right": 2})]
)
async def test_an_output_type_gives_a_typed_output(tmp_path: Path, kind: Any, value: object) -> None:
    with ScriptedModel(['{"left": 1, "right": 2}']) as model:
        result = await agent(model, tmp_path, output_type=kind).run("go")
        schema = body(model)["text"]["format"]["schema"]
    assert result.output == value
    assert set(schema["properties"]) == {"left", "right"}


async def test_an_answer_of_another_type_is_asked_for_again(tmp_path: Path) -> None:
    with ScriptedModel(["1 and 2", '```json\n{"left": 1, "right": 2}\n```']) as model:
        result = await agent(model, tmp_path, output_type=Pair).run("go")
        assert "not the JSON that was asked for" in str(body(model)["input"][-1])
    assert result.output == Pair(left=1, right=2)


async def test_an_answer_that_stays_of_another_type_is_an_error(tmp_path: Path) -> None:
    with (
        ScriptedModel(["no"] * 3) as model,
        pytest.raises(FerruleError, match="the model's answer is not the Pair that was asked for"),
    ):
        await agent(model, tmp_path, output_type=Pair).run("go")


def test_a_type_that_is_no_object_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="output_type: int is not a pydantic model"):
        Agent("m", cwd=tmp_path, output_type=int)


@pytest.mark.parametrize("of", ["agent", "session"])
async def test_a_stream_gives_the_events_and_then_the_result(tmp_path: Path, of: str) -> None:
    with ScriptedModel([[function_call("add", {"a": 1, "b": 2})], "3."]) as model:
        made = agent(model, tmp_path)
        if of == "agent":
            stream = made.stream("go")
            events = [event async for event in stream]
        else:
            async with await made.open() as session:
                stream = session.stream("go")
                events = [event async for event in stream]
                assert not session.toolset.host.observed
    kinds = [type(event) for event in events]
    assert kinds.index(TurnStarted) < kinds.index(ItemCompleted) < kinds.index(TurnCompleted)
    assert stream.result is not None and stream.result.text == "3."


async def test_leaving_a_stream_ends_its_commands(tmp_path: Path) -> None:
    call = function_call("shell_command", {"command": "touch begun; sleep 60; touch done"})
    with ScriptedModel([[call], "Done."]) as model:
        stream = agent(model, tmp_path, tools=["shell_command"], sandbox="danger-full-access").stream("go")
        async with asyncio.timeout(30):
            async for event in stream:
                if isinstance(event, ExecCommandBegin):
                    await until((tmp_path / "begun").exists)
                    break
            while asyncio.all_tasks() - {asyncio.current_task()}:
                await asyncio.wait(asyncio.all_tasks() - {asyncio.current_task()})
    assert stream.result is None and not (tmp_path / "done").exists()


async def test_a_stream_raises_what_the_turn_raises(tmp_path: Path) -> None:
    with ScriptedModel([]) as model, pytest.raises(FerruleError):
        async for _ in agent(model, tmp_path).stream("go"):
            pass


async def test_a_stream_runs_its_turn_once(tmp_path: Path) -> None:
    with ScriptedModel(["Done.", "never"]) as model:
        stream = agent(model, tmp_path).stream("go")
        async for _ in stream:
            pass
        with pytest.raises(UsageError, match="a stream runs its turn once"):
            async for _ in stream:
                pass
        assert len(model.requests) == 1
    assert stream.result is not None and stream.result.text == "Done."


async def test_a_turn_that_takes_too_long_raises_timeout_error(tmp_path: Path) -> None:
    call = function_call("shell_command", {"command": "sleep 60"})
    with ScriptedModel([[call], "Done."]) as model:
        slow = agent(model, tmp_path, tools=["shell_command"], sandbox="danger-full-access", timeout=0.5)
        with pytest.raises(TimeoutError, match=r"stopped after 0\.5 s \(turn_timeout\)"):
            await slow.run("go")


async def test_calls_beyond_the_limit_are_not_run_and_the_last_answer_comes_without_tools(tmp_path: Path) -> None:
    calls = [function_call("add", {"a": 1, "b": n}, call_id=f"c{n}") for n in range(3)]
    with ScriptedModel([calls, "As far as I came: 1."]) as model:
        result = await agent(model, tmp_path, max_tool_calls=2).run("go")
        first, last = [request.body for request in model.requests]
    assert [call.success for call in result.tool_calls] == [True, True, False]
    assert "the limit of 2 tool calls of a turn is reached" in result.tool_calls[2].output
    assert "at most 2 tool calls" in str(first["input"]) and "Answer now" in str(last["input"])
    assert (first["tool_choice"], last["tool_choice"]) == ("auto", "none")
    assert result.text == "As far as I came: 1."


async def test_a_model_that_calls_on_without_tools_is_stopped(tmp_path: Path) -> None:
    call = function_call("add", {"a": 1, "b": 1})
    with ScriptedModel([[call], [call]]) as model, pytest.raises(FerruleError, match="the model wanted to go on"):
        await agent(model, tmp_path, max_tool_calls=1).run("go")


@pytest.mark.parametrize("unit", ["a", "The same line again.\n", "x" * 300 + "y" * 700, "".join(map(str, range(2000)))])
def test_text_that_repeats_itself_is_noticed(unit: str) -> None:
    watch, said = RepeatWatch(), 0
    while not watch.feed(unit[said % len(unit)]):
        said += 1
        assert said < 36_000
    assert said >= REPEATED


@pytest.mark.parametrize("unit", ["a", "The same line again.\n"])
def test_less_than_8000_characters_may_repeat(unit: str) -> None:
    watch = RepeatWatch()
    text = (unit * REPEATED)[: REPEATED - 1] + "\nThe end, and then something else: " + "".join(map(str, range(4000)))
    assert not any(watch.feed(character) for character in text)


async def test_an_answer_that_repeats_itself_ends_the_turn(tmp_path: Path) -> None:
    with ScriptedModel(["so on " * 5_000]) as model, pytest.raises(FerruleError, match="the model's answer repeats"):
        await agent(model, tmp_path).run("go")


async def test_a_program_gives_its_key_and_its_sampling(tmp_path: Path) -> None:
    with ScriptedModel(["Hi."]) as model:
        given = {"api_key": "sk-given", "temperature": 0.5, "max_output_tokens": 900}
        await agent(model, tmp_path, **given).run("go")
        request = model.last_request
    assert request.headers["authorization"] == "Bearer sk-given"
    assert (request.body["temperature"], request.body["max_output_tokens"]) == (0.5, 900)


async def test_images_go_with_the_prompt(tmp_path: Path) -> None:
    png = bytes.fromhex("89504e470d0a1a0a0000000d4948445200000001000000010806000000") + b"\0" * 8
    (tmp_path / "a.png").write_bytes(png)
    with ScriptedModel(["Seen."]) as model:
        await agent(model, tmp_path).run("look", images=[tmp_path / "a.png", png, "https://host/b.png"])
        content = body(model)["input"][-1]["content"]
    urls = [part["image_url"][:22] for part in content if part["type"] == "input_image"]
    assert urls == ["data:image/png;base64,", "data:image/png;base64,", "https://host/b.png"]


async def test_a_session_is_stored_only_where_that_is_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERRULE_HOME", str(tmp_path / "home"))
    with ScriptedModel(["One.", "Two."]) as model:
        for store in (False, True):
            await agent(model, tmp_path, store=store).run("go")
            assert bool(list(tmp_path.rglob("rollout-*.jsonl"))) is store


async def test_what_an_agent_was_given_counts_before_what_was_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def places(settings: Settings) -> tuple[object, ...]:
        provider = settings.provider
        return settings.cwd, settings.sandbox_policy, settings.approval_policy, provider and provider.base_url

    monkeypatch.setenv("FERRULE_HOME", str(tmp_path / "home"))
    (tmp_path / "there").mkdir()
    more: dict[str, Any] = {"tools": ["think"], "sandbox": "read-only", "approval_policy": "untrusted", "store": True}
    with ScriptedModel(["One."]) as model:
        first = Agent("gpt-5.5", cwd=tmp_path, base_url=model.base_url, wire="responses", **more)
        stored = (await first.run("go")).session_id
    async with await Agent.resume(stored) as session:
        assert places(session.settings) == places(first.settings)
        assert [spec["name"] for spec in session.toolset.specs()] == ["think"]
    given = Agent(
        cwd=tmp_path / "there", base_url="http://127.0.0.1:9/v1", wire="responses", tools=["update_plan"],
        sandbox="danger-full-access", approval_policy="never",
    )  # fmt: skip
    async with await given.resume(stored) as session:
        assert places(session.settings) == places(given.settings)
        assert [spec["name"] for spec in session.toolset.specs()] == ["update_plan"]


async def test_a_stored_session_goes_on_under_its_id(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERRULE_HOME", str(tmp_path / "home"))
    with ScriptedModel(["First.", "Second."]) as model:
        first = await agent(model, tmp_path, store=True).run("one")
        async with await Agent.resume(first.session_id) as session:
            second = await session.run("two")
        said = str(model.last_request.body["input"])
    assert second.session_id == first.session_id == session.id
    assert "First." in said and "two" in said and model.last_request.body["model"] == "gpt-5.5"


async def test_a_session_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERRULE_HOME", str(tmp_path / "home"))
    with pytest.raises(UsageError, match="there is no session to resume"):
        await Agent.resume("nothing")
