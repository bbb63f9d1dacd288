"""How a response ends when somebody leaves, the upstream fails, or both happen at a bad moment."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Literal

import pytest

from ferrule.protocol.specs import Wire
from ferrule.responses.errors import ApiError
from ferrule.store import StoredResponse, StoreError, StoreFull
from ferrule.testing import Gate, ScriptedModel, Stall, http_error, raw, step
from ferrule.testing.defects import change, drop
from tests.responses.serving import Json, Served, asked, events_of, served


@pytest.fixture
async def here(tmp_path: Path, model: ScriptedModel) -> AsyncIterator[Served]:
    async with served(tmp_path, model) as here:
        yield here


async def test_a_response_whose_start_is_given_up_while_it_is_stored_leaves_nothing(
    here: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, stored = here.store.create_response, asyncio.Event()

    async def held(record: StoredResponse) -> None:
        await store(record)
        stored.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(here.store, "create_response", held)
    opening = asyncio.create_task(here.engine.open(asked()))
    await stored.wait()
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert await here.store.unfinished(1) == ()
    await here.engine.close()
    assert here.model.requests == []


async def test_a_response_that_is_given_up_before_it_runs_ends_cancelled(here: Served) -> None:
    ledger = await here.engine.open(asked())
    await here.engine.abandon(ledger)
    assert (await here.engine.retrieve(ledger.id))["status"] == "cancelled"
    assert here.model.requests == []


async def test_events_that_come_while_others_are_written_are_kept(
    here: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, began, go_on = Gate(), asyncio.Event(), asyncio.Event()
    write = here.store.append_events

    async def held(response_id: str, first: int, events: Sequence[bytes]) -> bool:
        began.set()
        await go_on.wait()
        return await write(response_id, first, events)

    monkeypatch.setattr(here.store, "append_events", held)
    here.model.add(step("Hello there", delta_chars=2, stall=Stall(gate=gate)))
    ledger = await here.engine.open(asked(background=True))
    await began.wait()
    gate.open()
    async for _, event in ledger.read():
        if b"output_item.done" in event:
            break
    go_on.set()
    told = await events_of(ledger)
    assert [json.loads(event) for _, event in await here.engine.events(ledger.id, "")] == told


async def test_events_that_could_not_be_written_once_are_written_later(
    here: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, failed = Gate(), asyncio.Event()
    write = here.store.append_events

    async def fails_once(response_id: str, first: int, events: Sequence[bytes]) -> bool:
        if not failed.is_set():
            failed.set()
            raise StoreError("The disk is busy.")
        return await write(response_id, first, events)

    monkeypatch.setattr(here.store, "append_events", fails_once)
    here.model.add(step("Hello there", stall=Stall(gate=gate)))
    ledger = await here.engine.open(asked(background=True))
    await failed.wait()
    gate.open()
    told = await events_of(ledger)
    assert [json.loads(event) for _, event in await here.engine.events(ledger.id, "")] == told


def without_output(event: Json) -> Json:
    return event | {"response": event["response"] | {"output": []}}


LEFT_OPEN = [drop("response.output_item.done"), change("response.incomplete", without_output)]
"""An answer that is cut leaves its item open."""
ENDS: tuple[Literal["max_output_tokens", "content_filter"], ...] = ("max_output_tokens", "content_filter")


@pytest.mark.parametrize("wire", ["chat", "responses", "messages"])
async def test_an_answer_that_is_cut_or_filtered_is_incomplete_with_its_last_item(
    tmp_path: Path, model: ScriptedModel, wire: Wire
) -> None:
    async with served(tmp_path, model, wire) as here:
        for end in ENDS:
            model.add(step("and then", end=end, edits=LEFT_OPEN))
            ledger = await here.ask()
            assert ledger.object["status"] == "incomplete" and ledger.object["error"] is None
            assert ledger.object["incomplete_details"] == {"reason": end}
            assert [item["status"] for item in ledger.object["output"]] == ["incomplete"]
            assert (await here.engine.retrieve(ledger.id))["status"] == "incomplete"


async def test_a_disk_that_is_full_fails_the_response_and_tells_no_path(
    here: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: object, **__: object) -> bool:
        raise StoreFull("/secret/state.sqlite cannot take more")

    monkeypatch.setattr(here.store, "finish_response", full)
    here.model.add("Hello.")
    ledger = await here.ask()
    assert ledger.object["status"] == "failed" and "secret" not in json.dumps(ledger.object)
    assert ledger.error is not None and ledger.error.status == 507


REFUSALS = [
    (http_error(401, "Incorrect API key provided: abc"), 502, "server_error"),
    (http_error(403, "No."), 502, "server_error"),
    (http_error(404, "Not here"), 502, "server_error"),
    (http_error(404, "The model `m` does not exist"), 404, "model_not_found"),
    (http_error(307, "Elsewhere", headers={"location": "http://10.1.2.3/v1"}), 502, "server_error"),
    (http_error(400, "temperature is too high"), 400, "invalid_prompt"),
    (http_error(503, "Overloaded; see http://10.1.2.3/status"), 502, "server_error"),
    (raw(b"<html>Welcome</html>", content_type="text/html"), 502, "server_error"),
]


@pytest.mark.parametrize(("answer", "status", "code"), REFUSALS)
async def test_a_failure_tells_what_was_wrong_with_the_request_and_not_where_the_model_is(
    here: Served, answer: Any, status: int, code: str, caplog: pytest.LogCaptureFixture
) -> None:
    here.model.add(answer)
    ledger = await here.ask(store=False)
    assert isinstance(ledger.error, ApiError)
    assert (ledger.error.status, ledger.error.code) == (status, code)
    said = ledger.object["error"]["message"]
    assert "http" not in said and "10.1.2.3" not in said and "base_url" not in said and "key" not in said
    assert ("temperature" in said) == (status == 400)
    if status == 502:
        assert "http" in caplog.text or "10.1.2.3" in caplog.text or "answered 503" in caplog.text
