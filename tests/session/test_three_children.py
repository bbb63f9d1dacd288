"""A parent with three children, of which one crashes, one asks the user, and one is interrupted, in a program."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from ferrule.protocol.events import UserInputRequest
from ferrule.protocol.specs import Wire
from ferrule.testing import ScriptedModel, function_call, http_error
from ferrule.tools.events import ChildEvent
from ferrule.tools.questions import Answer, UserAnswers
from tests.session.children import WIRES, Gate, Stage, agent_id, spawn, waiting


@pytest.mark.parametrize("wire", WIRES)
async def test_one_crashes_one_asks_and_one_is_interrupted(tmp_path: Path, wire: Wire) -> None:
    stage, gate, asked = Stage(tmp_path), Gate(), []

    def answer(question: Any) -> Answer:
        asked.append(question)
        return UserAnswers({"q": ("left",)})

    ask = {"questions": [{"id": "q", "question": "Which way?"}]}
    script: list[Any] = [[spawn("CRASH"), spawn("ASKS")], waiting(), waiting(at=1), "all done"]
    with ScriptedModel(script) as server:
        server.play(http_error(400, "it does not work"), when="CRASH")
        server.play(
            [function_call("request_user_input", ask)],
            lambda request: f"I went {json.loads(request.outputs[0].text)['answers']['q']['answers'][0]}",
            when="ASKS",
        )
        server.play([function_call("hold", {})], when="SLEEPS")
        tools = [gate.tool, "request_user_input"]
        async with await stage.open(server.base_url, wire, tools=tools, answer=answer) as session:
            sleeper = await session.spawn("SLEEPS")
            await gate.began.wait()
            sleeper.interrupt()
            async with asyncio.timeout(20):
                assert (await sleeper.wait()).state == "interrupted"
                result = await session.run("go")
            states = {info.agent_id: info.status.state for info in session._dialogue.children.infos()}
        assert result.text == "all done" and not server.failures
        request = server.last_request
        crashed, asks = agent_id(request), agent_id(request, 1)
        assert states == {sleeper.id: "interrupted", crashed: "errored", asks: "completed"}
        assert [(type(question), question.agent_id) for question in asked] == [(UserInputRequest, asks)]
        assert json.loads(request.outputs[2].text)["status"][crashed].keys() == {"errored"}
        assert json.loads(request.outputs[3].text)["status"] == {asks: {"completed": "I went left"}}
        notices = request.user_text.split("<subagent_notification>")[1:]
        assert sorted((crashed in text, asks in text) for text in notices) == [(False, True), (True, False)]
        took = sum(len(one.raw) // 4 for one in server.requests if one.status == 200)
        assert result.usage.input_tokens == session.usage.input_tokens == took
    told = [event for event in stage.events if isinstance(event, ChildEvent)]
    assert {event.thread_id for event in told} == {sleeper.id, crashed, asks}
    assert {event.parent_thread_id for event in told} == {session.id}
