"""What a response continues: found again after a restart, and when it is deleted or changed at that moment."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from ferrule.protocol.items import read_item
from ferrule.responses import attachments, history
from ferrule.responses.errors import ApiError
from ferrule.responses.history import History, ResponseCache
from ferrule.store import Conversation, FileRecord, StoreError
from ferrule.testing import ScriptedModel
from tests.responses.serving import Served, asked, served

T = TypeVar("T")


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel() as model:
        model.add(*["Well."] * 6)
        yield model


@pytest.fixture
async def here(tmp_path: Path, model: ScriptedModel) -> AsyncIterator[Served]:
    async with served(tmp_path, model) as here:
        yield here


def around(
    monkeypatch: pytest.MonkeyPatch,
    of: object,
    name: str,
    *,
    before: Callable[[], Awaitable[object]] | None = None,
    after: Callable[[], Awaitable[object]] | None = None,
) -> None:
    """Let something happen just before or after a method is run."""
    method = getattr(of, name)

    async def run(*args: Any, **kwargs: Any) -> Any:
        if before is not None:
            await before()
        result = await method(*args, **kwargs)
        if after is not None:
            await after()
        return result

    monkeypatch.setattr(of, name, run)


async def told_after_a_restart(folder: Path, model: ScriptedModel, response_id: str) -> str:
    """What a new server sends to the model when this response is continued."""
    async with served(folder, model) as again:
        await again.ask(input="go on", previous_response_id=response_id)
        return json.dumps(model.last_request.body)


async def test_a_stored_response_keeps_what_it_continues_though_that_was_not_stored(
    tmp_path: Path, model: ScriptedModel
) -> None:
    cache = ResponseCache()
    async with served(tmp_path, model) as here:
        first = await here.ask(input="cobalt", store=False, cache=cache)
        second = await here.ask(input="two", previous_response_id=first.id, cache=cache)
        third = await here.ask(input="three", previous_response_id=second.id)
    told = await told_after_a_restart(tmp_path, model, third.id)
    assert [told.count(word) for word in ("cobalt", "two", "three", "go on")] == [1, 1, 1, 1]


async def test_a_response_keeps_what_it_continues_though_that_expires_at_this_moment(
    tmp_path: Path, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(tmp_path, model) as here:
        first = await here.ask(input="cobalt")
        around(monkeypatch, here.store, "create_response", before=lambda: here.store.delete_response("", first.id))
        second = await here.ask(input="two", previous_response_id=first.id)
    assert await told_after_a_restart(tmp_path, model, second.id) == json.dumps(model.last_request.body)
    assert "cobalt" in json.dumps(model.last_request.body)


async def test_a_response_that_is_deleted_while_it_is_read_is_not_found(
    tmp_path: Path, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with served(tmp_path, model) as here:
        first = await here.ask(input="cobalt")
    async with served(tmp_path, model) as again:
        around(monkeypatch, again.store, "response", after=lambda: again.store.delete_response("", first.id))
        with pytest.raises(ApiError) as raised:
            await again.ask(previous_response_id=first.id)
        assert (raised.value.status, raised.value.code) == (404, "previous_response_not_found")


@pytest.mark.parametrize("background", [True, False])
async def test_a_response_whose_end_could_not_be_stored_fails_when_it_is_asked_for(
    here: Served, monkeypatch: pytest.MonkeyPatch, background: bool
) -> None:
    async def broken(*_: object, **__: object) -> bool:
        raise StoreError("secret path")

    with monkeypatch.context() as patched:
        patched.setattr(here.store, "finish_response", broken)
        ledger = await here.ask(background=background)
    assert ledger.object["status"] == "failed" and "secret" not in json.dumps(ledger.object)
    found = await here.engine.retrieve(ledger.id)
    stored = await here.store.response("", ledger.id)
    assert stored is not None and stored.status == found["status"] == "failed"
    assert "could not be stored" in str(found["error"])
    assert [item["type"] for item in found["output"]] == (["message"] if background else [])


async def test_a_deleted_response_is_not_told_to_the_model_any_more(here: Served) -> None:
    first = await here.ask(input="cobalt")
    second = await here.ask(input="two", previous_response_id=first.id)
    await here.engine.delete(first.id)
    await here.ask(input="three", previous_response_id=second.id)
    told = json.dumps(here.model.last_request.body)
    assert "two" in told and "cobalt" not in told


async def test_no_response_begins_in_a_conversation_that_another_one_reads(
    here: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await here.store.create_conversation(Conversation(id="conv_1", owner="", created_at=0))
    read, go_on = asyncio.Event(), asyncio.Event()

    async def wait() -> None:
        read.set()
        await go_on.wait()

    around(monkeypatch, here.store, "conversation_entries", after=wait)
    opening = asyncio.create_task(here.engine.open(asked(conversation="conv_1")))
    await read.wait()
    with pytest.raises(ApiError) as raised:
        async with asyncio.timeout(20):
            await here.engine.open(asked(conversation="conv_1"))
    assert raised.value.code == "conversation_locked"
    go_on.set()
    await (await opening).finished()
    await here.ask(conversation="conv_1")


def of_size(size: int) -> History:
    return History((read_item(b'{"type":"message","role":"user","content":"%b"}' % (b"x" * size)),))


def test_histories_in_memory_have_a_bound_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MOST_BYTES", 1000)
    cache = ResponseCache(10)
    for name in ("a", "b", "c", "c"):
        cache.put(name, of_size(300))
    assert [cache.get(name) is not None for name in "abc"] == [False, True, True]
    cache.put("large", of_size(5000))
    assert [cache.get(name) is not None for name in ("b", "c", "large")] == [False, False, True]
    cache.put("d", of_size(300))
    assert cache.get("large") is None and cache.get("d") is not None


async def test_the_files_of_a_request_have_a_bound_together(here: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    async def content() -> AsyncIterator[bytes]:
        yield b"123456"

    record = FileRecord(id="file-1", owner="", created_at=1, filename="f.txt", purpose="user_data")
    await here.store.create_file(record, content())
    monkeypatch.setattr(attachments, "MAX_BYTES", 11)
    part = {"type": "input_file", "file_id": "file-1"}
    given = [{"role": "user", "content": [part]}, {"role": "user", "content": [part]}]
    assert (await here.ask(input=given[:1])).object["status"] == "completed"
    with pytest.raises(ApiError) as raised:
        await here.ask(input=given)
    assert raised.value.param == "input[1].content[0]"
