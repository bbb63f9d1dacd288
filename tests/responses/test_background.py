"""Responses that go on without their client: in the background, cancelled, read late, after the server's end."""

import asyncio
import json
from pathlib import Path

import pytest

from ferrule.responses.errors import ApiError
from ferrule.store import Store, StoredResponse
from ferrule.testing import Gate, ScriptedModel, Stall, step
from tests.responses.serving import Json, Served, asked, events_of, kinds, served


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


async def test_readers_may_come_late_and_leave_early(here: Served) -> None:
    here.model.add("Hello.")
    ledger = await here.engine.open(asked())
    async for number, _ in ledger.read():
        if number == 1:
            break
    assert (await events_of(ledger, 3))[0]["sequence_number"] == 4
    assert len(await events_of(ledger)) > 5


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
