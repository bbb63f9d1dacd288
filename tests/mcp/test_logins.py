"""Logins at remote servers: renewed in time, shared by processes, never in a log. A stub plays server and authority."""

import asyncio
import json
import logging
import stat
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest

from ferrule.mcp import login_page
from ferrule.mcp.client import MCPClient
from ferrule.mcp.errors import McpFailure
from ferrule.mcp.login import LoginFailed, log_in
from ferrule.mcp.logins import EARLY_SECONDS, Login, LoginStore
from ferrule.protocol.mcp_settings import McpServerSettings
from tests.mcp.web import Asked, Reply, mcp_result, stub


class Authority:
    """Access tokens that live as long as they are told; refresh tokens that are good once."""

    def __init__(self, lifetime: float = 2.0) -> None:
        self.lifetime = lifetime
        self.lock = threading.Lock()
        self.count = 1
        self.valid = {"access-1": time.time() + lifetime}
        self.refresh = "refresh-1"
        self.clients = {"client"}
        self.refusals: list[str] = []
        self.url = ""

    def answer(self, asked: Asked) -> Reply:
        if asked.path == "/token":
            return self.token(asked.form)
        token = asked.headers.get("authorization", "").removeprefix("Bearer ")
        if self.valid.get(token, 0) < time.time():
            return 401, {"www-authenticate": "Bearer"}, b""
        return mcp_result(asked)

    def token(self, form: dict[str, str]) -> Reply:
        with self.lock:
            if form["client_id"] not in self.clients:
                return self.refused("invalid_client", 401)
            if form.get("grant_type") == "refresh_token" and form["refresh_token"] != self.refresh:
                return self.refused("invalid_grant", 400)
            return 200, {}, json.dumps(self.grant()).encode()

    def grant(self) -> dict[str, Any]:
        self.count += 1
        access, self.refresh = f"access-{self.count}", f"refresh-{self.count}"
        self.valid[access] = time.time() + self.lifetime
        life = {"expires_in": int(self.lifetime), "token_type": "Bearer"}
        return {"access_token": access, "refresh_token": self.refresh, **life}

    def refused(self, why: str, status: int) -> Reply:
        self.refusals.append(why)
        return status, {}, json.dumps({"error": why}).encode()

    def login(self) -> Login:
        expires = self.valid[f"access-{self.count}"]
        return Login(
            f"access-{self.count}", f"{self.url}/token", "client", refresh_token=self.refresh, expires_at=expires
        )


@contextmanager
def authority(lifetime: float = 2.0) -> Iterator[Authority]:
    made = Authority(lifetime)
    with stub(made.answer) as url:
        made.url = url.removesuffix("/mcp")
        yield made


def client(made: Authority, home: Path) -> MCPClient:
    return MCPClient("web", McpServerSettings(url=f"{made.url}/mcp"), home=str(home))


def store(made: Authority, home: Path) -> LoginStore:
    return LoginStore(str(home), f"{made.url}/mcp")


async def test_b122_a_token_is_renewed_before_it_expires_and_the_next_one_is_kept(tmp_path: Path) -> None:
    with authority(lifetime=EARLY_SECONDS - 5) as made:
        store(made, tmp_path).write(made.login())
        async with client(made, tmp_path) as web:
            await web.call_tool("echo", {})
        kept = store(made, tmp_path).read()
        assert kept is not None
        assert kept.refresh_token == made.refresh != "refresh-1"
        assert made.refusals == []
        assert stat.S_IMODE(store(made, tmp_path).path.stat().st_mode) == 0o600


async def test_b122_a_refused_token_is_renewed_once(tmp_path: Path) -> None:
    with authority(lifetime=600) as made:
        store(made, tmp_path).write(made.login())
        async with client(made, tmp_path) as web:
            await web.call_tool("echo", {})
            made.valid.clear()
            await web.call_tool("echo", {})
        assert made.count == 2


async def test_b122_many_at_once_use_each_refresh_token_once(tmp_path: Path) -> None:
    with authority(lifetime=600) as made:
        store(made, tmp_path).write(made.login())
        clients = [client(made, tmp_path) for _ in range(3)]
        await asyncio.gather(*(one.connect() for one in clients))
        made.valid.clear()
        await asyncio.gather(*(one.call_tool("echo", {}) for one in clients for _ in range(3)))
        await asyncio.gather(*(one.close() for one in clients))
        assert made.refusals == []
        assert made.count == 2


async def test_b122_two_processes_share_the_store(tmp_path: Path) -> None:
    program = """
import asyncio, os, sys, time
from ferrule.mcp import http
from ferrule.mcp.client import MCPClient
from ferrule.protocol.mcp_settings import McpServerSettings
async def main(url, home):
    async with MCPClient("web", McpServerSettings(url=url), home=home) as web:
        end = time.monotonic() + 3
        while time.monotonic() < end:
            await web.call_tool("echo", {})
            await asyncio.sleep(0.05)
other = os.fork()
asyncio.run(main(*sys.argv[1:]))
assert not other or os.waitpid(other, 0)[1] == 0
"""
    with authority(lifetime=EARLY_SECONDS + 1) as made:
        store(made, tmp_path).write(made.login())
        running = await asyncio.create_subprocess_exec(sys.executable, "-c", program, f"{made.url}/mcp", str(tmp_path))
        assert await running.wait() == 0
        assert made.refusals == []
        assert made.count > 2


async def test_b122_a_new_login_is_seen_by_a_running_session(tmp_path: Path) -> None:
    with authority(lifetime=600) as made:
        store(made, tmp_path).write(made.login())
        async with client(made, tmp_path) as web:
            made.valid.clear()
            made.refresh = "revoked"
            with pytest.raises(McpFailure, match="needs a login"):
                await web.call_tool("echo", {})
            made.grant()
            store(made, tmp_path).write(made.login())
            await web.call_tool("echo", {})


@pytest.mark.parametrize("broken", ["refresh", "client"])
async def test_b122_what_cannot_be_renewed_needs_a_login_and_no_token_is_told(
    broken: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with authority(lifetime=-1) as made, caplog.at_level(logging.DEBUG):
        store(made, tmp_path).write(made.login())
        if broken == "refresh":
            made.refresh = "other"
        else:
            made.clients.clear()
        with pytest.raises(McpFailure, match=r"needs a login \(HTTP 401\): run `ferrule mcp login web`") as failed:
            await client(made, tmp_path).connect()
    told = caplog.text + str(failed.value) + repr(made.login())
    assert "access-1" not in told
    assert "refresh-1" not in told


class Provider(Authority):
    """An authority with registration and a page on which the user is already logged in."""

    def answer(self, asked: Asked) -> Reply:
        if asked.path == "/register":
            registered = asked.json | {"client_id": "registered", "token_endpoint_auth_method": "none"}
            self.clients.add("registered")
            return 201, {}, json.dumps(registered).encode()
        return super().answer(asked)


async def test_logging_in_stores_what_a_session_then_uses(tmp_path: Path) -> None:
    made = Provider(lifetime=600)
    shown: list[str] = []
    answers: list[asyncio.Task[None]] = []

    async def browse(address: str) -> None:
        query = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        async with httpx2.AsyncClient() as browser:
            await browser.get(query["redirect_uri"], params={"code": "c", "state": query["state"]})

    def show(address: str) -> None:
        shown.append(address)
        answers.append(asyncio.ensure_future(browse(address)))

    with stub(made.answer) as url:
        made.url = url.removesuffix("/mcp")
        made.valid.clear()
        assert await log_in(url, str(tmp_path), show)
        assert shown[0].startswith(f"{made.url}/authorize?")
        async with MCPClient("web", McpServerSettings(url=url), home=str(tmp_path)) as web:
            await web.call_tool("echo", {})
            made.valid.clear()
            await web.call_tool("echo", {})  # renewed with the registered client
        await asyncio.gather(*answers)


async def test_a_server_without_login_or_out_of_reach_says_so(tmp_path: Path) -> None:
    with stub(lambda asked: (200, {}, b'{"jsonrpc":"2.0","id":1,"result":{}}')) as url:
        assert not await log_in(url, str(tmp_path), lambda address: None)
    with pytest.raises(LoginFailed, match="cannot be reached: is the server running"):
        await log_in(url, str(tmp_path), lambda address: None)


async def test_a_connection_that_says_nothing_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_page, "REQUEST_SECONDS", 0.05)
    page = login_page.CallbackPage()
    server = await asyncio.start_server(page.answer, "127.0.0.1", 0)
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
        async with asyncio.timeout(10):
            assert await reader.read() == b""
        writer.close()
    assert not page.answered.done()


async def test_s24_only_the_path_and_the_state_of_the_login_count() -> None:
    page = login_page.CallbackPage()
    server = await asyncio.start_server(page.answer, "127.0.0.1", 0)

    async def ask(target: str, method: str = "GET") -> str:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname()[:2])
        writer.write(f"{method} {target} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        status = (await reader.read()).split(b" ")[1].decode()
        writer.close()
        return status

    async with server:
        assert await ask("/callback?code=early&state=") == "404"
        page.expect("https://server.example/authorize?state=s3cret&x=1")
        for target in (
            "/", "/favicon.ico", "/callback", "/callback?code=c", "/callback?error=denied", "/callback?code=c&state=",
            "/callback?code=c&state=other", "/callback?error=x&state=s3cre", "/other?code=c&state=s3cret",
            "/callback/?code=c&state=s3cret", "/callback?state=s3cret", "//callback?code=c&state=s3cret",
            "/callback?code=c&state=other&state=s3cret",
        ):  # fmt: skip
            assert await ask(target) == "404", target
        assert await ask("/callback?code=c&state=s3cret", "POST") == "404"
        assert not page.answered.done()
        assert await ask("/callback?code=c0de&state=s3cret&iss=me") == "200"
        assert await ask("/callback?code=again&state=s3cret") == "200"
    result = page.answered.result()
    assert (result.code, result.state, result.iss) == ("c0de", "s3cret", "me")
