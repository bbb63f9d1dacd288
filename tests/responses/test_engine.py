"""Responses over a scripted model, on both upstream wires: what the client is told, and what is stored."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from openresponses_types import ResponseResource

from ferrule.protocol.specs import Wire
from ferrule.responses.errors import ApiError
from ferrule.responses.history import ResponseCache
from ferrule.store import FileRecord, Paging
from ferrule.testing import RandomChunks, function_call, http_error, message, reasoning, refusal, step
from tests.responses.serving import WEATHER, Served, asked, check_stream, events_of, kinds, text_in


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
        text={"format": form, "verbosity": "low"}, top_p=0.5, temperature=0.1, max_output_tokens=77,
        service_tier="fast", tool_choice="none", reasoning={"effort": "high", "summary": "detailed"}, tools=[WEATHER],
        parallel_tool_calls=False, presence_penalty=0.5, frequency_penalty=0.25,
    )  # fmt: skip
    body = here.model.last_request.body
    assert (body["top_p"], body["temperature"], body["parallel_tool_calls"]) == (0.5, 0.1, False)
    assert body["max_output_tokens" if wire == "responses" else "max_tokens"] == 77
    assert (body["presence_penalty"], body["frequency_penalty"], body["service_tier"]) == (0.5, 0.25, "fast")
    if wire == "responses":
        assert body["reasoning"] == {"effort": "high", "summary": "detailed"}
        assert body["text"]["verbosity"] == "low"  # type: ignore[index]
    else:
        assert (body["reasoning_effort"], body["verbosity"]) == ("high", "low")
    assert "answer" in json.dumps(body["text" if wire == "responses" else "response_format"])
    assert ledger.object["text"]["format"] == {"description": None, **form}
    assert ledger.object["service_tier"] == "priority"
    assert ledger.object["reasoning"] == {"effort": "high", "summary": "detailed"}


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


async def test_a_count_of_tokens_needs_no_model(here: Served) -> None:
    few = await here.engine.input_tokens(asked(input="a word"))
    many = await here.engine.input_tokens(asked(input="a word " * 1000, tools=[WEATHER]))
    assert 0 < few < 50
    assert many > 1000
    assert here.model.requests == []


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
