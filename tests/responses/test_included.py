"""What a client may ask for beside the answer: probabilities of tokens, and what the model server's own tools found."""

import json
from pathlib import Path
from typing import Any

import pytest

from ferrule.protocol.specs import Wire
from ferrule.testing import ScriptedModel, raw, step
from ferrule.testing.defects import change
from tests.responses.serving import Json, asked, events_of, kinds, served

LOGPROBS = "message.output_text.logprobs"
OTHER = {"token": "Hi", "logprob": -1.5, "bytes": [72, 105]}


def token(text: str) -> Json:
    return {"token": text, "logprob": -0.25, "bytes": list(text.encode()), "top_logprobs": [OTHER]}


def with_logprobs(event: Json) -> Json:
    if "choices" in event:
        (choice,) = event["choices"]
        return event | {"choices": [choice | {"logprobs": {"content": [token(choice["delta"]["content"])]}}]}
    return event | {"logprobs": [token(event["delta"])]}


EDITS = [change("content", with_logprobs), change("response.output_text.delta", with_logprobs)]


@pytest.mark.parametrize("wire", ["chat", "responses"])
async def test_logprobs_come_with_each_piece_and_with_the_whole(tmp_path: Path, wire: Wire) -> None:
    with ScriptedModel([step("Hello", delta_chars=3, edits=EDITS)]) as model:
        async with served(tmp_path, model, wire) as here:
            ledger = await here.engine.open(asked(include=[LOGPROBS], top_logprobs=1))
            events = await events_of(ledger)
            sent: Json = model.last_request.body  # type: ignore[assignment]
    assert sent["top_logprobs"] == 1
    assert sent["logprobs"] is True if wire == "chat" else LOGPROBS in sent["include"]
    tokens = [token("Hel"), token("lo")]
    told = [event for event in events if event["type"].startswith("response.output_text.")]
    assert [event["logprobs"] for event in told] == [[tokens[0]], [tokens[1]], tokens]
    assert ledger.object["output"][0]["content"][0]["logprobs"] == tokens
    assert ledger.object["top_logprobs"] == 1


@pytest.mark.parametrize("wire", ["chat", "responses"])
async def test_logprobs_that_nobody_asked_for_are_left_out(tmp_path: Path, wire: Wire) -> None:
    with ScriptedModel([step("Hello", edits=EDITS)]) as model:
        async with served(tmp_path, model, wire) as here:
            ledger = await here.ask()
            assert model.last_request.body.keys().isdisjoint({"logprobs", "top_logprobs", "include"})
    assert ledger.object["output"][0]["content"][0]["logprobs"] == []


SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "in_progress"}
FOUND = {"type": "search", "query": "rivers", "sources": [{"type": "url", "url": "https://a.example"}]}


def searches() -> Any:
    """An answer of a server that searches itself."""
    place = {"item_id": "ws_1", "output_index": 0}
    done = {**SEARCH, "status": "completed", "action": FOUND}
    events: list[Json] = [
        {"type": "response.created", "response": {"id": "r", "status": "in_progress", "output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": SEARCH},
        {"type": "response.web_search_call.in_progress", **place},
        {"type": "response.web_search_call.searching", **place},
        {"type": "response.web_search_call.completed", **place},
        {"type": "response.output_item.done", "output_index": 0, "item": done},
        {"type": "response.completed", "response": {"id": "r", "status": "completed", "output": [done]}},
    ]
    return raw("".join(f"data: {json.dumps(event)}\n\n" for event in events).encode())


@pytest.mark.parametrize("include", [[], ["web_search_call.action.sources"]])
async def test_a_search_of_the_model_server_is_told_as_it_goes(tmp_path: Path, include: list[str]) -> None:
    with ScriptedModel([searches()]) as model:
        async with served(tmp_path, model, "responses", knows=("web_search",)) as here:
            ledger = await here.engine.open(asked(tools=[{"type": "web_search"}], include=include))
            events = await events_of(ledger)
            assert model.last_request.body.get("include", []) == include
    assert kinds(events)[2:] == [
        "output_item.added", "web_search_call.in_progress", "web_search_call.searching", "web_search_call.completed",
        "output_item.done", "completed",
    ]  # fmt: skip
    (item,) = ledger.object["output"]
    assert {event["item_id"] for event in events if "item_id" in event} == {item["id"]} == {"ws_1"}
    assert item["action"] == (FOUND if include else {"type": "search", "query": "rivers"})
    assert ledger.not_run == ()


@pytest.mark.parametrize("wanted", [True, False])
async def test_pieces_carry_noise_where_the_client_wants_it(tmp_path: Path, wanted: bool) -> None:
    with ScriptedModel([step("Hello there, all of you", delta_chars=5)]) as model:
        async with served(tmp_path, model) as here:
            ledger = await here.engine.open(asked(stream_options={"include_obfuscation": wanted}))
            pieces = [event for event in await events_of(ledger) if "delta" in event]
    sizes = {len(piece["delta"].encode()) + len(piece.get("obfuscation", "")) for piece in pieces}
    assert sizes == ({32} if wanted else {5, 3})
