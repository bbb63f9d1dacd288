"""Lanes of a WebSocket, and input that is added while a response runs."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from ferrule.testing import Gate, ScriptedModel, Stall, function_call, message, step
from tests.gateway.served import Json, Served
from tests.gateway.test_limits import gateway_here

ENDS = ("response.completed", "response.failed", "response.incomplete", "error")
TOOL = {"type": "function", "name": "look"}


class Line:
    """A connection that speaks JSON."""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection

    async def create(self, **body: Any) -> None:
        await self.send({"type": "response.create", "model": "m", "input": "hi", "store": False} | body)

    async def steer(self, response_id: str, given: Any = "And two?") -> None:
        await self.send({"type": "response.steer", "previous_response_id": response_id, "input": given})

    async def send(self, message: Json) -> None:
        await self._connection.send(json.dumps(message))

    async def until(self, *kinds: str) -> list[Json]:
        """The events up to one of these types."""
        found: list[Json] = []
        while not found or found[-1]["type"] not in kinds:
            found.append(json.loads(await asyncio.wait_for(self._connection.recv(), 30)))
        return found

    async def begun(self, **body: Any) -> str:
        """Create a response; return its id."""
        await self.create(**body)
        response_id: str = (await self.until("response.created"))[-1]["response"]["id"]
        return response_id


@asynccontextmanager
async def line_to(url: str) -> AsyncIterator[Line]:
    async with connect(url.replace("http", "ws") + "/responses") as connection:
        yield Line(connection)


@asynccontextmanager
async def line_over(folder: Path, *steps: Any) -> AsyncIterator[tuple[Line, ScriptedModel]]:
    with ScriptedModel(list(steps)) as model:
        async with gateway_here(folder, model) as url, line_to(url) as line:
            yield line, model


async def test_lanes_run_at_once_and_each_in_order(gateway: Served) -> None:
    async with line_to(gateway.url) as line:
        await line.create(input="hold", stream_id="a")
        await line.until("response.output_text.delta")
        for text in ("one", "two"):
            await line.create(input=text, stream_id="b")
        for text in ("one", "two"):
            events = await line.until(*ENDS)
            assert {event["stream_id"] for event in events} == {"b"}
            assert events[-1]["response"]["output"][0]["content"][0]["text"] == f"You said: {text}"
        await line.create(stream_id="c", temperature="hot")
        (error,) = await line.until("error")
        assert error["stream_id"] == "c" and error["error"]["param"] == "temperature"
        await line.create(stream_id=3)
        assert (await line.until("error"))[-1]["error"]["param"] == "stream_id"


async def test_what_is_added_is_answered_by_a_response_that_follows(tmp_path: Path) -> None:
    gate = Gate()
    async with line_over(tmp_path, step("One.", stall=Stall(gate=gate)), "Two.") as (line, model):
        first = await line.begun(instructions="Count.", stream_id="a")
        await line.steer(first)
        accepted = (await line.until("response.steer.accepted"))[-1]
        assert accepted["stream_id"] == "a" and accepted["steer"]["previous_response_id"] == first
        gate.open()
        assert (await line.until(*ENDS))[-1]["type"] == "response.completed"
        second = (await line.until(*ENDS))[-1]["response"]
        assert second["previous_response_id"] == first and second["instructions"] == "Count."
        assert second["output"][0]["content"][0]["text"] == "Two."
        assert model.last_request.user_text.endswith("And two?")


async def test_what_is_added_ends_a_response_before_its_next_item(tmp_path: Path) -> None:
    gate = Gate()
    answer = step(message("I will look."), function_call("look", {}), stall=Stall(at="look.", gate=gate))
    async with line_over(tmp_path, answer, "Two.") as (line, model):
        first = await line.begun(tools=[TOOL])
        await line.steer(first)
        await line.until("response.steer.accepted")
        gate.open()
        ended = (await line.until(*ENDS))[-1]["response"]
        assert (ended["status"], ended["incomplete_details"]) == ("incomplete", {"reason": "steered"})
        assert [item["type"] for item in ended["output"]] == ["message"]
        assert (await line.until(*ENDS))[-1]["response"]["output"][0]["content"][0]["text"] == "Two."
        assert "I will look." in json.dumps(model.last_request.body)


async def test_what_is_added_waits_for_the_output_of_a_call(tmp_path: Path) -> None:
    gate = Gate()
    call = step(function_call("look", {}, call_id="c1"), stall=Stall(gate=gate))
    async with line_over(tmp_path, call, "Two.") as (line, model):
        first = await line.begun(tools=[TOOL])
        await line.steer(first)
        await line.until("response.steer.accepted")
        gate.open()
        waits = (await line.until("response.steer.pending"))[-1]
        stub = {"type": "function_call_output", "call_id": "c1", "name": "look"}
        assert waits["required_input"] == [stub] and waits["reason"] == "waiting_for_required_input"
        await line.create(previous_response_id=first, tools=[TOOL], input=[{**stub, "output": "a river"}])
        assert (await line.until(*ENDS))[-1]["type"] == "response.completed"
        assert [output.text for output in model.last_request.outputs] == ["a river"]
        sent: Any = model.last_request.body
        roles = [entry["role"] for entry in sent["messages"]]
        assert roles == ["user", "assistant", "tool", "user"]
        assert model.last_request.user_text.endswith("And two?")


async def test_what_cannot_be_added_is_given_back(tmp_path: Path) -> None:
    gate = Gate()
    async with line_over(tmp_path, step("One.", stall=Stall(gate=gate))) as (line, _):
        first = await line.begun(context_management=[{"type": "compaction"}])
        for target, given, code in (
            ("resp_none", "x", "response_not_found"),
            (first, [{"role": "system", "content": "x"}], "invalid_input"),
            (first, [{"role": "user", "content": [{"type": "input_text"}]}], "invalid_input"),
            (first, [], "invalid_input"),
            (first, "x", "steering_not_supported"),
        ):
            await line.steer(target, given)
            told = (await line.until("response.steer.failed"))[-1]
            assert told["error"]["code"] == code and told["error"]["message"]
            assert told["steer"] == {"previous_response_id": target, "input": given}
        await line.send({"type": "response.steer", "input": "x"})
        assert (await line.until("error"))[-1]["error"]["param"] == "previous_response_id"
        gate.open()
        assert (await line.until(*ENDS))[-1]["type"] == "response.completed"
