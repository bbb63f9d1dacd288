"""An upstream of the Messages API: what its answers are to a client of the Responses API."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from ferrule.model.stream import MAX_PAUSES
from ferrule.protocol.specs import Wire
from ferrule.testing import ScriptedModel, defects, function_call, reasoning, step
from tests.responses.serving import WEATHER, Served, served

PAUSED = defects.stop_reason("pause_turn")
SEARCH: dict[str, Any] = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}


@pytest.fixture(scope="module")
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel() as running:
        yield running


@pytest.fixture
async def here(tmp_path: Path, model: ScriptedModel) -> AsyncIterator[Served]:
    async with served(tmp_path, model, "messages") as here:
        yield here
    model.check()


async def test_thinking_stays_with_its_call_over_two_responses(here: Served) -> None:
    call = function_call("get_weather", {"city": "SF"}, call_id="toolu_1")
    here.model.add(step(reasoning(text="Hm", encrypted_content="c2ln"), call), step("Sunny.", expect="sun"))
    first = await here.ask(tools=[WEATHER])
    assert [item["type"] for item in first.object["output"]] == ["reasoning", "function_call"]
    assert "c2ln" not in str(first.object)
    output = {"type": "function_call_output", "call_id": "toolu_1", "output": "sun"}
    await here.ask(tools=[WEATHER], previous_response_id=first.id, input=[output])
    blocks: Any = here.model.last_request.items[1]["content"]
    assert [block["type"] for block in blocks] == ["thinking", "tool_use"] and blocks[0]["signature"] == "c2ln"


@pytest.mark.parametrize("wire", ["messages", "chat"])
async def test_thinking_goes_back_by_a_client_that_keeps_its_conversation_itself(
    tmp_path: Path, model: ScriptedModel, wire: Wire
) -> None:
    call = function_call("get_weather", {"city": "SF"}, call_id="toolu_1")
    async with served(tmp_path, model, wire) as here:
        here.model.add(step(reasoning(text="Hm", encrypted_content="c2ln"), call), step("Sunny.", expect="sun"))
        asked: dict[str, Any] = {"tools": [WEATHER], "store": False, "include": ["reasoning.encrypted_content"]}
        first = await here.ask(**asked)
        output = {"type": "function_call_output", "call_id": "toolu_1", "output": "sun"}
        thought, called = first.object["output"]
        before = [{"role": "user", "content": "go"}, {**thought, "content": None}, called]
        await here.ask(**asked, input=[*before, output])
    said: Any = next(one for one in here.model.last_request.items if one.get("role") == "assistant")
    if wire == "messages":
        assert [block["type"] for block in said["content"]] == ["thinking", "tool_use"]
        assert (said["content"][0]["thinking"], said["content"][0]["signature"]) == ("Hm", "c2ln")
    else:
        assert said["reasoning_content"] == "Hm"


async def test_thinking_goes_back_to_the_models_that_made_it_alone(here: Served) -> None:
    here.model.add(step(reasoning(text="Hm", encrypted_content="c2ln"), "Yes."), "Again.", "Elsewhere.")
    asked: dict[str, Any] = {"store": False, "include": ["reasoning.encrypted_content"]}
    said = (await here.ask(**asked, model="claude-5")).object["output"]
    conversation = [{"role": "user", "content": "go"}, *said, {"role": "user", "content": "on"}]
    sent: dict[str, str] = {}
    for model in ("claude-5", "qwen3"):
        await here.ask(**asked, model=model, input=conversation)
        sent[model] = str(here.model.last_request.items)
    assert "c2ln" in sent["claude-5"] and "c2ln" not in sent["qwen3"]


async def test_a_paused_answer_is_one_response(here: Served) -> None:
    here.model.add(step("Searching.", SEARCH, edits=PAUSED), "Found it.")
    done = (await here.ask()).object
    texts = [part["text"] for item in done["output"] for part in item["content"]]
    assert (done["status"], texts) == ("completed", ["Searching.", "Found it."])
    asked: Any = here.model.last_request.items[-1]
    assert asked["role"] == "assistant" and [block["type"] for block in asked["content"]] == ["text", "server_tool_use"]


async def test_an_answer_that_is_paused_without_end_fails(here: Served) -> None:
    here.model.add(*[step("On and on.", edits=PAUSED)] * (MAX_PAUSES + 1))
    done = (await here.ask()).object
    assert done["status"] == "failed" and f"paused its answer {MAX_PAUSES + 1} times" in done["error"]["message"]


async def test_made_up_fields_do_not_change_what_a_message_is(tmp_path: Path, model: ScriptedModel) -> None:
    details: Any = [{"id": []}, {"id": []}]
    fields = {"role": "system", "content": 5, "tool_calls": [{"id": "x"}], "reasoning_details": details}
    thought = {"type": "reasoning", "summary": [], "chat_fields": fields, "chat_field": "role"}
    async with served(tmp_path, model) as here:
        here.model.add("Done.")
        said = {"role": "assistant", "content": "x"}
        done = await here.ask(
            input=[{"role": "user", "content": "go"}, thought, said, {"role": "user", "content": "on"}]
        )
    assert done.object["status"] == "completed"
    sent: Any = here.model.last_request.items[1]
    assert sent == {"role": "assistant", "content": "x", "reasoning_details": details[:1]}
