"""The server over streamable HTTP: who is let in, clients in both eras, and clients that go."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from ferrule import timed_heads
from ferrule.doors.mcp_server import http
from ferrule.doors.mcp_server.run import serve_network, tools_opener
from ferrule.protocol.errors import UsageError
from ferrule.protocol.settings import Settings
from ferrule.serving import Bind
from mcp import Client
from tests.mcp_server.served import ERAS, ESCALATED, User, roots, settings_in, text_of
from tests.processes import running, until

TOKEN = "a-token"
ALLOWED = {"authorization": f"Bearer {TOKEN}"}


@asynccontextmanager
async def listening(settings: Settings) -> AsyncIterator[str]:
    """The URL of a server."""
    url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    stop = asyncio.Event()
    bind = Bind("127.0.0.1", 0)
    serving = asyncio.create_task(serve_network(settings, tools_opener(None), "", bind, TOKEN, url.set_result, stop))
    try:
        yield await url
    finally:
        stop.set()
        async with asyncio.timeout(10):
            await serving


@asynccontextmanager
async def client_of(url: str, era: str, **more: Any) -> AsyncIterator[Client]:
    async with (
        httpx2.AsyncClient(headers=ALLOWED, timeout=30) as connection,
        Client(streamable_http_client(url, http_client=connection), mode=era, **more) as client,
    ):
        yield client


async def test_who_is_let_in(tmp_path: Path) -> None:
    async with listening(settings_in(tmp_path)) as url, httpx2.AsyncClient() as client:
        assert url.startswith("http://127.0.0.1:") and url.endswith("/mcp")
        refused: list[tuple[Any, int]] = [
            ({}, 401),
            ({"authorization": "Bearer other"}, 401),
            ({"authorization": "Bearer"}, 401),
            (httpx2.Headers([(b"authorization", b"Bearer \xe4")]), 401),
            ({"authorization": f"Basic {TOKEN}"}, 401),
            (ALLOWED | {"host": "evil.example"}, 421),
            (ALLOWED | {"host": "127.0.0.1.evil.example"}, 421),
            (ALLOWED | {"origin": "http://evil.example"}, 403),
            (ALLOWED | {"origin": "null"}, 403),
            (ALLOWED, 400),
            (ALLOWED | {"origin": "http://localhost:3000"}, 400),
        ]
        for headers, status in refused:
            answered = await client.post(url, json={}, headers=headers)
            assert answered.status_code == status, headers
            assert answered.json()["error"]["message"]
        assert (await client.get(url.replace("/mcp", "/"), headers=ALLOWED)).status_code == 404
        assert (await client.get(url)).headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("version", ["2025-11-25", "2026-07-28"])
async def test_a_body_that_is_no_message_gets_one_error(tmp_path: Path, version: str) -> None:
    headers = ALLOWED | {"accept": "application/json, text/event-stream", "mcp-protocol-version": version}

    async def much() -> AsyncIterator[bytes]:
        yield b'{"jsonrpc":"2.0","id":7,'
        for _ in range(100):
            yield b"x" * (1 << 20)

    async with listening(settings_in(tmp_path)) as url, httpx2.AsyncClient(headers=headers) as client:
        client.headers["content-type"] = "application/json"
        for body, status, code, known in (
            (b"{", 400, -32700, None),
            (b"\xff", 400, -32700, None),
            (b"", 400, -32700, None),
            (b"[]", 400, -32600, None),
            (b'{"id":4}', 404 if version == "2025-11-25" else 400, -32600, None),
            (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', 400, -32600, None),
            (b'{"jsonrpc":"2.0","id":5,"method":3}', 400, -32600, 5),
            (much(), 413, -32600, 7),
        ):
            answered = await client.post(url, content=body, headers={"mcp-session-id": "none"})
            said = answered.json()
            assert (answered.status_code, said["error"]["code"], said.get("id")) == (status, code, known), body
            assert len(said["error"]["message"]) < 200 and "validation" not in said["error"]["message"].lower()


async def test_a_connection_that_sends_no_whole_head_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timed_heads, "HEAD_S", 0.2)
    async with listening(settings_in(tmp_path)) as url:
        reader, writer = await asyncio.open_connection("127.0.0.1", httpx2.URL(url).port)
        whole, half = b"GET /mcp HTTP/1.1\r\nhost: localhost\r\n\r\n", b"GET /mcp HTTP/1.1\r\nhost:"
        writer.write(whole)
        await reader.readuntil(b"}}")
        writer.write(half + b" " * 9_000)
        async with asyncio.timeout(10):
            assert await reader.read() == b""
        writer.close()


async def test_it_listens_on_this_machine_alone(tmp_path: Path) -> None:
    bind = Bind("0.0.0.0", 0)
    with pytest.raises(UsageError, match="this machine alone"):
        await serve_network(settings_in(tmp_path), tools_opener(None), "", bind, TOKEN, print, asyncio.Event())


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_calls_asks_and_cancels(tmp_path: Path, era: str) -> None:
    settings, outside, user = settings_in(tmp_path), tmp_path / "outside", User()
    inside = Path(settings.cwd, "in")
    inside.mkdir()
    mark = f": http{os.getpid()}{era}"
    told: list[float] = []

    async def heard(progress: float, total: float | None, message: str | None) -> None:
        told.append(progress)

    more = {"elicitation_callback": user, "list_roots_callback": roots(inside)}
    async with listening(settings) as url, client_of(url, era, **more) as client:
        assert "exec_command" in [tool.name for tool in (await client.list_tools()).tools]
        waiting = {"cmd": "pwd; sleep 1.1"}
        result = await client.call_tool("exec_command", waiting, progress_callback=heard)
        # The newer protocol has no sessions over HTTP for which roots could hold.
        assert f"{inside if era == 'legacy' else settings.cwd}\n" in text_of(result) and told
        assert not (await client.call_tool("exec_command", {"cmd": f"touch {outside}", **ESCALATED})).is_error
        assert outside.exists() and f"touch {outside}" in user.asked[0].message
        calling = asyncio.create_task(client.call_tool("exec_command", {"cmd": f"{mark}; sleep 1000; :"}))
        await until(lambda: bool(running(mark)))
        calling.cancel()
        await until(lambda: not running(mark))


async def test_each_client_has_its_own_session(tmp_path: Path) -> None:
    mark = f": own{os.getpid()}"
    async with listening(settings_in(tmp_path)) as url:
        async with client_of(url, "legacy") as one, client_of(url, "legacy") as other:
            started = await one.call_tool("exec_command", {"cmd": f"{mark}; cat; :", "tty": True, "yield_time_ms": 250})
            number = {"session_id": started.structured_content["session_id"], "chars": "x", "yield_time_ms": 250}
            assert (await other.call_tool("write_stdin", number)).is_error
            assert not (await one.call_tool("write_stdin", number)).is_error and running(mark)
        await until(lambda: not running(mark))  # the session ended with its client


@pytest.mark.parametrize("era", ERAS)
async def test_a_client_that_vanishes_leaves_no_call_running(
    tmp_path: Path, era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http, "GONE_S", 0.1)
    mark = f": gone{os.getpid()}{era}"
    async with listening(settings_in(tmp_path)) as url:
        version = "2025-11-25" if era == "legacy" else "2026-07-28"
        headers = ALLOWED | {"accept": "application/json, text/event-stream", "mcp-protocol-version": version}
        meta: dict[str, Any] = {}
        async with httpx2.AsyncClient(headers=headers, timeout=30) as client:
            if era == "legacy":
                hello = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
                greeted = await client.post(url, json=request("initialize", hello))
                client.headers["mcp-session-id"] = greeted.headers["mcp-session-id"]
                await client.post(url, json={"jsonrpc": "2.0", "method": "notifications/initialized"})
            else:
                named = {"protocolVersion": version, "clientCapabilities": {}}
                meta = {"_meta": {f"io.modelcontextprotocol/{key}": value for key, value in named.items()}}
                client.headers |= {"mcp-method": "tools/call", "mcp-name": "exec_command"}
            arguments = {"cmd": f"{mark}; trap '' TERM; sleep 1000; sleep 1000; :"}
            params = {"name": "exec_command", "arguments": arguments} | meta
            calling = asyncio.create_task(client.post(url, json=request("tools/call", params)))
            await until(lambda: bool(running(mark)))
            calling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await calling
        await until(lambda: not running(mark))


async def test_the_end_of_the_server_answers_and_ends_what_runs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mark = f": stop{os.getpid()}"
    stubborn = {"cmd": f"{mark}; trap '' TERM; sleep 1000; sleep 1000; :"}
    async with AsyncExitStack() as server:
        url = await server.enter_async_context(listening(settings_in(tmp_path)))
        async with client_of(url, "auto") as client:
            calling = asyncio.create_task(client.call_tool("exec_command", stubborn))
            await until(lambda: bool(running(mark)))
            await server.aclose()
            with pytest.raises(MCPError, match="ended by the server"):
                await calling
    assert not running(mark)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


def request(method: str, params: dict[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
