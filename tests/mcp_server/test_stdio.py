"""The server's end of a client's pipes, and clients that write what no client should."""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from mcp.server.lowlevel import Server

from ferrule.doors.mcp_server import clients, stdio
from ferrule.doors.mcp_server.run import tools_opener
from ferrule.doors.mcp_server.stdio import serve_lines
from ferrule.protocol.settings import Settings
from ferrule.rpc import TOO_MANY
from tests.mcp_server.served import ESCALATED, served, serving, settings_in
from tests.processes import running, until
from tests.raw_client import RawClient

HELLO = {
    "protocolVersion": "2025-11-25",
    "capabilities": {"elicitation": {}},
    "clientInfo": {"name": "test", "version": "1"},
}
ENVELOPE = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {}},
}
REFUSED, NO_JSON = -32600, -32700


class Pipes(RawClient):
    """The client's ends of the pipes, and the server behind them."""

    async def call(self, script: str, **more: Any) -> int:
        return await self.ask("tools/call", name="exec_command", arguments={"cmd": script, **more})

    async def greet(self) -> None:
        await self.answer(await self.ask("initialize", **HELLO))
        await self.say(method="notifications/initialized")


@asynccontextmanager
async def piped(settings: Settings) -> AsyncIterator[Pipes]:
    """A server at the other end of two pipes."""
    async with served(settings) as server, piped_to(server) as pipes:
        yield pipes


@asynccontextmanager
async def piped_to(server: Server[Any]) -> AsyncIterator[Pipes]:
    source, into = os.pipe()
    out_of, sink = os.pipe()
    pipes = Pipes(into, out_of)
    pipes.serving = asyncio.create_task(serve_lines(server, server.create_initialization_options(), source, sink))
    try:
        yield pipes
    finally:
        pipes.hang_up()
        async with asyncio.timeout(20):
            await pipes.serving
        pipes.stop_listening()
        os.close(source)
        os.close(sink)


DEEP = b'{"jsonrpc":"2.0","id":1,"method":"ping","params":' + b"[" * 100_000 + b"]" * 100_000 + b"}"


@pytest.mark.parametrize(
    ("line", "code", "known"),
    [
        (b"hello", NO_JSON, None),
        (b"{", NO_JSON, None),
        (b"\xff\xfe\x00", NO_JSON, None),
        (b"\x00\x00\x00", NO_JSON, None),
        (b'{"jsonrpc":"2.0","id":2,"method":"ping","params":{"a":"\\ud800"}}', NO_JSON, 2),
        (b'{"jsonrpc":"2.0","id":3,"method":"ping","params":{"a":"\xff"}}', NO_JSON, 3),
        (DEEP, NO_JSON, None),
        (b"17", REFUSED, None),
        (b"null", REFUSED, None),
        (b'[{"jsonrpc":"2.0","id":1,"method":"ping"}]', REFUSED, None),
        (b'{"id":4,"method":"ping"}', REFUSED, 4),
        (b'{"jsonrpc":"1.0","id":"x","method":"ping"}', REFUSED, "x"),
        (b'{"jsonrpc":"2.0","id":true,"method":"ping"}', REFUSED, None),
        (b'{"jsonrpc":"2.0","id":null,"method":"ping"}', REFUSED, None),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"ping"}', REFUSED, None),
        (b'{"jsonrpc":"2.0","id":{},"method":"ping"}', REFUSED, None),
        (b'{"jsonrpc":"2.0","id":5,"method":7}', REFUSED, 5),
        (b'{"jsonrpc":"2.0","id":6,"method":"ping","params":[1]}', REFUSED, 6),
        (b'{"jsonrpc":"2.0","id":7,"method":"no/such"}', -32601, 7),
        (b'{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":3}}', -32602, 8),
        (b'{"jsonrpc":"2.0","id":9,"method":"resources/read","params":{"uri":"file:///etc/passwd"}}', -32602, 9),
    ],
)
async def test_a_line_that_is_no_request_gets_one_error_and_ends_nothing(
    tmp_path: Path, line: bytes, code: int, known: object
) -> None:
    async with piped(settings_in(tmp_path)) as pipes:
        await pipes.greet()
        await pipes.send(b"\n \r\n" + line + b"\n")
        heard = await pipes.hear()
        assert heard["error"]["code"] == code and heard.get("id") == known
        assert "pydantic" not in heard["error"]["message"] and len(heard["error"]["message"]) < 200
        await pipes.say(id="after", method="ping")
        assert (await pipes.hear())["id"] == "after"


async def test_a_line_of_100_mb_gets_an_error_and_costs_no_memory(tmp_path: Path) -> None:
    async with piped(settings_in(tmp_path)) as pipes:
        await pipes.greet()
        named = b'{"jsonrpc":"2.0","id":"a-1","method":"ping","params":{"id":3,'
        for begins, pieces, known in ((named, 50, "a-1"), (b"{", 17, None)):
            await pipes.send(begins)
            for _ in range(pieces):
                await pipes.send(b"x" * (2 << 20))
            await pipes.send(b"\n")
            heard = await pipes.hear()
            assert heard["error"]["code"] == REFUSED and "32 MiB" in heard["error"]["message"]
            assert heard.get("id") == known
        await pipes.answer(await pipes.ask("ping"))


@pytest.mark.parametrize("meta", [{}, {"_meta": ENVELOPE}])
async def test_what_was_asked_before_the_end_of_the_input_is_answered(tmp_path: Path, meta: dict[str, Any]) -> None:
    async with piped(settings_in(tmp_path)) as pipes:
        if not meta:
            await pipes.greet()
        asked = await pipes.ask("tools/list", **meta)
        pipes.hang_up()
        assert "result" in await pipes.answer(asked)


async def test_what_comes_before_the_handshake_gets_an_error(tmp_path: Path) -> None:
    async with piped(settings_in(tmp_path)) as pipes:
        assert "error" in await pipes.answer(await pipes.ask("tools/list"))
        await pipes.greet()
        assert "result" in await pipes.answer(await pipes.ask("tools/list"))


async def test_answers_to_questions_that_were_never_asked_change_nothing(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    async with piped(settings_in(tmp_path)) as pipes:
        await pipes.greet()
        for number in range(1, 4):  # the ids that the server's own requests will have
            await pipes.say(id=number, result={"action": "accept", "content": {}})
        asking = await pipes.call(f"touch {outside}", **ESCALATED)
        question = await pipes.hear()
        assert question["method"] == "elicitation/create"
        await pipes.say(id=999, result={"action": "accept"})
        await pipes.say(id=question["id"], result={"action": "decline"})
        await pipes.say(id=question["id"], result={"action": "accept"})
        assert (await pipes.answer(asking))["result"]["isError"] and not outside.exists()


@pytest.mark.parametrize(
    "answer",
    [
        {"result": {"action": "yes"}},
        {"result": {}},
        {"result": "accept"},
        {"result": {"action": "accept", "content": {"decision": ["only this once"]}}},
        {"error": {"code": -1, "message": "no"}},
        {"error": "no"},
        {"nothing": 1},
    ],
)
async def test_an_answer_that_is_no_yes_is_a_no(tmp_path: Path, answer: dict[str, Any]) -> None:
    outside = tmp_path / "outside"
    async with piped(settings_in(tmp_path)) as pipes:
        await pipes.greet()
        asking = await pipes.call(f"touch {outside}", **ESCALATED)
        question = await pipes.hear()
        await pipes.say(id=question["id"], **answer)
        assert (await pipes.answer(asking))["result"]["isError"] and not outside.exists()


async def test_a_call_that_asked_goes_on_only_as_that_call_and_once(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    arguments = {"cmd": f"touch {outside}", **ESCALATED}
    yes = {"question-1": {"action": "accept"}}

    async with piped(settings_in(tmp_path)) as pipes:

        async def call(**more: Any) -> dict[str, Any]:
            params = {"name": "exec_command", "arguments": arguments, "_meta": ENVELOPE} | more
            heard: dict[str, Any] = (await pipes.answer(await pipes.ask("tools/call", **params)))["result"]
            return heard

        asked = await call()
        state = asked["requestState"]
        assert asked["resultType"] == "input_required"
        assert f"touch {outside}" in asked["inputRequests"]["question-1"]["params"]["message"]
        other = {"cmd": f"touch {outside}; touch {tmp_path}/more", **ESCALATED}
        for wrong in (
            {"requestState": "guessed", "inputResponses": yes},
            {"requestState": state, "inputResponses": yes, "arguments": other},
            {"requestState": state, "inputResponses": yes, "name": "write_stdin"},
        ):
            refused = await call(**wrong)
            assert refused["isError"] and "approval" in refused["content"][0]["text"]
        assert not outside.exists()
        assert not (await call(requestState=state, inputResponses=yes)).get("isError") and outside.exists()
        assert (await call(requestState=state, inputResponses=yes))["isError"]
        again = await call()
        unanswered = await call(requestState=again["requestState"], inputResponses={})
        assert unanswered["isError"] and "rejected by user" in unanswered["content"][0]["text"]


@pytest.mark.parametrize(("limit", "value"), [("MAX_PARKED", 1), ("PARKED_S", 0.1)])
async def test_a_call_that_nobody_answers_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: float
) -> None:
    monkeypatch.setattr(clients, limit, value)
    params = {"name": "exec_command", "arguments": {"cmd": "true", **ESCALATED}, "_meta": ENVELOPE}
    known = clients.Client(settings_in(tmp_path), tools_opener(None))
    async with serving(known) as server, piped_to(server) as pipes:
        asked = [(await pipes.answer(await pipes.ask("tools/call", **params)))["result"] for _ in range(2)]
        await until(lambda: len(known._parked) <= (1 if limit == "MAX_PARKED" else 0))
        late = params | {"requestState": asked[0]["requestState"], "inputResponses": {}}
        refused = (await pipes.answer(await pipes.ask("tools/call", **late)))["result"]
        assert refused["isError"] and "withdrawn" in refused["content"][0]["text"]


@pytest.mark.parametrize("meta", [{}, {"_meta": ENVELOPE}])
async def test_a_cancelled_call_gets_no_answer(tmp_path: Path, meta: dict[str, Any]) -> None:
    mark = f": cancel{os.getpid()}{len(meta)}"
    async with piped(settings_in(tmp_path)) as pipes:
        if not meta:
            await pipes.greet()
        arguments = {"cmd": f"{mark}; sleep 1000; :"}
        calling = await pipes.ask("tools/call", name="exec_command", arguments=arguments, **meta)
        await until(lambda: bool(running(mark)))
        await pipes.say(method="notifications/cancelled", params={"requestId": calling})
        await until(lambda: not running(mark))
        after = await pipes.ask("resources/list", **meta)
        assert (await pipes.hear())["id"] == after


async def test_a_flood_of_requests_is_answered_with_errors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stdio, "MAX_OPEN", 8)
    async with piped(settings_in(tmp_path)) as pipes:
        await pipes.greet()
        calls = [await pipes.call("sleep 30") for _ in range(8)]
        assert (await pipes.answer(await pipes.ask("ping")))["error"]["code"] == TOO_MANY
        await pipes.say(method="notifications/cancelled", params={"requestId": calls[0]})
        assert "result" in await pipes.answer(await pipes.ask("ping"))


@pytest.mark.parametrize("state", ["idle", "running", "asking", "background", "half a line", "before the handshake"])
@pytest.mark.parametrize("how", ["input", "output"])
async def test_a_client_that_goes_leaves_nothing_running(tmp_path: Path, state: str, how: str) -> None:
    mark = f": left{os.getpid()}{how}{state}".replace(" ", "")
    stubborn = f"{mark}; trap '' TERM HUP INT; sleep 1000; sleep 1000; :"
    async with piped(settings_in(tmp_path)) as pipes:
        if state == "half a line":
            await pipes.send(b'{"jsonrpc":"2.0","id":')
        elif state != "before the handshake":
            await pipes.greet()
        if state == "running":
            await pipes.call(stubborn)
            await until(lambda: bool(running(mark)))
        elif state == "background":
            await pipes.answer(await pipes.call(stubborn, yield_time_ms=250))
        elif state == "asking":
            await pipes.call(stubborn, **ESCALATED)
            assert (await pipes.hear())["method"] == "elicitation/create"
        began = time.monotonic()
        if how == "input":
            pipes.hang_up()
        else:
            pipes.stop_listening()
            await pipes.say(id=1, method="no/such")
            await pipes.say(id=2, method="no/such")
        assert pipes.serving is not None
        if state != "half a line" or how == "input":
            await pipes.serving
    assert not running(mark) and time.monotonic() - began < 6
