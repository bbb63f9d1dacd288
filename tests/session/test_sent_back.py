"""What goes back to a server: what it wants to have kept, in the form that it takes, and to nobody else."""

import json
import re
from contextlib import suppress
from typing import Any

import pytest

from ferrule.model.stream import ModelError
from ferrule.protocol.specs import Wire
from ferrule.testing import ScriptedModel, message
from ferrule.testing.steps import raw
from tests.session.conversations import (
    Place,
    assistants,
    call,
    chunks,
    function_call,
    items,
    kinds,
    said,
    sent,
    thought,
)

SIGNATURE = {"google": {"thought_signature": "SIGxyz"}}
WORDS = chunks({"content": "Done."})


@pytest.mark.parametrize("profile", ["gemini", None])
async def test_m001_signatures_go_back_at_their_call_and_only_to_who_made_them(
    place: Place, profile: str | None
) -> None:
    asked = call(extra_content=SIGNATURE)
    script = [chunks(asked), chunks({"content": "Well."}, {"content": "", "extra_content": SIGNATURE}), WORDS]
    with ScriptedModel(script) as server:
        await place.talk(server, "chat", "go", profile=profile, model="gemini-3-pro")
        assert assistants(server)[0]["tool_calls"][0]["extra_content"] == SIGNATURE
        await place.talk(server, "chat", "more", profile=profile, model="gemini-3-pro", resume=True)
        first, second = assistants(server)
        assert first["tool_calls"][0]["extra_content"] == SIGNATURE
        assert second["extra_content"] == SIGNATURE
        server.add(WORDS)
        await place.talk(server, "chat", "more", profile="deepseek", model="deepseek-chat", name="other", resume=True)
        assert "SIGxyz" not in json.dumps(sent(server))
        server.add([message("Done.")])
        await place.talk(server, "responses", "more", name="third", model="gpt-5.5", resume=True)
        assert "SIGxyz" not in json.dumps(sent(server)) and "chat_field" not in json.dumps(sent(server))


async def test_m002_reasoning_details_come_back_whole_and_in_order(place: Place) -> None:
    deltas: list[dict[str, Any]] = [
        {"reasoning": "I ", "reasoning_details": [{"type": "reasoning.text", "text": "I ", "index": 0}]},
        {"reasoning": "see", "reasoning_details": [{"type": "reasoning.text", "text": "see", "index": 0}]},
        {"reasoning_details": [{"type": "reasoning.text", "signature": "sg", "format": "a-v1", "index": 0}]},
        {"reasoning_details": [{"type": "reasoning.encrypted", "data": "ENCRxyz", "id": "r1", "index": 1}]},
        call(),
        {"reasoning_details": [{"type": "reasoning.encrypted", "data": "LATE", "id": "call_1", "index": 2}]},
    ]
    whole = [
        {"type": "reasoning.text", "text": "I see", "index": 0, "signature": "sg", "format": "a-v1"},
        {"type": "reasoning.encrypted", "data": "ENCRxyz", "id": "r1", "index": 1},
        {"type": "reasoning.encrypted", "data": "LATE", "id": "call_1", "index": 2},
    ]
    with ScriptedModel([chunks(*deltas), WORDS, WORDS]) as server:
        await place.talk(server, "chat", "go", profile="openrouter", model="x/claude-9")
        assert assistants(server)[0]["reasoning_details"] == whole
        assert assistants(server)[0]["reasoning"] == "I see"
        await place.talk(server, "chat", "more", profile="openrouter", model="x/claude-9", resume=True)
        assert assistants(server)[0]["reasoning_details"] == whole
        server.add(WORDS)
        await place.talk(server, "chat", "more", profile="openrouter", model="x/gpt-9", resume=True)
        assert "ENCRxyz" not in json.dumps(sent(server))


async def test_m002_details_without_an_index(place: Place) -> None:
    deltas: list[dict[str, Any]] = [
        {"reasoning_details": [{"type": "reasoning.text", "text": "I "}]},
        {"reasoning_details": [{"type": "reasoning.text", "text": "see"}]},
        {"reasoning_details": [{"type": "reasoning.encrypted", "data": "A"}]},
        {"reasoning_details": [{"type": "reasoning.encrypted", "data": "B"}]},
        call(),
    ]
    with ScriptedModel([chunks(*deltas), WORDS]) as server:
        await place.talk(server, "chat", "go", profile="openrouter")
        details = assistants(server)[0]["reasoning_details"]
    assert [detail.get("text") or detail["data"] for detail in details] == ["I see", "A", "B"]


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "reasoning_text", "thinking"])
async def test_m015_an_unknown_server_gets_its_reasoning_in_the_field_in_which_it_came(
    place: Place, field: str
) -> None:
    with ScriptedModel([chunks({field: "Hm"}, {field: "m."}, call()), WORDS, WORDS]) as server:
        await place.talk(server, "chat", "go")
        assert assistants(server)[0][field] == "Hmm."
        await place.talk(server, "chat", "more", resume=True)
        assert assistants(server)[0][field] == "Hmm."
        server.add(WORDS)
        await place.talk(server, "chat", "more", name="other", resume=True)
        assert field not in assistants(server)[0]


async def test_m015_thinking_parts_go_back_as_parts(place: Place) -> None:
    part = {"type": "thinking", "thinking": [{"type": "text", "text": "Hmm."}]}
    with ScriptedModel([chunks({"content": [part]}, {"content": "Look."}, call()), WORDS]) as server:
        await place.talk(server, "chat", "go", profile="mistral")
        assert assistants(server)[0]["content"] == [part, {"type": "text", "text": "Look."}]


async def test_m004_mistral_gets_ids_of_nine_characters(place: Place) -> None:
    script = [chunks(call("abc123def")), chunks(call("abc123def")), chunks(call("")), WORDS, WORDS]
    with ScriptedModel(script) as server:
        await place.talk(server, "chat", "go", profile="mistral")
        await place.talk(server, "chat", "more", profile="mistral", resume=True)
        asked = [made["id"] for found in assistants(server) for made in found.get("tool_calls", [])]
        answered = [found["tool_call_id"] for found in sent(server) if found["role"] == "tool"]
        before = [made["id"] for found in assistants(server, 3) for made in found.get("tool_calls", [])]
    assert asked == answered == before and asked[0] == "abc123def"
    assert len(set(asked)) == 3 and all(re.fullmatch("[A-Za-z0-9]{9}", call_id) for call_id in asked)


async def test_m004_history_of_another_server_is_renamed_too(place: Place) -> None:
    with ScriptedModel([items(function_call("call_" + "7" * 24)), items(said("Ok.")), WORDS]) as server:
        await place.talk(server, "responses", "go")
        await place.talk(server, "chat", "more", profile="mistral", name="other", resume=True)
        asked = assistants(server)[0]["tool_calls"][0]["id"]
        assert re.fullmatch("[A-Za-z0-9]{9}", asked)
        assert [found["tool_call_id"] for found in sent(server) if found["role"] == "tool"] == [asked]


LONG = "call_" + "q" * 81


@pytest.mark.parametrize(("profile", "limit"), [(None, 64), ("openai", 40), ("groq", 64)])
async def test_m005_long_ids_are_shortened_alike_on_chat(place: Place, profile: str | None, limit: int) -> None:
    with ScriptedModel([chunks(call(LONG)), WORDS, WORDS]) as server:
        await place.talk(server, "chat", "go", profile=profile)
        asked = assistants(server)[0]["tool_calls"][0]["id"]
        assert len(asked) <= limit
        assert [found["tool_call_id"] for found in sent(server) if found["role"] == "tool"] == [asked]
        await place.talk(server, "chat", "more", profile=profile, resume=True)
        assert assistants(server)[0]["tool_calls"][0]["id"] == asked


async def test_m005_long_ids_are_shortened_alike_on_responses(place: Place) -> None:
    with ScriptedModel([items(function_call(LONG)), items(said("Ok.")), items(said("Ok."))]) as server:
        await place.talk(server, "responses", "go")
        await place.talk(server, "responses", "more", resume=True)
        for number in (1, 2):
            ids = {item["call_id"] for item in sent(server, number) if "call_id" in item}
            assert len(ids) == 1 and all(len(call_id) <= 64 for call_id in ids)


@pytest.mark.parametrize(("profile", "call_id"), [("litellm", LONG), (None, f"call_a1__thought__{'Q' * 90}+/=")])
async def test_m005_an_id_that_hides_a_signature_goes_back_whole_to_its_gateway(
    place: Place, profile: str | None, call_id: str
) -> None:
    with ScriptedModel([chunks(call(call_id)), WORDS, WORDS, items(said("Ok."))]) as server:
        await place.talk(server, "chat", "go", profile=profile)
        await place.talk(server, "chat", "more", profile=profile, resume=True)
        assert assistants(server)[0]["tool_calls"][0]["id"] == call_id
        assert [found["tool_call_id"] for found in sent(server) if found["role"] == "tool"] == [call_id]
        await place.talk(server, "responses", "more", name="other", resume=True)
        ids = {item["call_id"] for item in sent(server) if "call_id" in item}
        assert len(ids) == 1 and all(re.fullmatch("[A-Za-z0-9_-]{1,64}", found) for found in ids)


async def test_m014_every_answer_keeps_its_reasoning_where_the_server_wants_it(place: Place) -> None:
    script = [chunks({"reasoning_content": "One."}, call()), chunks({"reasoning_content": "Two."}, {"content": "Ok."})]
    with ScriptedModel([*script, chunks(call()), WORDS]) as server:
        await place.talk(server, "chat", "go", profile="deepseek")
        await place.talk(server, "chat", "more", profile="deepseek", resume=True)
        assert [found.get("reasoning_content") for found in assistants(server)][:2] == ["One.", "Two."]


async def test_m014_a_server_that_names_a_field_gets_what_others_thought_there(place: Place) -> None:
    with ScriptedModel([chunks({"reasoning": "One."}, call()), WORDS, WORDS]) as server:
        await place.talk(server, "chat", "go", name="other")
        await place.talk(server, "chat", "more", profile="deepseek", resume=True)
        assert assistants(server)[0]["reasoning_content"] == "One." and "reasoning" not in assistants(server)[0]


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        ({}, True),
        ({"model": "gpt-5.5-codex"}, True),
        ({"model": "grok-4"}, False),
        ({"name": "other"}, False),
        ({"profile": "azure"}, False),
        ({"model": "gpt-6", "name": "other"}, False),
    ],
)
async def test_m017_encrypted_reasoning_goes_only_to_who_made_it(
    place: Place, change: dict[str, Any], kept: bool
) -> None:
    with ScriptedModel([items(thought(), function_call()), items(said("Ok.")), items(said("Ok."))]) as server:
        await place.talk(server, "responses", "go", model="gpt-5.5")
        assert "gAAA" in json.dumps(sent(server))
        await place.talk(server, "responses", "more", **{"model": "gpt-5.5", **change}, resume=True)
        assert ("gAAA" in json.dumps(sent(server))) == kept
        assert kinds(sent(server)).count("function_call") == 1


@pytest.mark.parametrize(("change", "kept"), [({}, True), ({"name": "other"}, False), ({"model": "grok-4"}, False)])
async def test_m017_who_made_the_items_of_an_older_file_is_read_from_its_head(
    place: Place, change: dict[str, Any], kept: bool
) -> None:
    with ScriptedModel([items(thought(), function_call()), items(said("Ok.")), items(said("Ok."))]) as server:
        await place.talk(server, "responses", "go", model="gpt-5.5")
        path = next(place.folder.glob("home/sessions/*/*/*/*.jsonl"))
        path.write_text(re.sub(r',"origin":\{[^}]*\}', "", path.read_text()))
        await place.talk(server, "responses", "more", **{"model": "gpt-5.5", **change}, resume=True)
        assert ("gAAA" in json.dumps(sent(server))) == kept


async def test_m017_encrypted_reasoning_is_no_part_of_a_chat(place: Place) -> None:
    with ScriptedModel([items(thought(), function_call()), items(said("Ok.")), WORDS]) as server:
        await place.talk(server, "responses", "go", model="gpt-5.5")
        await place.talk(server, "chat", "more", model="gpt-5.5", resume=True)
        assert "gAAA" not in json.dumps(sent(server))


@pytest.mark.parametrize("wire", ["responses", "chat"])
async def test_m026_a_model_that_sees_no_images_is_told_in_words(place: Place, wire: Wire) -> None:
    steps = [items(function_call(name="picture")), items(said("Ok."))]
    script = steps if wire == "responses" else [chunks(call(name="picture")), WORDS]
    with ScriptedModel([*script, script[1], *script]) as server:
        for resume in (False, True):
            await place.talk(server, wire, "go", resume=resume)
            assert "iVBORw0KGgo" not in json.dumps(sent(server))
            assert "cannot see images" in json.dumps(sent(server))
        await place.talk(server, wire, "go", model="gpt-5.5")
        assert "iVBORw0KGgo" in json.dumps(sent(server))


@pytest.mark.parametrize("end", ["", "response.incomplete", "response.failed"])
async def test_f03_reasoning_is_never_sent_without_what_followed_it(place: Place, end: str) -> None:
    answers = [items(thought("rs_2", "gBBB"), said("Ok.")), *[items(said("Ok."))] * 3]
    with ScriptedModel([items(thought(), end=end), *answers]) as server:
        with suppress(ModelError):
            await place.talk(server, "responses", "go", model="gpt-5.5")
        await place.talk(server, "responses", "and now?", "more", model="gpt-5.5", resume=True)
        assert len(server.requests) >= 3
        for request in server.requests[1:]:
            assert "gAAA" not in request.raw.decode()
        assert "gBBB" in json.dumps(sent(server))


async def test_f03_an_interrupted_answer_leaves_no_lone_reasoning(place: Place) -> None:
    lone = [thought(), thought("rs_2", "gBBB"), said("Ok."), thought("rs_3", "gCCC")]
    with ScriptedModel([items(*lone), items(said("Ok."))]) as server:
        await place.talk(server, "responses", "go", model="gpt-5.5")
        await place.talk(server, "responses", "more", model="gpt-5.5", resume=True)
        secrets = [item["encrypted_content"] for item in sent(server) if item.get("type") == "reasoning"]
        assert secrets == ["gAAA", "gBBB"]


async def test_f04_an_item_goes_back_with_the_fields_that_servers_know(place: Place) -> None:
    odd = [
        thought(content=None, status="completed", bridge={"a": 1}),
        function_call(status="completed", namespace=None, created_by="bridge"),
    ]
    answer = said("Ok.", parsed=None, model="x")
    answer["content"][0] |= {"logprobs": None, "parsed": None}
    with ScriptedModel([items(*odd), items(answer), items(said("Ok."))]) as server:
        await place.talk(server, "responses", "go", model="gpt-5.5")
        await place.talk(server, "responses", "more", model="gpt-5.5", resume=True)
        back = {item.get("type"): item for item in sent(server) if item.get("role") not in ("user", "developer")}
    assert set(back["reasoning"]) == {"type", "id", "summary", "encrypted_content"}
    assert set(back["function_call"]) == {"type", "id", "call_id", "name", "arguments"}
    assert set(back["message"]) == {"type", "id", "role", "status", "content"}
    assert set(back["message"]["content"][0]) == {"type", "text", "annotations"}
    stored = next(place.folder.glob("home/sessions/*/*/*/*.jsonl")).read_text()
    assert '"bridge":{"a":1}' in stored.replace(" ", "")


async def test_f05_a_call_that_was_whole_early_keeps_its_place(place: Place) -> None:
    deltas = [
        call("a", 0, arguments='{"n":1}'),
        {"tool_calls": [{"index": 0, "function": {"arguments": " rubbish"}}]},
        call("b", 1, arguments='{"n":2}'),
        call("c", 2, arguments='{"n":3}'),
    ]
    with ScriptedModel([chunks(*deltas, finish="tool_calls"), WORDS, WORDS]) as server:
        await place.talk(server, "chat", "go")
        await place.talk(server, "chat", "more", resume=True)
        for number in (1, 2):
            made = [entry["id"] for entry in assistants(server, number)[0]["tool_calls"]]
            answered = [found["tool_call_id"] for found in sent(server, number) if found["role"] == "tool"]
            assert made == answered == ["a", "b", "c"]


async def test_f05_items_that_are_done_out_of_order_keep_their_places(place: Place) -> None:
    opened = [
        {"type": "response.output_item.added", "output_index": at, "item": function_call(name, id=f"fc_{name}")}
        for at, name in enumerate("ab")
    ]
    done = [
        {"type": "response.output_item.done", "output_index": at, "item": function_call(name, id=f"fc_{name}")}
        for at, name in ((1, "b"), (0, "a"))
    ]
    end = {"type": "response.completed", "response": {"id": "r", "output": []}}
    stream = "".join(f"data: {json.dumps(event)}\n\n" for event in [*opened, *done, end])
    with ScriptedModel([raw(stream.encode()), items(said("Ok.")), items(said("Ok."))]) as server:
        await place.talk(server, "responses", "go")
        await place.talk(server, "responses", "more", resume=True)
        for number in (1, 2):
            ids = [item["call_id"] for item in sent(server, number) if "call_id" in item]
            assert ids == ["a", "b", "a", "b"]
