"""The client that reaches only what a guard lets through."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import httpx2
import pytest

from ferrule.egress.guard import Guard, Refused
from ferrule.egress.http import guarded_client
from ferrule.egress.names import DomainNames
from ferrule.protocol.errors import UsageError


@asynccontextmanager
async def redirecting() -> AsyncIterator[str]:
    """Serve on loopback: a path `/to/URL` redirects to URL, all else says the Host that was asked for."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        path, host = head.split()[1], head.lower().split("host: ")[1].split()[0]
        if path.startswith("/to/"):
            writer.write(f"HTTP/1.1 302 Found\r\nLocation: {path[4:]}\r\nContent-Length: 0\r\n\r\n".encode())
        else:
            writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(host)}\r\n\r\n{host}".encode())
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield "127.0.0.1:{1}".format(*server.sockets[0].getsockname())


async def test_redirects_are_checked_again() -> None:
    async def resolve(name: str, port: int) -> Sequence[str]:
        return ["127.0.0.1"]

    async with redirecting() as address:
        hosts = {"ok.example:80": address, "two.example:80": address, "no.example:80": address}
        guard = Guard(DomainNames.read(["ok.example", "two.example", "inner.example"]), hosts=hosts, resolve=resolve)
        async with guarded_client(guard, follow_redirects=True) as client:
            assert (await client.get("http://ok.example/to/http://two.example/")).text == "two.example"
            for target, text in (
                ("http://no.example/", "not an allowed domain"),
                (f"http://{address}/", "is an address"),
                ("http://2130706433/", "is an address"),
                ("http://[::ffff:7f00:1]/", "is an address"),
                ("http://inner.example/", "not public"),
                ("http://ok.example:8080/", "Port 8080"),
            ):
                with pytest.raises(Refused, match=text):
                    await client.get(f"http://ok.example/to/{target}")


async def test_a_host_that_is_down_is_an_error_of_the_http_library() -> None:
    async def resolve(name: str, port: int) -> Sequence[str]:
        raise OSError("no such name")

    async with guarded_client(Guard(None, resolve=resolve)) as client:
        with pytest.raises(httpx2.ConnectError, match=r"gone\.example has no address"):
            await client.get("http://gone.example/")


async def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    async with redirecting() as address, guarded_client(Guard(None, hosts={"ok.example:80": address})) as client:
        assert (await client.get("http://ok.example/")).text == "ok.example"


def test_a_file_without_certificates_is_a_sentence() -> None:
    with pytest.raises(UsageError, match="/dev/null holds no certificates"):
        guarded_client(Guard(None), ca_file="/dev/null")
