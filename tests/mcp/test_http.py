"""Remote servers over streamable HTTP."""

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from mcp.server import MCPServer
from mcp.server.mcpserver import Context

from ferrule import Agent
from ferrule.mcp.client import MCPClient
from ferrule.mcp.errors import McpFailure
from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.mcp_settings import McpServerSettings
from ferrule.protocol.specs import BearerAuthorization, RemoteMcp
from ferrule.testing import ScriptedModel, function_call, message
from tests.mcp.web import Asked, Reply, mcp_result, served, stub


def real_server() -> MCPServer:
    server = MCPServer("real")

    @server.tool()
    def echo(text: str) -> str:
        return f"ECHO: {text}"

    @server.tool()
    async def count(to: int, ctx: Context[Any, Any]) -> str:
        for step in range(to):
            await ctx.report_progress(step, to)
        return "counted"

    @server.resource("memo://one")
    def memo() -> str:
        return "first"

    return server


def client(url: str, **more: Any) -> MCPClient:
    passed = {name: more.pop(name) for name in ("env", "home") if name in more}
    return MCPClient("web", McpServerSettings(url=url, **more), **passed)


def text_of(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


@pytest.mark.parametrize("json_response", [False, True])
async def test_a_real_server_is_listed_called_and_read(json_response: bool) -> None:
    steps: list[float] = []
    async with served(real_server(), json_response=json_response) as url, client(url) as web:
        assert [tool.name for tool in await web.list_tools()] == ["echo", "count"]
        assert text_of(await web.call_tool("echo", {"text": "hi"})) == "ECHO: hi"
        await web.call_tool("count", {"to": 3}, on_progress=lambda step, total, text: steps.append(step))
        read = await web.request("resources/read", {"uri": "memo://one"})
        assert read["contents"][0]["text"] == "first"
        results = await asyncio.gather(*(web.call_tool("echo", {"text": str(i)}) for i in range(20)))
        assert [text_of(result) for result in results] == [f"ECHO: {i}" for i in range(20)]
    assert steps == ([] if json_response else [0, 1, 2])


@pytest.mark.parametrize("wire", ["responses", "chat"])
async def test_a_session_uses_a_remote_server(wire: Any, tmp_path: Path) -> None:
    script = [[function_call("mcp__real__echo", {"text": "far"})], [message("done")]]
    async with served(real_server()) as url:
        with ScriptedModel(script) as model:
            servers = {"mcpServers": {"real": {"type": "http", "url": url, "approval": "allow"}}}
            agent = Agent("m", tools=[], base_url=model.base_url, wire=wire, cwd=tmp_path, mcp_config=servers)
            await agent.run("go")
            assert model.requests[1].outputs[0].text == "ECHO: far"


@pytest.mark.parametrize(
    "body", [b"", b'{"jsonrpc":"2.0","id":null,"error":{"code":-32001,"message":"Session not found"}}']
)
async def test_b121_a_lost_session_is_begun_anew_once_for_all_who_wait(body: bytes) -> None:
    log: list[str] = []
    expired: set[str] = set()

    def answer(asked: Asked) -> Reply:
        log.append(f"{asked.json['method']} {asked.session}")
        if asked.json["method"] == "initialize":
            return mcp_result(asked, **{"mcp-session-id": f"s{sum(line == 'initialize None' for line in log)}"})
        if asked.session in expired:
            return 404, {}, body
        return mcp_result(asked)

    with stub(answer) as url:
        async with client(url) as web:
            await web.list_tools()
            expired.add("s1")
            results = await asyncio.gather(*(web.call_tool("echo", {"text": i}) for i in range(5)))
            assert [text_of(result) for result in results] == [f"ECHO: {i}" for i in range(5)]
            alive = [task for task in asyncio.all_tasks() if task.get_name().startswith("ferrule-mcp-")]
            assert len(alive) == 1, "the lost connection is closed, not only forgotten"
    assert [line for line in log if "initialize " in line] == ["initialize None", "initialize None"]
    assert log.count("tools/call s2") == 5
    assert log.count("tools/call s1") <= 5


async def test_b121_a_server_that_forgets_every_session_does_not_make_a_loop() -> None:
    log: list[str] = []

    def answer(asked: Asked) -> Reply:
        log.append(asked.json["method"])
        if asked.json["method"] == "tools/call":
            return 404, {}, b""
        return mcp_result(asked, **{"mcp-session-id": "s"})

    with stub(answer) as url:
        async with client(url) as web:
            with pytest.raises(RespondToModel, match="the server ended the session"):
                await web.call_tool("echo", {})
    assert log.count("tools/call") == 2
    assert log.count("initialize") == 2


@pytest.mark.parametrize(
    ("reply", "what"),
    [
        ((400, {}, b'{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"bad thing"}}'), "bad thing"),
        ((503, {"content-type": "text/html"}, b"<html>"), "HTTP 503"),
        ((400, {"content-type": "text/plain"}, b"no"), "HTTP 400"),
        ((200, {}, b'{"jsonrpc":"2.0","id":%d,"error":{"code":1,"message":"inner"}}'), "inner"),
        ((200, {}, b"not json"), "parse"),
    ],
)
async def test_b121_other_failures_are_told_and_not_repeated(reply: Reply, what: str) -> None:
    calls: list[str] = []

    def answer(asked: Asked) -> Reply:
        calls.append(asked.json["method"])
        if asked.json["method"] != "tools/call":
            return mcp_result(asked, **{"mcp-session-id": "s"})
        status, headers, body = reply
        return status, headers, body % asked.json["id"] if b"%d" in body else body

    with stub(answer) as url:
        async with client(url) as web:
            with pytest.raises(RespondToModel, match=what):
                await web.call_tool("echo", {})
    assert calls.count("tools/call") == 1
    assert calls.count("initialize") == 1


def events(*messages: dict[str, Any]) -> bytes:
    return b"".join(b"event: message\ndata: %b\n\n" % json.dumps(message).encode() for message in messages)


STREAM = {"content-type": "text/event-stream"}
PROGRESS = {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "hm"}}


@pytest.mark.parametrize("status", [200, 0])
@pytest.mark.parametrize("body", [b"", b": ping\n\n", events(PROGRESS), events(PROGRESS)[:30]])
async def test_m043_a_call_whose_stream_ends_without_its_result_fails_at_once(status: int, body: bytes) -> None:
    calls = 0

    def answer(asked: Asked) -> Reply:
        nonlocal calls
        if asked.json["method"] != "tools/call":
            return mcp_result(asked)
        calls += 1
        return status, STREAM, body

    with stub(answer) as url:
        async with client(url, tool_timeout=12) as web:
            async with asyncio.timeout(6):
                with pytest.raises(RespondToModel, match="may have run"):
                    await web.call_tool("echo", {})
    assert calls == 1


async def test_m044_a_refused_greeting_is_told_in_the_servers_words() -> None:
    error = {"jsonrpc": "2.0", "id": "server-error", "error": {"code": -32600, "message": "Bad Request: no licence"}}
    with stub(lambda asked: (400, {}, json.dumps(error).encode())) as url:
        async with asyncio.timeout(6):
            with pytest.raises(McpFailure, match="no licence"):
                await client(url).connect()


async def test_m046_a_ping_in_the_stream_of_a_call_is_answered() -> None:
    answered = threading.Event()
    said: list[dict[str, Any]] = []

    def answer(asked: Asked) -> Reply:
        message = asked.json
        if "method" not in message:
            said.append(message)
            answered.set()
            return 202, {}, b""
        if message["method"] != "tools/call":
            return mcp_result(asked)
        ping = {"jsonrpc": "2.0", "id": "p1", "method": "ping"}
        result = {"content": [{"type": "text", "text": "ECHO: hi"}]}
        return 200, STREAM, events(ping, {"jsonrpc": "2.0", "id": message["id"], "result": result})

    with stub(answer) as url:
        async with client(url) as web:
            assert text_of(await web.call_tool("echo", {"text": "hi"})) == "ECHO: hi"
            assert await asyncio.to_thread(answered.wait, 5)
    assert said == [{"jsonrpc": "2.0", "id": "p1", "result": {}}]


async def test_an_answer_without_end_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ferrule.mcp.http.MAX_MESSAGE_BYTES", 10_000)

    def answer(asked: Asked) -> Reply:
        if asked.json["method"] == "tools/call" and asked.json["params"]["arguments"]:
            return 200, {}, b'{"jsonrpc":"2.0","id":1,"result":"' + b"x" * 1_000_000
        return mcp_result(asked)

    with stub(answer) as url:
        async with client(url) as web:
            with pytest.raises(RespondToModel, match="larger than 32 MiB"):
                await web.call_tool("echo", {"text": "long"})
            assert text_of(await web.call_tool("echo", {})) == "ECHO: None"


async def test_headers_and_the_bearer_come_from_settings_and_variables() -> None:
    seen: list[dict[str, str]] = []

    def answer(asked: Asked) -> Reply:
        seen.append(asked.headers)
        return mcp_result(asked)

    with stub(answer) as url:
        more = {
            "headers": {"X-A": "1"},
            "env_http_headers": {"X-B": "B", "X-C": "NONE"},
            "bearer_token_env_var": "TOKEN",
        }
        async with client(url, env={"B": "2", "TOKEN": "secret"}, **more):
            pass
    headers = seen[0]
    assert (headers["x-a"], headers["x-b"], headers["authorization"]) == ("1", "2", "Bearer secret")
    assert "x-c" not in headers


async def test_b110_a_server_that_wants_a_login_or_is_not_there_says_so() -> None:
    with stub(lambda asked: (401, {}, b"")) as url:
        with pytest.raises(McpFailure, match=r"needs a login \(HTTP 401\): run `ferrule mcp login web`") as failed:
            await client(url).connect()
        assert failed.value.kind == "login"
    with pytest.raises(McpFailure, match="cannot be reached") as failed:
        await client(url).connect()
    assert failed.value.kind == "unreachable"


def test_remote_mcp_is_sent_with_a_plain_token_and_a_label() -> None:
    for authorization in ("secret", BearerAuthorization(token="secret")):
        spec = RemoteMcp(server_url="https://mcp.example.com/x", authorization=authorization)
        wire = {
            "type": "mcp",
            "server_url": "https://mcp.example.com/x",
            "server_label": "mcp_example_com",
            "authorization": "secret",
        }
        assert spec.to_responses() == wire
        assert spec.to_chat() is None


async def test_remote_mcp_goes_to_a_provider_that_runs_it_and_to_our_client_elsewhere(tmp_path: Path) -> None:
    seen: list[str | None] = []

    def answer(asked: Asked) -> Reply:
        seen.append(asked.headers.get("authorization"))
        return mcp_result(asked)

    with stub(answer) as url:
        spec = RemoteMcp(
            server_url=url,
            server_label="web",
            authorization=BearerAuthorization(token="t"),
            allowed_tools=("echo",),
            require_approval="never",
        )
        with ScriptedModel([[message("done")]]) as model:
            agent = Agent("m", tools=[spec], base_url=model.base_url, wire="responses", cwd=tmp_path)
            await agent.run("go")
            (tool,) = json.loads(model.requests[0].raw)["tools"]
            assert (tool["type"], tool["authorization"], tool["server_url"]) == ("mcp", "t", url)
            assert seen == []
        script = [[function_call("mcp__web__echo", {"text": "x"})], [message("done")]]
        with ScriptedModel(script) as model:
            await Agent("m", tools=[spec], base_url=model.base_url, wire="chat", cwd=tmp_path).run("go")
            assert model.requests[1].outputs[0].text == "ECHO: x"
            assert set(seen) == {"Bearer t"}
