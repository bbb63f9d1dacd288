"""Responses over a scripted model, on both upstream wires: what the client is told, and what the model sees."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
from openresponses_types import ResponseResource

from ferrule.protocol.specs import Wire
from ferrule.responses.errors import ApiError
from ferrule.responses.history import ResponseCache
from ferrule.store import Conversation, FileRecord, Paging, Store, StoredResponse
from ferrule.testing import (
    Gate,
    RandomChunks,
    ScriptedModel,
    Stall,
    custom_tool_call,
    function_call,
    http_error,
    message,
    reasoning,
    refusal,
    step,
)
from tests.responses.serving import WEATHER, Json, Served, asked, events_of, kinds, served

SCREENSHOT = {"type": "computer_screenshot", "image_url": "data:image/png;base64,AA"}


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel() as model:
        yield model


@pytest.fixture(params=["chat", "responses"])
def wire(request: pytest.FixtureRequest) -> Wire:
    found: Wire = request.param
    return found


@pytest.fixture
async def here(tmp_path: Path, model: ScriptedModel, wire: Wire) -> AsyncIterator[Served]:
    async with served(tmp_path, model, wire) as here:
        yield here


def text_in(item: Json) -> str:
    return "".join(part["text"] for part in item["content"])


def check_stream(events: list[Json], final: Json) -> None:
    """Numbers are dense, and each item has one identity in its events, in the last object and in the store."""
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    added = {event["output_index"]: event["item"] for event in events if event["type"] == "response.output_item.added"}
    done = {event["output_index"]: event["item"] for event in events if event["type"] == "response.output_item.done"}
    assert {index: (item["id"], item["type"], item.get("call_id")) for index, item in added.items()} == {
        index: (item["id"], item["type"], item.get("call_id")) for index, item in done.items()
    }
    assert [item for _, item in sorted(done.items())] == final["output"]
    assert {event["item_id"] for event in events if "item_id" in event} <= {item["id"] for item in added.values()}


async def test_a_text_is_told_piece_by_piece_and_stored_whole(here: Served) -> None:
    here.model.add(step("Hello there", delta_chars=4))
    ledger = await here.engine.open(asked(metadata={"a": "b"}, some_future_field=[1]))
    events = await events_of(ledger)
    assert kinds(events) == [
        "created", "in_progress", "output_item.added", "content_part.added",
        "output_text.delta", "output_text.delta", "output_text.delta",
        "output_text.done", "content_part.done", "output_item.done", "completed",
    ]  # fmt: skip
    check_stream(events, ledger.object)
    assert "".join(event["delta"] for event in events if "delta" in event) == "Hello there"
    assert ledger.object["status"] == "completed"
    assert ledger.object["metadata"] == {"a": "b"}
    assert ledger.object["some_future_field"] == [1]
    assert ledger.object["usage"]["input_tokens_details"].keys() == {"cached_tokens", "cache_write_tokens"}
    ResponseResource.model_validate(ledger.object)
    assert await here.engine.retrieve(ledger.id) == ledger.object


async def test_a_response_continues_another_as_the_model_saw_it(here: Served) -> None:
    here.model.add(
        [reasoning("Hm."), message("One."), function_call("get_weather", {"city": "Rome"})], "Sunny.", "Rainy."
    )
    first = await here.ask(tools=[WEATHER], instructions="Be brief.")
    call = first.object["output"][-1]
    answer = {"type": "function_call_output", "call_id": call["call_id"], "output": "sun"}
    second = await here.ask(input=[answer], previous_response_id=first.id, tools=[WEATHER])
    assert text_in(second.object["output"][0]) == "Sunny."
    assert second.object["instructions"] is None
    await here.ask(input="and now?", previous_response_id=second.id)
    seen = here.model.last_request
    assert [output.text for output in seen.outputs] == ["sun"]
    assert "Be brief." not in json.dumps(seen.body)
    assert "Sunny." in json.dumps(seen.body)


async def test_a_call_without_output_and_an_output_without_call_are_refused(here: Served) -> None:
    here.model.add([function_call("get_weather", {"city": "Rome"})])
    first = await here.ask(tools=[WEATHER])
    with pytest.raises(ApiError, match="has no output"):
        await here.ask(previous_response_id=first.id)
    with pytest.raises(ApiError, match="no call 'c9' precedes") as raised:
        await here.ask(input=[{"type": "function_call_output", "call_id": "c9", "output": ""}])
    assert raised.value.param == "input[0]"


async def test_reasoning_and_refusals_have_events_of_their_own(here: Served) -> None:
    here.model.add([reasoning("Think. More."), refusal("I will not.")])
    ledger = await here.engine.open(asked())
    events = await events_of(ledger)
    check_stream(events, ledger.object)
    thought, said = ledger.object["output"]
    assert "Think. More." in json.dumps(thought)
    assert said["content"] == [{"type": "refusal", "refusal": "I will not."}]
    assert "refusal.done" in kinds(events)


async def test_an_id_that_an_upstream_uses_twice_stands_once(here: Served) -> None:
    here.model.add([reasoning("One.", id="rs_1"), reasoning("Two.", id="rs_1"), message("x", id="rs_1")])
    ledger = await here.engine.open(asked())
    check_stream(await events_of(ledger), ledger.object)
    ids = [item["id"] for item in ledger.object["output"]]
    assert len(set(ids)) == len(ids)


async def test_tools_are_told_upstream_and_echoed_whole(here: Served) -> None:
    here.model.add([custom_tool_call("sql", "select 1")])
    tools: list[Json] = [
        WEATHER,
        {"type": "custom", "name": "sql", "description": "Run it."},
        {"type": "namespace", "name": "crm", "description": "CRM", "tools": [{"type": "function", "name": "find"}]},
        {"type": "web_search", "search_context_size": "low"},
        {"type": "tool_of_the_future", "depth": 3},
    ]
    ledger = await here.ask(tools=tools, text={"format": {"type": "json_object"}})
    assert ledger.not_run == ("web_search", "tool_of_the_future")
    assert ledger.object["tools"][0] == {"description": None, **WEATHER, "strict": False}
    assert ledger.object["tools"][3:] == tools[3:]
    call = ledger.object["output"][0]
    assert (call["type"], call["name"], call["input"]) == ("custom_tool_call", "sql", "select 1")
    assert {"get_weather", "sql"} <= set(here.model.last_request.tool_names)


@pytest.mark.parametrize(
    ("tool", "arguments", "call", "output", "seen"),
    [
        (
            {"type": "apply_patch"},
            {"type": "create_file", "path": "a", "diff": "+x"},
            {"type": "apply_patch_call", "operation": {"type": "create_file", "path": "a", "diff": "+x"}},
            {"type": "apply_patch_call_output", "status": "failed", "output": "no room"},
            "no room",
        ),
        (
            {"type": "shell", "environment": {"type": "local"}},
            {"commands": ["ls", "pwd"], "timeout_ms": 9},
            {
                "type": "shell_call",
                "action": {"commands": ["ls", "pwd"], "timeout_ms": 9, "max_output_length": None},
                "environment": {"type": "local"},
            },
            {
                "type": "shell_call_output",
                "output": [
                    {"stdout": "a\n", "stderr": "", "outcome": {"type": "exit", "exit_code": 2}},
                    {"stdout": "", "stderr": "late", "outcome": {"type": "timeout"}},
                ],
            },
            "a\n[exit code 2]\n\nlate\n[timed out]",
        ),
        (
            {"type": "local_shell"},
            {"command": ["ls"], "working_directory": "/"},
            {
                "type": "local_shell_call",
                "action": {"type": "exec", "env": {}, "command": ["ls"], "working_directory": "/"},
            },
            {"type": "local_shell_call_output", "output": "bin"},
            "bin",
        ),
        (
            {"type": "computer"},
            {"actions": [{"type": "click", "x": 1, "y": 2}]},
            {
                "type": "computer_call",
                "actions": [{"button": "left", "type": "click", "x": 1, "y": 2}],
                "pending_safety_checks": [],
            },
            {"type": "computer_call_output", "output": SCREENSHOT},
            "The screen after the actions:",
        ),
        (
            {"type": "computer_use_preview", "display_width": 8, "display_height": 9, "environment": "browser"},
            {"type": "wait"},
            {"type": "computer_call", "action": {"type": "wait"}, "pending_safety_checks": []},
            {"type": "computer_call_output", "output": SCREENSHOT},
            "The screen after the actions:",
        ),
    ],
)  # fmt: skip
async def test_tools_that_the_client_runs_are_functions_upstream(
    here: Served, tool: Json, arguments: Json, call: Json, output: Json, seen: str
) -> None:
    name = "computer" if tool["type"].startswith("computer") else tool["type"]
    here.model.add([function_call(name, arguments)], "Done.")
    first = await here.engine.open(asked(tools=[tool]))
    check_stream(await events_of(first), first.object)
    said = first.object["output"][0]
    assert {key: said[key] for key in call} == call
    sent_back = {key: said[key] for key in said if key != "status"}
    answer = {**output, "call_id": said["call_id"], "id": said["call_id"]}
    for form in (
        {"input": [answer], "previous_response_id": first.id},
        {"input": [{"role": "user", "content": "hi"}, sent_back, answer], "store": False},
    ):
        here.model.add("Done.")
        await here.ask(tools=[tool], **form)
        (result,) = here.model.last_request.outputs
        assert result.text.startswith(seen)
    if tool["type"].startswith("computer"):
        assert "data:image/png;base64,AA" in json.dumps(here.model.last_request.body)


async def test_a_function_of_the_client_keeps_its_name_beside_ours(here: Served) -> None:
    here.model.add([function_call("apply_patch_2", {"type": "delete_file", "path": "x"})])
    ledger = await here.ask(tools=[{"type": "function", "name": "apply_patch"}, {"type": "apply_patch"}])
    assert ledger.object["output"][0]["type"] == "apply_patch_call"


async def test_a_wrong_call_is_never_shown_and_asked_again(here: Served) -> None:
    grammar = {"type": "grammar", "syntax": "regex", "definition": "[0-9]+"}
    tools: list[Json] = [{"type": "custom", "name": "number", "format": grammar}, {"type": "apply_patch"}]
    here.model.add(
        [message("I try."), custom_tool_call("number", "many"), function_call("apply_patch", {"type": "update_file"})],
        [custom_tool_call("number", "42")],
    )
    ledger = await here.engine.open(asked(tools=tools))
    events = await events_of(ledger)
    check_stream(events, ledger.object)
    assert [item["type"] for item in ledger.object["output"]] == ["message", "custom_tool_call"]
    assert ledger.object["output"][1]["input"] == "42"
    assert "many" not in json.dumps(events)
    assert "does not follow the tool's grammar" in here.model.last_request.outputs[0].text
    here.model.add("Thanks.")
    call_id = ledger.object["output"][1]["call_id"]
    output = {"type": "custom_tool_call_output", "call_id": call_id, "output": "ok"}
    await here.ask(tools=tools, input=[output], previous_response_id=ledger.id)
    assert "many" not in json.dumps(here.model.last_request.body)


async def test_a_call_that_stays_wrong_ends_the_response(here: Served) -> None:
    grammar = {"type": "grammar", "syntax": "regex", "definition": "[0-9]+"}
    here.model.add(*[[custom_tool_call("number", "many")]] * 9)
    ledger = await here.ask(tools=[{"type": "custom", "name": "number", "format": grammar}])
    assert ledger.object["status"] == "failed"
    assert ledger.object["output"] == []
    assert "after 8 corrections" in ledger.object["error"]["message"]
    assert len(here.model.requests) == 9


async def test_settings_and_formats_go_upstream(here: Served, wire: Wire) -> None:
    here.model.add('{"a": 1}')
    schema = {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "required": ["a"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "name": "answer", "schema": schema, "strict": True}
    ledger = await here.ask(
        text={"format": form}, top_p=0.5, temperature=0.1, max_output_tokens=77, service_tier="fast",
        tool_choice="none", reasoning={"effort": "high"}, tools=[WEATHER],
    )  # fmt: skip
    body = here.model.last_request.body
    assert (body["top_p"], body["temperature"]) == (0.5, 0.1)
    assert "answer" in json.dumps(body["text" if wire == "responses" else "response_format"])
    assert ledger.object["text"]["format"] == {"description": None, **form}
    assert ledger.object["service_tier"] == "priority"
    assert ledger.object["reasoning"] == {"effort": "high", "summary": None}


async def test_a_tool_choice_reaches_the_model(here: Served) -> None:
    here.model.add("a", "b", "c", "d")
    await here.ask(tools=[WEATHER], tool_choice={"type": "function", "name": "get_weather"})
    assert "get_weather" in json.dumps(here.model.last_request.body["tool_choice"])
    await here.ask(tools=[WEATHER], tool_choice="required")
    assert here.model.last_request.body["tool_choice"] == "required"
    other = {"type": "function", "name": "other"}
    await here.ask(tools=[WEATHER, other], tool_choice={"type": "allowed_tools", "mode": "auto", "tools": [other]})
    assert here.model.last_request.tool_names == ["other"]
    await here.ask(tools=[WEATHER, {"type": "web_search"}], tool_choice={"type": "web_search"})
    assert here.model.last_request.body.get("tool_choice", "auto") == "auto"
    with pytest.raises(ApiError, match="no tool 'nope'"):
        await here.ask(tools=[WEATHER], tool_choice={"type": "function", "name": "nope"})


@pytest.mark.parametrize(
    ("answer", "status", "code"),
    [
        (http_error(500, "boom sk-secret-123"), 502, "server_error"),
        (http_error(429, "slow down"), 429, "rate_limit_exceeded"),
        (http_error(400, "This model's maximum context length is 10 tokens", code="context_length_exceeded"), 400,
         "context_length_exceeded"),
        (step("half a sentence that breaks", cut_after="half"), 502, "server_error"),
    ],
)  # fmt: skip
async def test_an_upstream_that_fails_is_a_failed_response(here: Served, answer: Any, status: int, code: str) -> None:
    here.model.add(answer)
    ledger = await here.engine.open(asked())
    events = await events_of(ledger)
    assert kinds(events)[-1] == "failed"
    check_stream(events, ledger.object)
    assert ledger.object["status"] == "failed"
    assert ledger.object["error"]["code"] == code
    assert ledger.error is not None
    assert ledger.error.status == status
    assert all(item["status"] == "incomplete" for item in ledger.object["output"])
    assert (await here.engine.retrieve(ledger.id))["status"] == "failed"


async def test_an_answer_that_is_cut_short_says_why(here: Served) -> None:
    here.model.add(step("and then", end="max_output_tokens"))
    ledger = await here.ask()
    assert ledger.object["status"] == "incomplete"
    assert ledger.object["incomplete_details"] == {"reason": "max_output_tokens"}


async def test_nothing_is_stored_that_should_not_be(here: Served) -> None:
    here.model.add("Hello.", "Again.", "More.")
    ledger = await here.ask(store=False)
    with pytest.raises(ApiError) as raised:
        await here.engine.retrieve(ledger.id)
    assert raised.value.status == 404
    cache = ResponseCache()
    first = await here.ask(store=False, cache=cache)
    second = await here.ask(store=False, cache=cache, previous_response_id=first.id, input="go on")
    assert "Again." in json.dumps(here.model.last_request.body)
    with pytest.raises(ApiError) as raised:
        await here.ask(store=False, cache=ResponseCache(), previous_response_id=second.id)
    assert raised.value.code == "previous_response_not_found"
    with pytest.raises(ApiError, match="precedes"):
        await here.ask(
            store=False, cache=cache, previous_response_id=second.id,
            input=[{"type": "function_call_output", "call_id": "c", "output": ""}],
        )  # fmt: skip
    with pytest.raises(ApiError) as raised:
        await here.ask(store=False, cache=cache, previous_response_id=second.id)
    assert raised.value.code == "previous_response_not_found"


async def test_others_see_nothing(here: Served) -> None:
    here.model.add("Hello.")
    ledger = await here.ask(owner="a")
    for call in (
        here.engine.retrieve(ledger.id, "b"),
        here.engine.cancel(ledger.id, "b"),
        here.engine.delete(ledger.id, "b"),
        here.engine.input_items(ledger.id, "b", Paging()),
        here.engine.events(ledger.id, "b"),
        here.engine.open(asked(previous_response_id=ledger.id), "b"),
        here.engine.open(asked(input=[{"type": "item_reference", "id": ledger.object["output"][0]["id"]}]), "b"),
    ):
        with pytest.raises(ApiError) as raised:
            await call
        assert raised.value.status == 404
    assert (await here.engine.retrieve(ledger.id, "a"))["id"] == ledger.id


async def test_an_item_can_be_sent_by_its_id(here: Served) -> None:
    here.model.add("The word is cobalt.", "ok")
    first = await here.ask()
    await here.ask(
        input=[{"type": "item_reference", "id": first.object["output"][0]["id"]}, {"role": "user", "content": "which?"}]
    )
    assert "The word is cobalt." in json.dumps(here.model.last_request.body)


async def test_a_background_response_goes_on_alone_and_can_be_read_again(here: Served) -> None:
    gate = Gate()
    here.model.add(step("Hello there", stall=Stall(gate=gate)))
    ledger = await here.engine.open(asked(background=True))
    assert ledger.object["status"] in ("queued", "in_progress")
    await here.engine.abandon(ledger)
    gate.open()
    await ledger.finished()
    assert ledger.object["status"] == "completed"
    told = [json.loads(event) for _, event in await here.engine.events(ledger.id, "")]
    assert told == await events_of(ledger)
    assert kinds(told)[:3] == ["created", "queued", "in_progress"]
    later = await here.engine.events(ledger.id, "", after=4)
    assert [number for number, _ in later] == list(range(5, len(told)))


async def test_a_cancelled_response_stays_cancelled_and_tells_nothing_made_up(here: Served) -> None:
    gate = Gate()
    here.model.add(step("Hello there", stall=Stall(gate=gate)), "unused")
    ledger = await here.engine.open(asked(background=True))
    await asyncio.to_thread(gate.wait_reached)
    body = await here.engine.cancel(ledger.id)
    assert body["status"] == "cancelled"
    assert await here.engine.cancel(ledger.id) == body
    assert all(kind in ("created", "queued", "in_progress") for kind in kinds(await events_of(ledger)))
    gate.open()


async def test_a_foreground_response_cannot_be_cancelled_and_ends_with_its_client(here: Served) -> None:
    gate = Gate()
    here.model.add(step("Hello there", stall=Stall(gate=gate)))
    ledger = await here.engine.open(asked())
    await asyncio.to_thread(gate.wait_reached)
    with pytest.raises(ApiError) as raised:
        await here.engine.cancel(ledger.id)
    assert raised.value.status == 400
    await here.engine.abandon(ledger)
    assert (await here.engine.retrieve(ledger.id))["status"] == "cancelled"
    gate.open()


async def test_a_conversation_collects_what_is_said_in_it(here: Served) -> None:
    await here.store.create_conversation(Conversation(id="conv_1", owner="", created_at=0))
    here.model.add("The word is cobalt.", "cobalt")
    first = await here.ask(conversation="conv_1", input="say a word")
    assert first.object["conversation"] == {"id": "conv_1"}
    await here.ask(conversation={"id": "conv_1"}, input="which?")
    sent = json.dumps(here.model.last_request.body)
    assert "say a word" in sent
    assert "The word is cobalt." in sent
    page = await here.store.items("", "conv_1", Paging(order="asc"))
    assert page is not None
    assert [json.loads(item)["role"] for item in page.data] == ["user", "assistant", "user", "assistant"]
    with pytest.raises(ApiError) as raised:
        await here.ask(conversation="conv_2")
    assert raised.value.status == 404


async def test_a_conversation_is_compacted_at_its_threshold(here: Served) -> None:
    here.model.add("The word is cobalt.", "SUMMARY: cobalt", "cobalt", "again")
    first = await here.ask(input="word " * 400)
    second = await here.engine.open(
        asked(
            input="which?", previous_response_id=first.id,
            context_management=[{"type": "compaction", "compact_threshold": 100}],
        )
    )  # fmt: skip
    events = await events_of(second)
    check_stream(events, second.object)
    assert "compaction.compacting" in kinds(events)
    assert [item["type"] for item in second.object["output"]] == ["compaction", "message"]
    third = await here.ask(input="and?", previous_response_id=second.id)
    sent = json.dumps(here.model.last_request.body)
    assert "SUMMARY: cobalt" in sent
    assert "The word is cobalt." not in sent
    assert third.object["status"] == "completed"
    here.model.add("ok")
    await here.ask(input=[second.object["output"][0], {"role": "user", "content": "go"}], store=False)
    assert "SUMMARY: cobalt" in json.dumps(here.model.last_request.body)


async def test_a_trigger_compacts_and_nothing_else(here: Served) -> None:
    here.model.add("SUMMARY")
    ledger = await here.ask(input=[{"role": "user", "content": "hi"}, {"type": "compaction_trigger"}])
    assert [item["type"] for item in ledger.object["output"]] == ["compaction"]
    with pytest.raises(ApiError, match="last item"):
        await here.ask(input=[{"type": "compaction_trigger"}, {"role": "user", "content": "hi"}])


async def test_compact_returns_the_users_words_and_a_summary(here: Served) -> None:
    here.model.add("SUMMARY")
    body = await here.engine.compact(
        asked(input=[{"role": "user", "content": "remember"}, {"role": "assistant", "content": "ok"}])
    )
    assert [item["type"] for item in body["output"]] == ["message", "compaction"]
    assert body["object"] == "response.compaction"
    assert body["output"][0]["content"] == [{"type": "input_text", "text": "remember"}]
    here.model.add("ok")
    await here.ask(input=[*body["output"], {"role": "user", "content": "go"}])
    assert "SUMMARY" in json.dumps(here.model.last_request.body)


async def test_a_request_that_is_too_long_is_cut_where_the_client_wants_that(here: Served) -> None:
    too_long = http_error(400, "This model's maximum context length is 10 tokens", code="context_length_exceeded")
    items = [{"role": "user", "content": f"message {number} " + "word " * 50} for number in range(20)]
    here.model.add(too_long, "Fits.")
    ledger = await here.ask(input=items, truncation="auto")
    assert ledger.object["status"] == "completed"
    sent = json.dumps(here.model.last_request.body)
    assert "message 19" in sent
    assert "message 0 " not in sent


async def test_the_settings_of_a_conversation_can_change_on_its_way(here: Served, wire: Wire) -> None:
    here.model.add("ok")
    update = {"type": "configuration_update", "reasoning": {"effort": "low"}}
    await here.ask(input=[update, {"role": "user", "content": "hi"}])
    body: Json = dict(here.model.last_request.body)
    assert (body["reasoning"]["effort"] if wire == "responses" else body["reasoning_effort"]) == "low"
    assert "configuration_update" not in json.dumps(body)


async def test_any_chunking_gives_the_same_items(here: Served) -> None:
    said = [reasoning("Hm. Well."), message("Grüße 🔧!"), function_call("get_weather", {"city": "Köln"})]
    outputs = []
    for seed in range(12):
        here.model.add(step(*said, delta_chars=3, chunks=RandomChunks(seed)))
        ledger = await here.engine.open(asked(tools=[WEATHER]))
        check_stream(await events_of(ledger), ledger.object)
        outputs.append(
            [{k: v for k, v in item.items() if k not in ("id", "call_id")} for item in ledger.object["output"]]
        )
    assert all(output == outputs[0] for output in outputs)


async def test_readers_may_come_late_and_leave_early(here: Served) -> None:
    here.model.add("Hello.")
    ledger = await here.engine.open(asked())
    async for number, _ in ledger.read():
        if number == 1:
            break
    assert (await events_of(ledger, 3))[0]["sequence_number"] == 4
    assert len(await events_of(ledger)) > 5


async def test_input_items_are_whole(here: Served) -> None:
    """A message that is given as a text has an id, a status and parts."""
    here.model.add("Hello.")
    given = [{"role": "user", "content": "a"}, {"type": "message", "role": "assistant", "content": "b", "status": None}]
    ledger = await here.ask(input=given)
    page = await here.engine.input_items(ledger.id, "", Paging(order="asc"))
    items = [json.loads(item) for item in page.data]
    assert [[(part["type"], part["text"]) for part in item["content"]] for item in items] == [
        [("input_text", "a")],
        [("output_text", "b")],
    ]
    assert all(item["id"].startswith("msg_") and item["status"] == "completed" for item in items)


@pytest.mark.parametrize(
    ("call", "output"),
    [
        ({"type": "function_call", "name": "f", "arguments": "{}"}, {"output": "a"}),
        ({"type": "custom_tool_call", "name": "f", "input": "x"}, {"output": "a", "status": None}),
        ({"type": "shell_call", "action": {"commands": ["ls"]}}, {"output": []}),
        ({"type": "computer_call", "actions": [], "pending_safety_checks": []}, {"output": {"type": "x"}}),
    ],
)
async def test_listed_calls_and_outputs_have_a_status(here: Served, call: Json, output: Json) -> None:
    here.model.add("Hello.")
    ledger = await here.ask(
        input=[call | {"call_id": "c"}, {"type": f"{call['type']}_output", "call_id": "c"} | output]
    )
    page = await here.engine.input_items(ledger.id, "", Paging())
    assert [json.loads(item)["status"] for item in page.data] == ["completed"] * 2


async def test_a_count_of_tokens_needs_no_model(here: Served) -> None:
    few = await here.engine.input_tokens(asked(input="a word"))
    many = await here.engine.input_tokens(asked(input="a word " * 1000, tools=[WEATHER]))
    assert 0 < few < 50
    assert many > 1000
    assert here.model.requests == []


async def test_what_ran_when_the_server_died_says_so(tmp_path: Path, model: ScriptedModel) -> None:
    store = await Store.open(tmp_path / "gateway.db")
    item = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": []}
    events: list[Json] = [
        {"type": "response.created", "sequence_number": 0, "response": {}},
        {"type": "response.output_item.added", "sequence_number": 1, "output_index": 0, "item": item},
        {"type": "response.output_item.done", "sequence_number": 2, "output_index": 0, "item": item},
    ]
    for name, background in (("resp_a", False), ("resp_b", True)):
        begun = {"id": name, "status": "in_progress", "background": background, "output": []}
        await store.create_response(
            StoredResponse(
                id=name, owner="", created_at=1, status="in_progress", body=json.dumps(begun).encode(),
                background=background,
            )
        )  # fmt: skip
    await store.append_events("resp_b", 0, [json.dumps(event).encode() for event in events])
    await store.aclose()
    async with served(tmp_path, model) as here:
        for name, output in (("resp_a", []), ("resp_b", [item])):
            body: Json = await here.engine.retrieve(name)
            assert (body["status"], body["output"]) == ("failed", output)
            assert "ended while this response ran" in body["error"]["message"]
        told = await here.engine.events("resp_b", "")
        assert [number for number, _ in told] == [0, 1, 2, 3]
        assert json.loads(told[-1][1])["type"] == "response.failed"


async def test_a_store_that_cannot_write_fails_the_response_before_it_is_told_complete(here: Served) -> None:
    gate = Gate()
    here.model.add(step("Hello.", stall=Stall(gate=gate)))
    ledger = await here.engine.open(asked())
    await asyncio.to_thread(gate.wait_reached)
    await here.store.aclose()
    gate.open()
    await ledger.finished()
    assert ledger.object["status"] == "failed"
    assert kinds(await events_of(ledger))[-1] == "failed"


async def test_files_named_by_id_reach_the_model_whole(here: Served) -> None:
    async def chunks(data: bytes) -> AsyncIterator[bytes]:
        yield data

    pixel = b"\x89PNG\r\n\x1a\n" + bytes(24)
    for name, data in (("a.png", pixel), ("b.pdf", b"%PDF-1.7")):
        record = FileRecord(id=f"file-{name[0]}", owner="", created_at=0, filename=name, purpose="vision")
        await here.store.create_file(record, chunks(data))
    content = [{"type": "input_image", "file_id": "file-a"}, {"type": "input_file", "file_id": "file-b"}]
    here.model.add("Seen.")
    ledger = await here.ask(input=[{"role": "user", "content": content}])
    sent = json.dumps(here.model.last_request.body)
    assert "data:image/png;base64,iVBORw0KGgo" in sent
    assert "data:application/pdf;base64,JVBERi0xLjc=" in sent
    assert "b.pdf" in sent
    page = await here.engine.input_items(ledger.id, "", Paging())
    assert json.loads(page.data[0])["content"] == content
    with pytest.raises(ApiError, match="no file 'file-c'") as raised:
        await here.ask(input=[{"role": "user", "content": [{"type": "input_image", "file_id": "file-c"}]}])
    assert raised.value.status == 404
    with pytest.raises(ApiError, match="no file 'file-a'"):
        await here.ask(owner="b", input=[{"role": "user", "content": content}])
