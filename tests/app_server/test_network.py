"""Clients over WebSockets."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from ferrule import timed_heads
from ferrule.doors.app_server import network
from ferrule.doors.app_server.network import serve_network
from ferrule.protocol.errors import UsageError
from ferrule.serving import Bind
from ferrule.stdio import HIGH_BYTES, MOST_BYTES, Outbox
from ferrule.testing import ScriptedModel
from tests.app_server.client import Client
from tests.app_server.served import configure_in
from tests.cli.played import execute
from tests.processes import running, until

TOKEN = "secret"
ALLOWED = {"Authorization": f"Bearer {TOKEN}"}


@asynccontextmanager
async def served(folder: Path, base_url: str) -> AsyncIterator[str]:
    """A server; its URL."""
    stop, url = asyncio.Event(), asyncio.get_running_loop().create_future()
    configure = configure_in(folder, base_url)
    serving = asyncio.create_task(serve_network(configure, Bind("127.0.0.1", 0), TOKEN, url.set_result, stop))
    try:
        yield await url
    finally:
        stop.set()
        async with asyncio.timeout(6):
            await serving


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[Client]:
    """A client that has shaken hands."""
    async with connect(url, additional_headers=ALLOWED, max_size=None) as socket:

        async def send(line: bytes) -> None:
            await socket.send(line.decode(errors="replace"))

        async def receive() -> bytes:
            got = await socket.recv()
            return got.encode() if isinstance(got, str) else got

        client = Client(send, receive)
        await client.greet()
        yield client


async def test_who_is_let_in(tmp_path: Path) -> None:
    async with served(tmp_path, "http://127.0.0.1:9/v1") as url:
        port = url.rpartition(":")[2]
        foreign = f"ws://evil.example:{port}"
        for called, headers, status in (
            (url, {}, 401),
            (url, {"Authorization": "Bearer wrong"}, 401),
            (foreign, ALLOWED, 421),
            (url, ALLOWED | {"Origin": "http://evil.example"}, 403),
        ):
            with pytest.raises(InvalidStatus) as refused:
                async with connect(called, additional_headers=headers, host="127.0.0.1", port=int(port)):
                    pass
            assert refused.value.response.status_code == status
        async with connect(url, additional_headers=ALLOWED | {"Origin": f"http://localhost:{port}"}) as socket:
            await socket.send(b"\xff\x00")
            assert json.loads(await socket.recv())["error"]["code"] == -32700
    for host in ("0.0.0.0", "example.com"):
        with pytest.raises(UsageError, match="this machine alone"):
            await serve_network(configure_in(tmp_path, ""), Bind(host, 0), TOKEN, print, asyncio.Event())


async def test_a_connection_that_says_nothing_is_closed_and_a_client_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timed_heads, "HEAD_S", 0.1)
    async with served(tmp_path, "http://127.0.0.1:9/v1") as url, connected(url) as client:
        for sent in (b"", b"GET / HT"):
            reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
            writer.write(sent)
            assert await asyncio.wait_for(reader.read(), 30) == b""
            writer.close()
        assert not (await client.call("thread/loaded/list"))["data"]


async def test_each_client_has_its_threads_which_end_with_it(tmp_path: Path) -> None:
    mark = f": app_server_{tmp_path.name}"
    with ScriptedModel([execute(f"{mark}; sleep 1000; :", 250), "Done.", "Again."]) as model:
        async with served(tmp_path, model.base_url) as url:
            async with connected(url) as one, connected(url) as other:
                thread = await one.start()
                await one.turn(thread)
                assert running(mark)
                assert not (await other.call("thread/loaded/list"))["data"]
                with pytest.raises(Exception, match="is open in this program"):
                    await other.call("thread/resume", threadId=thread)
            async with connected(url) as third:
                await third.call("thread/resume", threadId=thread)
                assert not running(mark)
                assert (await third.turn(thread))["status"] == "completed"


async def test_a_client_that_reads_nothing_does_not_hold_up_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbox = Outbox()
    monkeypatch.setattr(network, "Outbox", lambda: outbox)
    async with served(tmp_path, "http://127.0.0.1:9/v1") as url:
        socket = await connect(url, additional_headers=ALLOWED, max_queue=1)
        client = Client(lambda line: socket.send(line.decode()), lambda: socket.recv(decode=False))
        await client.greet()
        for _ in range(MOST_BYTES // HIGH_BYTES):
            outbox.put(b"x" * HIGH_BYTES)
        await until(lambda: outbox._bytes < MOST_BYTES - HIGH_BYTES)
    assert outbox._bytes > HIGH_BYTES
    socket.transport.abort()


async def test_the_end_of_the_server_ends_its_clients_and_what_they_run(tmp_path: Path) -> None:
    mark = f": app_server_{tmp_path.name}"
    with ScriptedModel([execute(f"{mark}; sleep 1000; :", 250), "Done."]) as model:
        async with AsyncExitStack() as clients:
            async with served(tmp_path, model.base_url) as url:
                client = await clients.enter_async_context(connected(url))
                await client.turn(await client.start())
                assert running(mark)
            assert not running(mark)
            with pytest.raises(ConnectionClosed):
                await client.hear(lambda message: False)
