"""What a front end sees of a turn, in its order."""

import asyncio
from pathlib import Path

import pytest

from ferrule import Agent, tool
from ferrule.model.stream import ModelError
from ferrule.protocol.events import (
    ErrorEvent,
    ItemCompleted,
    ItemStarted,
    ItemUpdated,
    SandboxStatus,
    ThreadStarted,
    TurnCompleted,
    TurnFailed,
    TurnStarted,
    WarningEvent,
)
from ferrule.protocol.items import FunctionCall, Message, Reasoning
from ferrule.protocol.specs import Wire
from ferrule.testing import Gate, ScriptedModel, Stall, Usage, function_call, http_error, reasoning, step
from ferrule.testing.steps import StepLike

THOUGHT = reasoning(text="Hm.", encrypted_content="c2ln")


@tool(read_only=True)
async def look(place: str) -> str:
    return f"nothing in {place}"


async def events(cwd: Path, *script: StepLike, wire: Wire = "responses") -> list[object]:
    """All that one turn tells."""
    seen: list[object] = []
    with ScriptedModel(script) as model:
        agent = Agent("gpt-5.5", tools=[look], cwd=cwd, base_url=model.base_url, wire=wire, on_event=seen.append)
        await agent.run("go")
    return seen


@pytest.mark.parametrize("wire", ["responses", "chat", "messages"])
async def test_a_turn_with_a_call(wire: Wire, tmp_path: Path) -> None:
    script = (
        step(THOUGHT, "I look.", function_call("look", {"place": "a"}), usage=Usage(100, 20)),
        step("Done.", usage=Usage(130, 5)),
    )
    seen = await events(tmp_path, *script, wire=wire)
    thread, turn, *between, end = [event for event in seen if type(event).__module__ == "ferrule.protocol.events"]
    assert isinstance(thread, ThreadStarted)
    assert thread.model == "gpt-5.5"
    assert isinstance(turn, TurnStarted)
    assert isinstance(end, TurnCompleted)
    assert (end.turn_id, end.last_message) == (turn.turn_id, "Done.")
    assert (end.usage.input_tokens, end.usage.output_tokens) == (230, 25)
    texts = [event.delta for event in between if isinstance(event, ItemUpdated) and event.kind == "text"]
    assert "".join(texts) == "I look.Done."
    thoughts = [event.delta for event in between if isinstance(event, ItemUpdated) and event.kind == "reasoning"]
    assert "".join(thoughts) == "Hm."
    inputs = [event.delta for event in between if isinstance(event, ItemUpdated) and event.kind == "input"]
    assert "".join(inputs) == '{"place":"a"}'
    whole = [event for event in between if isinstance(event, ItemStarted | ItemCompleted)]
    kinds = [(type(event), type(event.item.view)) for event in whole]
    assert kinds == [
        (ItemCompleted, Reasoning), (ItemCompleted, Message), (ItemStarted, FunctionCall),
        (ItemCompleted, FunctionCall), (ItemCompleted, Message),
    ]  # fmt: skip
    answered = whole[3]
    assert isinstance(answered, ItemCompleted)
    assert answered.output is not None
    assert answered.output.text == "nothing in a"
    assert answered.duration_ms is not None


async def test_a_turn_that_fails_says_why_and_ends(tmp_path: Path) -> None:
    seen: list[object] = []
    with ScriptedModel([http_error(401, "wrong key")]) as model:
        agent = Agent("gpt-5.5", tools=[], cwd=tmp_path, base_url=model.base_url, on_event=seen.append)
        with pytest.raises(ModelError):
            await agent.run("go")
    error, failed = seen[-2:]
    assert isinstance(error, ErrorEvent)
    assert isinstance(failed, TurnFailed)
    assert error.message == failed.message != ""


async def test_an_answer_that_was_cut_short_is_a_warning(tmp_path: Path) -> None:
    seen = await events(tmp_path, step("Hm", end="max_output_tokens"))
    assert [event.message for event in seen if isinstance(event, WarningEvent)] == [
        "the answer was cut short: max_output_tokens"
    ]


async def test_a_session_that_can_run_commands_says_what_confines_them(tmp_path: Path) -> None:
    """While a turn runs: its end is its last event, and the next turn tells what came later."""
    gate, events = Gate(), list[object]()

    def listen(event: object) -> None:
        events.append(event)
        if isinstance(event, SandboxStatus):
            gate.open()

    until_told = step("Done.", stall=Stall(gate=gate))
    with ScriptedModel(["Quick.", until_told, "Again."]) as model:
        agent = Agent("gpt-5.5", tools=["shell_command"], cwd=tmp_path, base_url=model.base_url, on_event=listen)
        async with await agent.open() as session, asyncio.timeout(30):
            status, session.toolset.workspace.status = session.toolset.workspace.status, asyncio.Event().wait  # type: ignore[method-assign, assignment]
            await session.run("go")
            session.toolset.workspace.status = status  # type: ignore[method-assign]
            assert isinstance(events[-1], TurnCompleted)
            await session.run("go")
            await session.run("go")
    [told] = [event for event in events if isinstance(event, SandboxStatus)]
    assert told.level
