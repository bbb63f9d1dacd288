"""What takes an hour, or a fault of our own: a gateway in this process, whose clock and parts a test can change."""

import asyncio
import json
import logging
import resource
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from websockets.asyncio.client import connect

from ferrule.doors.gateway import http, protocol
from ferrule.doors.gateway import socket as sockets
from ferrule.doors.gateway.serve import DAY_S, _tidy, serve
from ferrule.protocol.settings import GatewaySettings, ProviderSettings, Settings
from ferrule.responses.engine import ResponseEngine
from ferrule.serving import Bind
from ferrule.store import StoreError, StoreFull
from ferrule.testing import ScriptedModel
from ferrule.testing.request import Request
from tests.store.places import a_response, finish, opened


@asynccontextmanager
async def gateway_here(folder: Path, model: ScriptedModel) -> AsyncIterator[str]:
    """Run a gateway in this event loop."""
    provider = ProviderSettings(name="up", base_url=model.base_url, wire_api="chat")
    settings = Settings(cwd=str(folder), home=str(folder), provider=provider)
    stop, ready = asyncio.Event(), asyncio.get_running_loop().create_future()
    running = asyncio.create_task(
        serve(settings, Bind("127.0.0.1", 0), folder / "state.sqlite", ready.set_result, stop)
    )
    try:
        yield await ready
    finally:
        stop.set()
        await running


def _runs(asked: Request) -> bool:
    return "hold" in asked.user_text and asked.finished_ns is None


async def test_a_connection_ends_when_its_time_is_up(
    tmp_path: Path, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sockets, "LONGEST_S", 1.0)
    async with (
        gateway_here(tmp_path, model) as url,
        connect(url.replace("http", "ws") + "/responses") as line,
    ):
        await line.send(json.dumps({"type": "response.create", "model": "m", "input": "hold"}))
        *_, last = [json.loads(event) async for event in line]
        assert last["error"]["code"] == "websocket_connection_limit_reached" and line.close_code == 1000
        await asyncio.to_thread(model.wait_for, lambda: all(asked.aborted for asked in model.requests if _runs(asked)))


async def test_a_connection_that_asks_nothing_is_closed(
    tmp_path: Path, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol, "HEAD_S", 0.1)
    async with gateway_here(tmp_path, model) as url:
        for sent in (b"", b"GET /v1/models HT"):
            reader, writer = await asyncio.open_connection("127.0.0.1", httpx.URL(url).port)
            writer.write(sent)
            assert await asyncio.wait_for(reader.read(), 30) == b""
            writer.close()


async def test_a_full_folder_for_temporary_files_is_told(tmp_path: Path, model: ScriptedModel) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    form: dict[str, Any] = {"files": {"file": ("a", bytes(3 << 20))}, "data": {"purpose": "user_data"}}
    async with gateway_here(tmp_path, model) as url, httpx.AsyncClient() as client:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 20, before[1]))
        try:
            answer = await client.post(url + "/files", **form)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert answer.status_code == 507 and answer.json()["error"]["code"] == "storage_full"
        assert (await client.post(url + "/files", **form)).status_code == 200


async def test_a_body_that_does_not_go_on_is_given_up(
    tmp_path: Path, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "SILENT_S", 0.1)
    async with gateway_here(tmp_path, model) as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", httpx.URL(url).port)
        writer.write(b"POST /v1/responses HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9\r\n\r\n{")
        answer = await asyncio.wait_for(reader.read(), 30)
        assert answer.startswith(b"HTTP/1.1 408") and b"request_timeout" in answer
        writer.close()


@pytest.mark.parametrize(
    ("fault", "status", "said"),
    [
        (RuntimeError("secret detail"), 500, "its log says which"),
        (StoreError("secret path"), 500, "its log says why"),
        (StoreFull("secret path"), 507, "disk is full"),
    ],
)
async def test_a_fault_is_told_without_its_cause(
    fault: Exception,
    status: int,
    said: str,
    tmp_path: Path,
    model: ScriptedModel,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def failing(*_: object) -> None:
        raise fault

    monkeypatch.setattr(ResponseEngine, "retrieve", failing)
    async with gateway_here(tmp_path, model) as url, httpx.AsyncClient() as client:
        with caplog.at_level(logging.ERROR):
            answer = await client.get(url + "/responses/resp_1")
        error = answer.json()["error"]
        assert answer.status_code == status and said in error["message"] and error["type"] == "server_error"
        assert "secret" not in answer.text and "Traceback" not in answer.text
        assert answer.headers["x-request-id"] in caplog.text and str(fault) in caplog.text
        assert (await client.get(url + "/models")).status_code == 200


async def test_responses_are_kept_as_many_days_as_are_set(tmp_path: Path) -> None:
    now = int(time.time())
    async with opened(tmp_path) as store:
        for number, days in enumerate((1, 3), 1):
            await store.create_response(a_response(number, created_at=now - days * DAY_S))
            await finish(store, number)
        tidying = asyncio.create_task(_tidy(store, GatewaySettings(keep_days=2), None))
        async with asyncio.timeout(20):
            while await store.response("us", "resp_2") is not None:  # noqa: ASYNC110 - as clients wait
                await asyncio.sleep(0.01)
        assert await store.response("us", "resp_1") is not None
        tidying.cancel()
        await asyncio.wait([tidying])
