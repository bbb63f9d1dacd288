"""What the user says while a turn runs reaches the model before its next answer."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from ferrule import Agent, tool
from ferrule.protocol.errors import UsageError
from ferrule.protocol.events import WarningEvent
from ferrule.protocol.specs import Wire
from ferrule.session.hooks import HookInput, HookOutput, PythonHook
from ferrule.testing import ScriptedModel, function_call


def users(server: ScriptedModel, number: int) -> list[str]:
    return [str(item["content"]) for item in server.requests[number].items if item.get("role") == "user"]


class Waits:
    """A tool that waits until it is let go."""

    def __init__(self) -> None:
        self.began, self.may_end = asyncio.Event(), asyncio.Event()

    @property
    def tool(self) -> Any:
        @tool(read_only=True)
        async def wait_here() -> str:
            self.began.set()
            await self.may_end.wait()
            return "waited"

        return wait_here


@pytest.mark.parametrize("wire", ["responses", "chat", "messages"])
async def test_words_during_a_tool_are_read_at_the_next_sampling(tmp_path: Path, wire: Wire) -> None:
    waits = Waits()
    with ScriptedModel([[function_call("wait_here", {})], "done"]) as server:
        agent = Agent("m", tools=[waits.tool], cwd=tmp_path, base_url=server.base_url, wire=wire)
        async with await agent.open() as session:
            with pytest.raises(UsageError, match="no turn is running"):
                session.steer("too early")
            turn = asyncio.ensure_future(session.run("go"))
            await waits.began.wait()
            session.steer("to the left")
            session.steer("and fast")
            waits.may_end.set()
            assert (await turn).text == "done"
        said = "".join(users(server, 1)[len(users(server, 0)) :])
        assert "to the left" in said and "and fast" in said and not server.failures


async def test_words_during_the_last_answer_make_the_turn_go_on(tmp_path: Path) -> None:
    with ScriptedModel(["first", "second"]) as server:

        def on_event(event: Any) -> None:
            if type(event).__name__ == "ItemCompleted" and len(server.requests) == 1:
                session.steer("one more thing")

        agent = Agent("m", tools=[], cwd=tmp_path, base_url=server.base_url, on_event=on_event)
        async with await agent.open() as session:
            assert (await session.run("go")).text == "second"
        assert "one more thing" in users(server, 1)[-1]


async def test_words_of_an_interrupted_turn_are_not_lost(tmp_path: Path) -> None:
    waits = Waits()
    with ScriptedModel([[function_call("wait_here", {})], "done"]) as server:
        async with await Agent("m", tools=[waits.tool], cwd=tmp_path, base_url=server.base_url).open() as session:
            turn = asyncio.ensure_future(session.run("go"))
            await waits.began.wait()
            session.steer("to the left")
            session.interrupt()
            assert (await turn).aborted
            await session.run("again")
        assert any("to the left" in text for text in users(server, 1))


async def test_a_hook_refuses_words_and_the_turn_goes_on(tmp_path: Path) -> None:
    def hook(told: HookInput) -> HookOutput | None:
        return HookOutput(decision="block", reason="a secret") if "key" in str(told.prompt) else None

    waits, events = Waits(), list[Any]()
    with ScriptedModel([[function_call("wait_here", {})], "done"]) as server:
        agent = Agent(
            "m", tools=[waits.tool], cwd=tmp_path, base_url=server.base_url, on_event=events.append,
            hooks=[PythonHook("UserPromptSubmit", hook)],
        )  # fmt: skip
        async with await agent.open() as session:
            turn = asyncio.ensure_future(session.run("go"))
            await waits.began.wait()
            session.steer("my key is 7")
            waits.may_end.set()
            assert (await turn).text == "done"
        assert "my key" not in server.requests[1].raw.decode()
        assert any("a secret" in event.message for event in events if isinstance(event, WarningEvent))
