"""The way to a model server through a proxy that the environment names, and past it."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ferrule.model.provider import open_model
from ferrule.model.stream import ModelRequest
from ferrule.protocol.settings import ProviderSettings
from tests.model.streams import chunk
from tests.model.support import HEAD, Outcome, certified, outcome, raw_server, reply, request, sse

ANSWER = HEAD + sse(chunk({"content": "hi"}), chunk({}, "stop"), "[DONE]")


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


async def asked(base_url: str, what: ModelRequest | None = None) -> Outcome:
    provider = ProviderSettings(name="box", base_url=base_url, request_max_retries=0)
    return await outcome(open_model(provider, wire="chat", env={}), what or request())


def origin(base_url: str) -> str:
    return base_url.removesuffix("/v1")


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
async def test_a_proxy_is_asked_for_the_whole_address(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    async with raw_server([ANSWER]) as proxy:
        monkeypatch.setenv(name, origin(proxy.base_url))
        found = await asked("http://model.test:8080/v1")
    assert found.error is None and len(found.items) == 1
    assert proxy.requests[0][0].startswith("POST http://model.test:8080/v1/chat/completions HTTP/1.1")


@pytest.mark.parametrize("exempt", ["0.0.0.0", "*", "model.test,0.0.0.0"])
async def test_a_server_that_no_proxy_names_is_asked_directly(monkeypatch: pytest.MonkeyPatch, exempt: str) -> None:
    async with raw_server([ANSWER]) as proxy, raw_server([ANSWER]) as server:
        monkeypatch.setenv("HTTP_PROXY", origin(proxy.base_url))
        monkeypatch.setenv("NO_PROXY", exempt)
        found = await asked(server.base_url.replace("127.0.0.1", "0.0.0.0"))
    assert found.error is None and len(server.requests) == 1 and not proxy.requests


@asynccontextmanager
async def tunnelling(port: int) -> AsyncIterator[tuple[str, list[str]]]:
    """A proxy that opens each tunnel to one port of this machine; its URL, and what it was asked for."""
    heads: list[str] = []
    tunnels: list[asyncio.Task[object]] = []

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(2**16):
            writer.write(data)
            await writer.drain()
        writer.close()
        await writer.wait_closed()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tunnels.append(task)
        heads.append((await reader.readuntil(b"\r\n\r\n")).decode())
        there, back = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        await asyncio.gather(copy(reader, back), copy(there, writer), return_exceptions=True)

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", heads
        await asyncio.wait(tunnels, timeout=5)


async def test_tls_goes_through_a_tunnel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    certificate, key = certified(tmp_path, "model.test")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate, key)
    body = sse(*(chunk({"content": f"{number} "}) for number in range(200)), chunk({}, "stop"), "[DONE]")
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked_for = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = next(int(line[15:]) for line in asked_for.splitlines() if line.startswith("content-length"))
        await reader.readexactly(length)
        pieces = (body[at : at + 50] for at in range(0, len(body), 50))
        writer.write(head + b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    async with server, tunnelling(server.sockets[0].getsockname()[1]) as (url, heads):
        monkeypatch.setenv("HTTPS_PROXY", url)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        found = await asked("https://model.test/v1")
    assert found.error is None, found.error
    assert heads[0].startswith("CONNECT model.test:443 HTTP/1.1") and b"199 " in found.items[0].raw


@pytest.mark.parametrize("status", ["403 Forbidden", "407 Proxy Authentication Required", "502 Bad Gateway"])
async def test_a_proxy_that_refuses_the_tunnel_is_named(monkeypatch: pytest.MonkeyPatch, status: str) -> None:
    async with raw_server([reply(status)]) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", origin(proxy.base_url))
        found = await asked("https://model.test/v1")
    assert "through the proxy" in str(found.error) and status[:3] in str(found.error)


async def test_a_proxy_that_is_down_is_an_error_of_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    found = await asked("http://model.test:8080/v1")
    assert found.error is not None and "proxy" in str(found.error) and "\n" not in str(found.error)


@pytest.mark.parametrize(
    "url", ["127.0.0.1:9", "socks5://127.0.0.1:9", "ftp://127.0.0.1:9", "http://[::1:9", "http://127.0.0.1:x"]
)
async def test_a_proxy_that_is_no_url_is_an_error_of_one_sentence(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    monkeypatch.setenv("HTTP_PROXY", url)
    found = await asked("http://model.test:8080/v1")
    assert found.error is not None and "\n" not in str(found.error)
