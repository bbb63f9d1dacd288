"""Conversations: what they collect, and how they are kept within the window."""

import json

import pytest

from ferrule.protocol.specs import Wire
from ferrule.responses.errors import ApiError
from ferrule.store import Conversation, Paging
from ferrule.testing import http_error
from tests.responses.serving import Json, Served, asked, check_stream, events_of, kinds


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
