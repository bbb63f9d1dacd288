"""Calls that the server runs itself, on both upstream wires: the loop, not a tool of ours."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from ferrule.hosted.tool import HostedCall, HostedTool, Scope, Telling, ToolRefused
from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.items import OutputBody
from ferrule.protocol.json_schema import JsonSchema
from ferrule.protocol.specs import ResponsesApiTool, Wire
from ferrule.responses.errors import ApiError
from ferrule.testing import ScriptedModel, function_call, message, reasoning, step
from tests.responses.serving import WEATHER, Json, Served, asked, check_stream, events_of, kinds, served

TOOL: Json = {"type": "shout", "loudness": 3}
ALLOWED: Json = {"type": "allowed_tools", "mode": "auto"}


class Shout(HostedTool):
    """Returns its text in capitals, and tells an item of it. `held`: calls wait for it."""

    kind = "shout"

    def __init__(self) -> None:
        self.calls: list[HostedCall] = []
        self.begun = asyncio.Event()
        self.held: asyncio.Event | None = None

    async def check(self, tool: Json, owner: str) -> str:
        if tool["loudness"] > 9:
            raise ToolRefused("nothing is that loud", "loudness")
        return ". Mind the neighbours"

    def functions(self, tool: Json) -> Sequence[ResponsesApiTool]:
        return [
            ResponsesApiTool(name="shout", description=f"Loudness {tool['loudness']}", parameters=JsonSchema({})),
            ResponsesApiTool(name="hush", description="Be quiet", parameters=JsonSchema({})),
        ]

    async def run(self, call: HostedCall, telling: Telling) -> OutputBody:
        self.calls.append(call)
        text: str = json.loads(call.arguments).get("text", "")
        if not text:
            raise RespondToModel("shout: `text` is required")
        item = telling.add_item("shout_call", {"text": ""})
        self.begun.set()
        if self.held is not None:
            await self.held.wait()
        telling.tell_of(item, "response.shout_call.completed")
        telling.end_item(item, {"text": text.upper()})
        return text.upper()

    async def citations(self, scope: Scope, used: Sequence[str], text: str) -> Sequence[Json]:
        at = text.find("HEY")
        return (
            []
            if at < 0
            else [{"type": "url_citation", "url": "x:", "title": "", "start_index": at, "end_index": at + 3}]
        )


@pytest.fixture
def shout() -> Shout:
    return Shout()


@pytest.fixture
async def here(tmp_path: Path, model: ScriptedModel, wire: Wire, shout: Shout) -> AsyncIterator[Served]:
    async with served(tmp_path, model, wire, hosted=(shout,)) as here:
        yield here


def shouted(text: str) -> Json:
    return function_call("shout", {"text": text})


async def test_a_call_of_ours_is_run_and_the_model_goes_on(here: Served, shout: Shout) -> None:
    here.model.add([reasoning("Loud."), message("Listen:"), shouted("hey")], "Done: HEY!")
    ledger = await here.engine.open(asked(tools=[TOOL], include=["x"]), "somebody")
    events = await events_of(ledger)
    check_stream(events, ledger.object)
    assert [item["type"] for item in ledger.object["output"]] == ["reasoning", "message", "shout_call", "message"]
    assert "shout_call.completed" in kinds(events) and "function_call" not in json.dumps(events)
    assert ledger.object["output"][2]["text"] == "HEY"
    (said,) = ledger.object["output"][3]["content"]
    assert said["text"][said["annotations"][0]["start_index"] :] == "HEY!"
    assert "output_text.annotation.added" in kinds(events)
    assert ledger.not_run == ()
    (call,) = shout.calls
    assert (call.scope.owner, call.tool) == ("somebody", TOOL) and call.scope.include == frozenset({"x"})
    (seen,) = here.model.last_request.outputs
    assert seen.text == "HEY"
    assert here.model.last_request.body["parallel_tool_calls"] is False
    assert "Loudness 3. Mind the neighbours" in json.dumps(here.model.last_request.body["tools"])
    assert ledger.object["usage"]["output_tokens"] > 0
    here.model.add("And so on.")
    await here.ask(input="and?", previous_response_id=ledger.id, owner="somebody")
    assert [output.text for output in here.model.last_request.outputs] == ["HEY"]


async def test_calls_of_one_answer_run_side_by_side_and_are_answered_in_order(here: Served, shout: Shout) -> None:
    shout.held = asyncio.Event()
    here.model.add([shouted("a"), shouted("b")], "Done.")
    ledger = await here.engine.open(asked(tools=[TOOL]))
    await shout.begun.wait()
    while len(shout.calls) < 2:  # noqa: ASYNC110 - both begin before one ends
        await asyncio.sleep(0)
    shout.held.set()
    await ledger.finished()
    assert [output.text for output in here.model.last_request.outputs] == ["A", "B"]


async def test_a_call_of_the_client_beside_ours_ends_the_response(here: Served) -> None:
    here.model.add([shouted("a"), function_call("get_weather", {"city": "Rome"})])
    ledger = await here.ask(tools=[TOOL, WEATHER])
    call = next(item for item in ledger.object["output"] if item["type"] == "function_call")
    assert {item["type"] for item in ledger.object["output"]} == {"shout_call", "function_call"}
    here.model.add("Done.")
    answer = {"type": "function_call_output", "call_id": call["call_id"], "output": "sun"}
    await here.ask(tools=[TOOL, WEATHER], input=[answer], previous_response_id=ledger.id)
    assert {output.text for output in here.model.last_request.outputs} == {"A", "sun"}


async def test_a_wrong_call_of_ours_is_told_to_the_model_alone(here: Served) -> None:
    here.model.add([function_call("shout", {})], [shouted("b")], "Done.")
    ledger = await here.ask(tools=[TOOL])
    assert [item["type"] for item in ledger.object["output"]] == ["shout_call", "message"]
    assert [output.text for output in here.model.last_request.outputs] == ["shout: `text` is required", "B"]


async def test_a_tool_may_be_several_functions(here: Served, shout: Shout) -> None:
    here.model.add([function_call("hush_2", {"text": "a"})], "Done.")
    own = {"type": "function", "name": "hush", "parameters": {"type": "object", "properties": {}}}
    await here.ask(tools=[TOOL, own, WEATHER], tool_choice=ALLOWED | {"tools": [{"type": "shout"}]})
    told = json.dumps(here.model.requests[0].body["tools"])
    assert [call.function for call in shout.calls] == ["hush"]
    assert ('"shout"' in told, '"hush_2"' in told, '"get_weather"' in told) == (True, True, False)


async def test_only_as_many_calls_are_run_as_the_client_allows(here: Served, shout: Shout) -> None:
    here.model.add([shouted("a")], [shouted("b"), shouted("c")], [message("Enough."), shouted("d")])
    ledger = await here.ask(tools=[TOOL, WEATHER], max_tool_calls=2)
    assert [json.loads(call.arguments)["text"] for call in shout.calls] == ["a", "b"]
    assert ledger.object["status"] == "completed"
    assert [item["type"] for item in ledger.object["output"]] == ["shout_call", "shout_call", "message"]
    last = here.model.last_request
    assert "was not run" in last.outputs[-1].text
    assert "Loudness" not in json.dumps(last.body["tools"]) and "get_weather" in json.dumps(last.body["tools"])
    here.model.add("On.")
    await here.ask(input="go on", previous_response_id=ledger.id)


async def test_a_tool_that_cannot_run_is_refused_with_its_field(here: Served) -> None:
    with pytest.raises(ApiError, match="nothing is that loud") as raised:
        await here.ask(tools=[WEATHER, TOOL | {"loudness": 10}])
    assert (raised.value.param, here.model.requests) == ("tools[1].loudness", [])


async def test_a_tool_that_was_asked_for_is_asked_for_once(here: Served) -> None:
    here.model.add([shouted("a")], "Done.")
    await here.ask(tools=[TOOL], tool_choice={"type": "shout"})
    first, last = here.model.requests
    assert "shout" in json.dumps(first.body["tool_choice"])
    assert last.body.get("tool_choice", "auto") == "auto"


async def test_a_cancelled_call_leaves_a_conversation_that_goes_on(here: Served, shout: Shout) -> None:
    shout.held = asyncio.Event()
    here.model.add(step(message("Wait."), shouted("a")))
    ledger = await here.engine.open(asked(tools=[TOOL], background=True))
    await shout.begun.wait()
    ended = await here.engine.cancel(ledger.id)
    assert ended["status"] == "cancelled"
    assert [(item["type"], item["status"]) for item in ended["output"]] == [
        ("message", "completed"),
        ("shout_call", "incomplete"),
    ]
    here.model.add("On.")
    await here.ask(input="go on", previous_response_id=ledger.id)
    assert here.model.last_request.outputs == ()
