"""Answers that are none, and calls that fail again and again: asked again so often, then told."""

import asyncio
from pathlib import Path

import msgspec
import pytest

from ferrule import Agent, tool
from ferrule.model.stream import CallUnreadable, ModelError
from ferrule.protocol.content import text_of
from ferrule.protocol.events import TurnFailed, WarningEvent
from ferrule.protocol.items import FunctionCallOutput, Message, Reasoning
from ferrule.protocol.specs import Wire
from ferrule.protocol.thoughts import ShownText, shown
from ferrule.session.failures import SameFailure
from ferrule.testing import ScriptedModel, http_error
from tests.session.conversations import Place, chunks, items, said
from tests.session.models import InProcessModel, calls, says


@tool(read_only=True)
async def quick() -> str:
    return "quick"


@tool(read_only=True)
async def fails() -> str:
    raise ValueError("boom 17")


@pytest.mark.parametrize("nothing", [(), (Reasoning(id="rs", summary=()),), (says(" "),), (says("<think>hm</think>"),)])
async def test_m008_m009_an_empty_answer_is_no_success(tmp_path: Path, nothing: tuple[Message, ...]) -> None:
    model = InProcessModel([calls("quick")], nothing, [says("Done.")])
    async with await Agent(model, tools=[quick], cwd=tmp_path).open() as session:
        assert (await session.run("go")).text == "Done."
    model = InProcessModel([calls("quick")], nothing, nothing, nothing)
    async with await Agent(model, tools=[quick], cwd=tmp_path).open() as session:
        with pytest.raises(ModelError, match="answered nothing, asked 3 times"):
            await session.run("go")


async def test_m007_the_model_is_shown_its_call_that_could_not_be_read(tmp_path: Path) -> None:
    unreadable = CallUnreadable("Groq could not read the call", generation='{"name": oops')
    model = InProcessModel(unreadable, [says("Done.")])
    async with await Agent(model, tools=[quick], cwd=tmp_path).open() as session:
        assert (await session.run("go")).text == "Done."
    last = model.requests[1].items[-1].view
    assert isinstance(last, Message) and '{"name": oops' in text_of(last.content)
    model = InProcessModel(*[CallUnreadable("no")] * 3)
    async with await Agent(model, tools=[quick], cwd=tmp_path).open() as session:
        with pytest.raises(CallUnreadable):
            await session.run("go")
    assert len(model.requests) == 3


@pytest.mark.parametrize("wire", ["chat", "responses"])
async def test_m007_a_refusal_of_the_models_own_call(tmp_path: Path, wire: Wire) -> None:
    place = Place(tmp_path)
    refusal = http_error(400, "Failed to call a function", code="tool_use_failed", failed_generation='{"name": oops')
    words = chunks({"content": "Done."}) if wire == "chat" else items(said("Done."))
    with ScriptedModel([refusal, words, *[refusal] * 3, words]) as server:
        await place.talk(server, wire, "go", profile="groq")
        assert [request.status for request in server.requests] == [400, 200]
        assert '{\\"name\\": oops' in server.requests[1].raw.decode()
        with pytest.raises(CallUnreadable):
            await place.talk(server, wire, "more", profile="groq", resume=True)
        assert len(server.requests) == 5, "asked again as often as unusable_answer_retries allows"
        await place.talk(server, wire, "and now?", profile="groq", resume=True)
        assert server.requests[-1].status == 200


async def test_m021_the_same_failure_gets_a_hint_then_ends_the_turn(tmp_path: Path) -> None:
    model = InProcessModel(*[[calls("fails", call_id=f"c{number}")] for number in range(9)])
    async with await Agent(model, tools=[fails], cwd=tmp_path).open() as session:
        with pytest.raises(SameFailure, match="same_failure_limit"):
            await session.run("go")
        outputs = [
            text_of(item.view.output) for item in session.history.items if isinstance(item.view, FunctionCallOutput)
        ]
    assert len(outputs) == 6
    assert ["same call" in text for text in outputs] == [False, False, True, True, True, True]


async def test_f01_whatever_happens_inside_the_turn_is_ended_with_its_events(tmp_path: Path) -> None:
    seen: list[object] = []
    model = InProcessModel(msgspec.DecodeError("inside"))
    async with await Agent(model, tools=[quick], cwd=tmp_path, on_event=seen.append).open() as session:
        with pytest.raises(msgspec.DecodeError):
            await session.run("go")
    assert isinstance(seen[-1], TurnFailed) and "inside" in seen[-1].message


def test_m032_thoughts_are_not_shown_in_any_split() -> None:
    for text, expected in (
        ("<think>fine</think>The answer", "The answer"),
        ("<think>\nplan</think>\n\n", ""),
        (" <think>a</think>\n<think>b</think>\n\nc </think>", "c </think>"),
        ("no <think>tag</think>", "no <think>tag</think>"),
        ("<thin ice>", "<thin ice>"),
        ("<think>never ends", ""),
    ):
        assert shown(text) == expected
        for size in (1, 2, 5):
            reader = ShownText()
            parts = [reader.feed(text[at : at + size]) for at in range(0, len(text), size)]
            assert "".join(parts) + reader.rest() == expected


@pytest.mark.parametrize("wire", ["chat", "responses"])
async def test_f07_a_server_that_is_down_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wire: Wire
) -> None:
    monkeypatch.setattr("ferrule.model.retry._sleep", lambda seconds: asyncio.sleep(0))
    seen: list[object] = []
    agent = Agent(
        "some-model",
        base_url="http://127.0.0.1:9/v1",
        wire=wire,
        cwd=tmp_path,
        sandbox="danger-full-access",
        on_event=seen.append,
    )
    async with await agent.open() as session:
        with pytest.raises(ModelError, match="asked 5 times"):
            await session.run("go")
    told = [event.message for event in seen if isinstance(event, WarningEvent)]
    assert len(told) == 1 and "Cannot connect" in told[0] and "for up to" in told[0]
