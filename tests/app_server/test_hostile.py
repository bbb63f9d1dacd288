"""Clients that write what no client should, read nothing, or leave in the midst of something."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from ferrule.doors.app_server import connection
from ferrule.doors.app_server.connection import Connection
from ferrule.doors.app_server.methods import METHODS
from ferrule.stdio import HIGH_BYTES, MOST_BYTES, Outbox
from ferrule.testing import Gate, ScriptedModel, Stall, function_call, step
from tests.app_server.client import HELLO, RpcError
from tests.app_server.served import ESCALATED, Pipes, configure_in, piped
from tests.cli.played import execute
from tests.processes import running, until

NO_JSON, REFUSED, UNKNOWN = -32700, -32600, -32601
DEEP = b'{"id":1,"method":"model/list","params":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
NO_ROOT = b'{"type":"workspaceWrite","writableRoots":["/\\u0000"]}'
NOWHERE = "http://127.0.0.1:9/v1"


@pytest.mark.parametrize(
    ("line", "code", "known"),
    [
        (b"hello", NO_JSON, None),
        (b"{", NO_JSON, None),
        (b"\xff\xfe\x00", NO_JSON, None),
        (b"\x00\x00\x00", NO_JSON, None),
        (b'{"id":2,"method":"model/list","params":{"cursor":"\\ud800"}}', NO_JSON, 2),
        (b'{"id":3,"method":"model/list","params":{"cursor":"\xff"}}', REFUSED, 3),
        (DEEP, NO_JSON, 1),
        (b"17", REFUSED, None),
        (b"null", REFUSED, None),
        (b"[]", REFUSED, None),
        (b'[{"id":1,"method":"model/list"}]', REFUSED, None),
        (b'{"id":true,"method":"model/list"}', REFUSED, None),
        (b'{"id":null,"method":"model/list"}', REFUSED, None),
        (b'{"id":1.5,"method":"model/list"}', REFUSED, None),
        (b'{"id":{},"method":"model/list"}', REFUSED, None),
        (b'{"id":5,"method":7}', REFUSED, 5),
        (b'{"id":6,"method":"model/list","params":[1]}', REFUSED, 6),
        (b'{"id":7}', REFUSED, 7),
        (b'{"id":8,"method":"no/such"}', UNKNOWN, 8),
        (b'{"id":9,"method":"turn/start","params":{"threadId":3}}', REFUSED, 9),
        (b'{"id":10,"method":"turn/start","params":{"threadId":"x","input":[{"type":"smell"}]}}', REFUSED, 10),
        (b'{"id":11,"method":"thread/read","params":{"threadId":"../../etc/passwd"}}', REFUSED, 11),
        (b'{"id":12,"method":"thread/resume","params":{"threadId":"/etc/passwd.jsonl"}}', REFUSED, 12),
        (b'{"id":13,"method":"thread/list","params":{"cursor":"-1"}}', REFUSED, 13),
        (b'{"id":14,"method":"thread/list","params":{"limit":-5}}', REFUSED, 14),
        (b'{"id":15,"method":"initialize","params":{}}', REFUSED, 15),
        (b'{"id":16,"method":"thread/start","params":{"cwd":"%s"}}' % (b"x" * 100_000), REFUSED, 16),
        (b'{"id":17,"method":"thread/start","params":{"sandbox":"%s"}}' % (b"x" * 100_000), REFUSED, 17),
        (b'{"id":18,"method":"command/exec","params":{"command":["true"],"sandboxPolicy":%s}}' % NO_ROOT, REFUSED, 18),
        (b'{"id":19,"method":"thread/name/set","params":{"threadId":"x","name":"y"}}', REFUSED, 19),
    ],
)
async def test_a_line_that_is_no_request_gets_one_error_and_ends_nothing(
    told: Pipes, line: bytes, code: int, known: object
) -> None:
    await told.send(b"\n \r\n" + line + b"\n")
    heard = await told.next()
    assert heard["error"]["code"] == code and heard["id"] == known
    assert 0 < len(heard["error"]["message"]) < 2_100
    told._id += 100
    assert (await told.call("thread/loaded/list"))["data"] == []


@pytest.fixture
async def told(tmp_path: Path) -> Any:
    """A client that has shaken hands."""
    async with piped(configure_in(tmp_path, NOWHERE)) as client:
        yield client


async def test_a_folder_of_no_thread_lists_none(told: Pipes) -> None:
    assert (await told.call("thread/list", cwd=["/\0"]))["data"] == []


async def test_what_comes_before_the_handshake_gets_an_error(tmp_path: Path) -> None:
    async with piped(configure_in(tmp_path, NOWHERE), greets=False) as client:
        for method in ("thread/start", "no/such"):
            with pytest.raises(RpcError, match="Not initialized"):
                await client.call(method)
        with pytest.raises(RpcError, match="clientInfo"):
            await client.call("initialize")
        await client.greet()
        with pytest.raises(RpcError, match="Already initialized"):
            await client.call("initialize", **HELLO)


async def test_a_line_of_100_mb_gets_an_error_and_costs_no_memory(told: Pipes) -> None:
    for begins, pieces, known in ((b'{"id":"a-1","method":"x","params":{"id":3,', 50, "a-1"), (b"{", 17, None)):
        await told.send(begins)
        for _ in range(pieces):
            await told.send(b"x" * (2 << 20))
        await told.send(b"\n")
        heard = await told.next()
        assert heard["error"]["code"] == REFUSED and "32 MiB" in heard["error"]["message"] and heard["id"] == known


async def test_answers_to_questions_that_were_never_asked_change_nothing(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    with ScriptedModel([execute(f"touch {outside}", 9_000, **ESCALATED), "Done."]) as model:
        async with piped(configure_in(tmp_path, model.base_url)) as client:
            thread = await client.start()
            for number in (0, 1, "0"):
                await client.say({"id": number, "result": {"decision": "accept"}})
                assert "never asked" in (await client.notified("warning"))["message"]
                client.forget()
            await client.call("turn/start", threadId=thread, input=[{"type": "text", "text": "go"}])
            await client.notified("item/commandExecution/requestApproval")
            [asked] = client.asked
            yes = {"id": asked["id"], "result": {"decision": "accept"}}
            await client.say(yes | {"error": {"code": 1, "message": "no"}})
            await client.notified("turn/completed")
            await client.say(yes)
            assert "never asked" in (await client.notified("warning"))["message"] and not outside.exists()


async def test_requests_beyond_the_bound_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MAX_OPEN", 2)
    monkeypatch.setattr(connection, "MAX_THREADS", 1)
    async with piped(configure_in(tmp_path, NOWHERE)) as client:
        await client.start()
        with pytest.raises(RpcError, match="threads are open"):
            await client.start()
        waits = [await client.ask("command/exec", command=["sleep", "60"], timeoutMs=60_000) for _ in range(2)]
        with pytest.raises(RpcError, match="overloaded") as refused:
            await client.call("model/list")
        assert refused.value.code == -32001
        await client.say({"id": waits[0], "method": "model/list"})
        with pytest.raises(RpcError, match="is being served"):
            await client.result(waits[0])


STATES = {
    "a command runs": execute("{mark}; trap '' TERM HUP INT; sleep 1000; :", 250),
    "an approval waits": execute("{mark}; sleep 1000", 30_000, **ESCALATED),
    "the client's tool is called": dict(function_call("lookup", {})),
    "the user is asked": dict(function_call("request_user_input", {"questions": [{"id": "q", "question": "Which?"}]})),
    "the model speaks": "",
}


@pytest.mark.parametrize("state", STATES)
async def test_a_client_that_leaves_leaves_nothing_behind(tmp_path: Path, state: str) -> None:
    mark = f": app_server_{tmp_path.name}"
    given: Any = json.loads(json.dumps(STATES[state]).replace("{mark}", mark))
    tool = {"type": "function", "name": "lookup", "description": "", "inputSchema": {"type": "object"}}
    gate = Gate()
    if state == "the model speaks":
        given = step("Hello.", "Later.", stall=Stall(at="Later", gate=gate))
    with ScriptedModel([given, "Never."]) as model:
        configure = configure_in(tmp_path, model.base_url)
        async with piped(configure) as client:
            thread = await client.start(dynamicTools=[tool])
            say = {"threadId": thread, "input": [{"type": "text", "text": "alpha"}]}
            await client.call("turn/start", **say)
            await client.hear(lambda message: ("id" in message and "method" in message) or _is_far(message))
            began = asyncio.get_running_loop().time()
        assert asyncio.get_running_loop().time() - began < 6 and not running(mark)
        gate.open()
        async with piped(configure) as client:
            turns = (await client.call("thread/resume", threadId=thread))["thread"]["turns"]
            assert turns[0]["items"][0]["content"][0]["text"] == "alpha"


def _is_far(message: dict[str, Any]) -> bool:
    """The model speaks, or its command has begun."""
    item = message.get("params", {}).get("item", {})
    begun = message.get("method") == "item/started" and item["type"] == "commandExecution"
    return begun or message.get("method") == "item/agentMessage/delta"


async def test_a_client_that_reads_nothing_slows_its_own_turn_and_no_other(tmp_path: Path) -> None:
    words = os.urandom(2 << 20).hex()
    with ScriptedModel(step(words, delta_chars=4_000)) as model:
        outbox = Outbox()
        deaf = Connection(METHODS, configure_in(tmp_path, model.base_url), outbox)
        deaf.take(json.dumps({"id": 1, "method": "initialize", "params": HELLO}).encode())
        deaf.take(b'{"id":2,"method":"thread/start","params":{}}')
        await deaf.settled()
        [thread] = deaf.threads
        say = {"threadId": thread, "input": [{"type": "text", "text": "go"}]}
        deaf.take(json.dumps({"id": 3, "method": "turn/start", "params": say}).encode())
        await deaf.settled()
        await until(lambda: outbox._bytes > HIGH_BYTES)
        held = outbox._bytes
        assert deaf.threads[thread].is_working and held < 3 * HIGH_BYTES
        async with piped(configure_in(tmp_path, model.base_url)) as other:
            model.play("Quick.", when="beta")
            assert (await other.turn(await other.start(), "beta"))["status"] == "completed"
        assert outbox._bytes == held and deaf.threads[thread].is_working
        await deaf.aclose()


async def test_a_client_for_whom_too_much_waits_is_given_up() -> None:
    outbox = Outbox()
    while not outbox.lost.is_set():
        outbox.put(b"x" * (1 << 20))
    assert outbox._bytes == 0
    outbox.put(b"x" * (MOST_BYTES + 1))
    await outbox.flushed()


async def test_a_configuration_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    async with piped(configure_in(tmp_path, NOWHERE), greets=False) as client:
        (tmp_path / "home").mkdir()
        (tmp_path / "home" / "config.toml").write_text("no toml")
        with pytest.raises(RpcError, match=r"config\.toml"):
            await client.call("initialize", **HELLO)
        (tmp_path / "home" / "config.toml").write_text("")
        await client.greet()
        (tmp_path / "home" / "config.toml").write_text("no_such_key = 1")
        with pytest.raises(RpcError, match="no_such_key"):
            await client.start()
