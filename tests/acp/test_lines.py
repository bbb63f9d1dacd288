"""A client that is no friend: bad lines, floods, answers that nobody asked for, and one that goes in every state."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from acp.schema import FileSystemCapabilities

from ferrule.cli.commands import acp
from ferrule.config import Configuration, Sources
from ferrule.doors.acp import buffers, lines, run
from ferrule.doors.acp.agent import Programs
from ferrule.doors.acp.run import serve
from ferrule.doors.app_server import pipes as app_server_pipes
from ferrule.doors.mcp_server import stdio as mcp_server_stdio
from ferrule.process.shell import LOGIN_GRACE
from ferrule.protocol.errors import UsageError
from ferrule.protocol.settings import ModelSettings, ProviderSettings
from ferrule.session.resuming import Given
from ferrule.stdio import HIGH_BYTES, Outbox
from ferrule.testing import Gate, ScriptedModel, Stall, function_call, message, step
from tests.cli.command import Place
from tests.cli.places import cold_place
from tests.mcp_server.served import settings_in
from tests.processes import running, until
from tests.raw_client import RawClient

__all__ = ["cold_place"]

SLEEP = "trap '' TERM HUP INT; sleep 1000; sleep 1000; :"


class Pipes(RawClient):
    """The client's ends of two pipes, and the door's end of what is sent."""

    def __init__(self, into: int, out_of: int, source: int, folder: Path) -> None:
        super().__init__(into, out_of)
        self.source = source
        self.folder = folder

    async def until(self, method: str) -> dict[str, Any]:
        """The next request or notification of a kind: the kind of an update, or a method."""
        while True:
            heard = await self.hear()
            kind = heard.get("params", {}).get("update", {}).get("sessionUpdate")
            if method in (kind, heard.get("method")):
                return heard

    async def result(self, method: str, **params: Any) -> Any:
        return (await self.answer(await self.ask(method, **params)))["result"]

    async def begin(self, **able: Any) -> str:
        """Greet, begin a session, return its id."""
        await self.result("initialize", protocolVersion=1, **able)
        where, meta = str(self.folder / "work"), {"cwd": "/nowhere", "self": 1}
        made = await self.result("session/new", cwd=where, mcpServers=[], _meta=meta)
        return str(made["sessionId"])

    async def prompt(self, session: str, text: str) -> int:
        return await self.ask("session/prompt", sessionId=session, prompt=[{"type": "text", "text": text}])

    def close_source(self) -> None:
        """Close the door's end: whoever still writes is told."""
        if self.source >= 0:
            os.close(self.source)
            self.source = -1


@asynccontextmanager
async def piped(folder: Path, model: ScriptedModel) -> AsyncIterator[Pipes]:
    """The door at the other end of two pipes."""
    provider = ProviderSettings(name="scripted", base_url=model.base_url)
    settings = settings_in(folder, model=ModelSettings(model="m"), provider=provider, tools=("shell_command",))
    programs = Programs(
        sources=lambda cwd, more, mode: Sources(cwd=cwd),
        load=lambda sources: Configuration(settings=settings),
        given=Given(cwd=True),
        home=settings.home,
    )
    source, into = os.pipe()
    out_of, sink = os.pipe()
    pipes = Pipes(into, out_of, source, folder)
    pipes.serving = asyncio.create_task(serve(programs, source, sink))
    try:
        yield pipes
    finally:
        pipes.hang_up()
        async with asyncio.timeout(20):
            await pipes.serving
        pipes.stop_listening()
        pipes.close_source()
        os.close(sink)


@pytest.mark.parametrize(
    ("line", "request_id", "words"),
    [
        (b"{", None, "not JSON"),
        (b'"\xff"', None, "not JSON"),
        (b"[" * 100_000, None, "not JSON"),
        (b'{"jsonrpc":"2.0","id":2,"method":"m","params":{"a":"\\ud800"}}', 2, "not JSON"),
        (b'{"id":"x","method":"m","params":{"a":"\xff"}}', "x", "not JSON"),
        (b"[]", None, "batches"),
        (b"7", None, "a JSON object"),
        (b"{}", None, "has a method"),
        (b'{"id":null,"method":"m"}', None, "the id"),
        (b'{"id":true,"method":"m"}', None, "the id"),
        (b'{"id":[1],"result":1}', None, "the id"),
        (b'{"id":3,"method":["m"]}', 3, "the method"),
        (b'{"id":"x","method":"m","params":[1]}', "x", "params"),
        (b'{"id":4}', 4, "an answer"),
        (b'{"id":4,"error":"no"}', 4, "an answer"),
        (b'{"id":5,"method":"no/such","params":{}}', 5, "Method not found"),
        (b'{"id":6,"method":"_extension","params":{}}', 6, "Method not found"),
        (b'{"id":7,"method":"session/new","params":{"cwd":"/","mcpServers":[]}}', 7, "initialize comes first"),
        (b'{"id":8,"method":"session/prompt","params":{"sessionId":[],"prompt":7}}', 8, "Invalid params"),
        (b'{"id":9,"method":"session/new"}', 9, "Invalid params"),
    ],
)
async def test_a_line_that_is_no_request_gets_one_error_and_ends_nothing(
    tmp_path: Path, line: bytes, request_id: object, words: str
) -> None:
    with ScriptedModel([]) as model:
        async with piped(tmp_path, model) as pipes:
            await pipes.send(b"\n  \n" + line + b"\n")
            heard = await pipes.hear()
            assert heard["id"] == request_id and words in heard["error"]["message"] and heard["error"]["code"] < 0
            assert len(json.dumps(heard)) < 1000
            assert (await pipes.result("initialize", protocolVersion=1))["protocolVersion"] == 1


async def test_an_error_repeats_no_more_of_what_was_given_than_can_be_read(tmp_path: Path) -> None:
    with ScriptedModel([]) as model:
        async with piped(tmp_path, model) as pipes:
            await pipes.result("initialize", protocolVersion=1)
            refused = await pipes.answer(await pipes.ask("session/new", cwd="x" * 100_000, mcpServers=[]))
            assert len(refused["error"]["message"]) < 2_100


async def test_nothing_is_told_of_a_session_before_its_client_knows_it(tmp_path: Path) -> None:
    with ScriptedModel([]) as model:
        async with piped(tmp_path, model) as pipes:
            await pipes.result("initialize", protocolVersion=1)
            asked = await pipes.ask("session/new", cwd=str(tmp_path / "work"), mcpServers=[])
            first, second = await pipes.hear(), await pipes.hear()
            assert first["id"] == asked and second["params"]["sessionId"] == first["result"]["sessionId"]
            assert second["params"]["update"]["sessionUpdate"] == "available_commands_update"


async def test_what_nobody_asked_for_changes_nothing(tmp_path: Path) -> None:
    with ScriptedModel([message("fine")]) as model:
        async with piped(tmp_path, model) as pipes:
            session = await pipes.begin()
            for stray in (
                {"id": 99, "result": {"outcome": {"outcome": "selected", "optionId": "approved"}}},
                {"id": "x", "error": {"code": 1, "message": "no"}},
                {"method": "no/such/notification", "params": {}},
                {"method": "session/cancel", "params": {"sessionId": "nobody"}},
                {"method": "session/cancel", "params": {"sessionId": session}},
                {"method": "session/cancel"},
            ):
                await pipes.say(**stray)
            done = await pipes.answer(await pipes.prompt(session, "go"))
            assert "result" in done, str(done)[:500]
            unknown = await pipes.answer(await pipes.prompt("nobody", "go"))
            assert "there is no session" in unknown["error"]["message"]


async def test_a_line_of_100_mb_gets_one_error(tmp_path: Path) -> None:
    with ScriptedModel([]) as model:
        async with piped(tmp_path, model) as pipes:
            await pipes.send(b'{"jsonrpc":"2.0","id":77,"method":"session/prompt","params":{"prompt":"')
            for _ in range(100):
                await pipes.send(b"x" * (1 << 20))
            await pipes.send(b'"}}\n')
            heard = await pipes.hear()
            assert heard["id"] == 77 and "longer than 32 MiB" in heard["error"]["message"]
            await pipes.begin()


async def test_a_flood_is_answered_with_errors_and_an_id_is_served_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate()
    with ScriptedModel([step(message("x"), stall=Stall(gate=gate))]) as model:
        async with piped(tmp_path, model) as pipes:
            session = await pipes.begin()
            first = await pipes.prompt(session, "go")
            await pipes.say(id=first, method="session/list", params={})
            assert "is still being served" in (await pipes.answer(first))["error"]["message"]
            waiting = [await pipes.prompt(session, "more") for _ in range(15)]
            assert "wait already" in (await pipes.answer(await pipes.prompt(session, "more")))["error"]["message"]
            monkeypatch.setattr(lines, "MAX_OPEN", 1 + len(waiting))
            assert "at once" in (await pipes.answer(await pipes.ask("session/list")))["error"]["message"]
            await pipes.say(method="session/cancel", params={"sessionId": session})
            assert (await pipes.answer(first))["result"]["stopReason"] == "cancelled"
            gate.open()


async def test_answers_without_sense_are_a_no(tmp_path: Path) -> None:
    asks = {"command": "touch it", "sandbox_permissions": "require_escalated"}
    answers: list[dict[str, Any]] = [
        {"result": None},
        {"result": {"outcome": "selected"}},
        {"result": {"outcome": {"outcome": "selected", "optionId": ["approved"]}}},
        {"error": {"code": -1, "message": "no window"}},
    ]
    calls = [[function_call("shell_command", asks, call_id=f"c{number}")] for number in range(len(answers))]
    with ScriptedModel([*calls, [message("done")]]) as model:
        async with piped(tmp_path, model) as pipes:
            session = await pipes.begin()
            turn = await pipes.prompt(session, "go")
            for answer in answers:
                asked = await pipes.until("session/request_permission")
                await pipes.say(id=asked["id"], **answer)
            assert (await pipes.answer(turn))["result"]["stopReason"] == "end_turn"
        assert not (tmp_path / "work" / "it").exists()
        assert "rejected by user" in model.last_request.outputs[0].text and "no window" in str(model.last_request.body)


@pytest.mark.parametrize("state", ["before", "greeted", "idle", "streaming", "command", "question", "deaf"])
async def test_a_client_that_goes_leaves_nothing_running(tmp_path: Path, state: str) -> None:
    mark = f": goes{state}{os.getpid()}"
    asked = {"command": "true", "sandbox_permissions": "require_escalated"}
    steps: dict[str, Any] = {
        "streaming": step(message("word " * 50), stall=Stall(at="word", gate=Gate())),
        "command": [function_call("shell_command", {"command": f"{mark}; {SLEEP}"})],
        "question": [function_call("shell_command", asked)],
        "deaf": step(message("word " * 200_000)),
    }
    with ScriptedModel([steps.get(state, "done"), "done"]) as model:
        async with piped(tmp_path, model) as pipes:
            if state == "greeted":
                await pipes.result("initialize", protocolVersion=1)
            elif state != "before":
                session = await pipes.begin()
                if state in steps:
                    await pipes.prompt(session, "go")
                if state in ("streaming", "deaf"):
                    await pipes.until("agent_message_chunk")
                if state == "command":
                    await until(lambda: bool(running(mark)))
                if state == "question":
                    await pipes.until("session/request_permission")
            began = time.monotonic()
            if state == "deaf":
                pipes.stop_listening()
            else:
                pipes.hang_up()
            assert pipes.serving is not None
            await asyncio.wait_for(asyncio.shield(pipes.serving), 20)
            assert time.monotonic() - began < 6 and not running(mark)


def test_the_end_has_time_for_start_up_files_that_do_not_end() -> None:
    graces = (lines.GRACE_S, app_server_pipes.GRACE_S, mcp_server_stdio.GRACE_S)
    assert max(graces) + LOGIN_GRACE + run.FLUSH_S < 5.5


class Measured(Outbox):
    """Knows how much has waited at most."""

    most = 0

    def put(self, message: bytes) -> None:
        super().put(message)
        Measured.most = max(Measured.most, self._bytes)


async def test_a_client_that_does_not_read_holds_up_its_turn_and_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "Outbox", Measured)
    with ScriptedModel([message(" ".join(map(str, range(20_000))))]) as model:
        async with piped(tmp_path, model) as pipes:
            turn = await pipes.prompt(await pipes.begin(), "go")
            await until(lambda: Measured.most > HIGH_BYTES)
            done = await pipes.answer(turn)
            assert done["result"]["stopReason"] == "end_turn"
    assert Measured.most < HIGH_BYTES + 100_000


async def test_bad_lines_of_a_client_that_does_not_read_wait_in_its_own_pipe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "Outbox", Measured)
    monkeypatch.setattr(Measured, "most", 0)
    with ScriptedModel([]) as model:
        async with piped(tmp_path, model) as pipes:
            flood = asyncio.create_task(pipes.send(b"{\n" * 1_000_000))
            await until(lambda: Measured.most > HIGH_BYTES)
            assert pipes.serving is not None
            pipes.stop_listening()
            await asyncio.wait_for(asyncio.shield(pipes.serving), 20)
            pipes.close_source()
            await flood
    assert Measured.most < HIGH_BYTES + 100_000


LOUD = (
    "import os, sys; from ferrule.cli.main import main\n"
    "from ferrule.doors.acp import lines\n"
    "read = lines.read_message\n"
    "def loud(line, *, whole):\n"
    "    print('stray', flush=True); os.system('echo child; cat')\n"
    "    return read(line, whole=whole)\n"
    "lines.read_message = loud\n"
    "sys.exit(main(sys.argv[1:]))"
)
"""The command, in which something prints at every line."""


@pytest.mark.parametrize("how", [signal.SIGTERM, None])
def test_signals_and_the_end_of_the_input_end_all_and_standard_output_is_the_protocols(
    cold_place: Place, how: int | None
) -> None:
    mark = f": signal{how}{os.getpid()}"
    call = function_call("shell_command", {"command": f"{mark}; {SLEEP}"})
    with ScriptedModel([[call], "done"]) as model:
        flags = ["-m", "m", "--base-url", model.base_url, "-c", 'tools=["shell_command"]']
        process = subprocess.Popen(
            [sys.executable, "-c", LOUD, "acp", *flags], cwd=cold_place.cwd, env=cold_place.env(),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        with process:
            for line in (
                {"id": 0, "method": "initialize", "params": {"protocolVersion": 1}},
                {"id": 1, "method": "session/new", "params": {"cwd": str(cold_place.cwd), "mcpServers": []}},
            ):
                process.stdin.write(json.dumps({"jsonrpc": "2.0"} | line).encode() + b"\n")
                process.stdin.flush()
                told = json.loads(process.stdout.readline())
            prompt = {"sessionId": told["result"]["sessionId"], "prompt": [{"type": "text", "text": "go"}]}
            process.stdin.write(
                json.dumps({"jsonrpc": "2.0", "id": 2, "method": "session/prompt", "params": prompt}).encode() + b"\n"
            )
            process.stdin.flush()
            deadline = time.monotonic() + 30
            while not running(mark):
                assert time.monotonic() < deadline
                time.sleep(0.02)
            began = time.monotonic()
            if how is None:
                process.stdin.close()
            else:
                process.send_signal(how)
            assert process.wait(20) == (0 if how is None else 130)
            assert time.monotonic() - began < 6 and not running(mark)
            out, err = process.stdout.read(), process.stderr.read()
    assert (
        all(json.loads(line)["jsonrpc"] == "2.0" for line in out.splitlines())
        and b"Traceback" not in err
        and err.count(b"stray\nchild\n") == 3
    )


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FERRULE_HOME", str(tmp_path))
    for name in [name for name in sys.modules if name.startswith("ferrule.doors.acp")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "acp", None)
    with pytest.raises(UsageError, match=r"pip install 'ferrule\[acp\]'"):
        acp.main([])


def configured() -> list[list[str]]:
    """The arguments of every configuration on the page."""
    page = (Path(__file__).parents[2] / "docs" / "editors.md").read_text()
    blocks = map(json.loads, re.findall(r"```json\n(.*?)```", page, re.DOTALL))
    entries = [entry for block in blocks for agents in block.values() for entry in agents.values()]
    assert len(entries) == 3 and all(entry["command"] == "ferrule" for entry in entries)
    others = re.findall(r"```(?:lua|elisp)\n(.*?)```", page, re.DOTALL)
    quoted = [re.findall(r'"([\w-]+)"', block[block.index('"acp"') :])[:3] for block in others]
    assert len(quoted) == 3
    return [*(entry["args"] for entry in entries), *quoted]


@pytest.mark.parametrize("words", configured(), ids=" ".join)
def test_the_arguments_of_every_configuration_on_the_page_are_known(words: list[str]) -> None:
    assert words[0] == "acp" and acp._parser().parse_args(words[1:]).model == "MODEL"


async def test_a_session_is_opened_once_at_a_time_however_often_it_is_asked_for(tmp_path: Path) -> None:
    with ScriptedModel([[message("one")], [message("two")]]) as model:
        async with piped(tmp_path, model) as pipes:
            session = await pipes.begin()
            await pipes.answer(await pipes.prompt(session, "go"))
            where = {"sessionId": session, "cwd": str(tmp_path / "work"), "mcpServers": []}
            asked = {await pipes.ask("session/load", **where) for _ in range(6)}
            while asked:
                heard = await pipes.hear()
                assert "error" not in heard
                asked -= {heard.get("id")}
            asked = {await pipes.ask("session/load", **where), await pipes.ask("session/close", sessionId=session)}
            while asked:
                asked -= {(await pipes.hear()).get("id")}
            await pipes.result("session/load", **where)
            asked = {await pipes.ask("session/close", sessionId=session), await pipes.ask("session/load", **where)}
            while asked:
                heard = await pipes.hear()
                assert "error" not in heard
                asked -= {heard.get("id")}
            done = await pipes.answer(await pipes.prompt(session, "go on"))
            assert done["result"]["stopReason"] == "end_turn" and "go" in model.last_request.user_text


async def test_an_editor_that_answers_nothing_is_waited_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Silent:
        """An editor that has not noticed."""

        async def read_text_file(self, path: str, **more: Any) -> None:
            asked.append(path)
            await asyncio.Event().wait()

        async def write_text_file(self, path: str, **more: Any) -> None:
            await self.read_text_file(path)

    monkeypatch.setattr(buffers, "ANSWER_S", 0.01)
    offered = FileSystemCapabilities(read_text_file=True, write_text_file=True)
    files = buffers.EditorFiles(cast(Any, Silent()), "s", offered)
    assert [await files.read(path) for path in "abc"] == [None] * 3
    assert all([await files.write(path, "") for path in "def"])
    assert asked == ["a", "d"]


@pytest.mark.parametrize("how", ["never", "nonsense", "answers"])
async def test_an_editor_that_cannot_tell_of_a_file_leaves_it_to_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(buffers, "ANSWER_S", 0.2 if how == "never" else 10)
    patch = "apply_patch <<'EOF'\n*** Begin Patch\n*** Update File: a\n@@\n-one\n+two\n*** End Patch\nEOF"
    with ScriptedModel([[function_call("shell_command", {"command": patch})], [message("done")]]) as model:
        async with piped(tmp_path, model) as pipes:
            able = {"fs": {"readTextFile": True, "writeTextFile": True}}
            session = await pipes.begin(clientCapabilities=able)
            path = tmp_path / "work" / "a"
            path.write_text("one\n")
            turn, written = await pipes.prompt(session, "go"), ""
            while "id" not in (heard := await pipes.hear()) or "method" in heard:
                if heard["method"] == "fs/write_text_file":
                    written = heard["params"]["content"]
                if heard["method"].startswith("fs/") and how != "never":
                    text = {"content": "one\nmine\n" if how == "answers" else [1]}
                    await pipes.say(id=heard["id"], result=text if "read" in heard["method"] else None)
            assert heard["id"] == turn and heard["result"]["stopReason"] == "end_turn"
            assert written == path.read_text() == ("two\nmine\n" if how == "answers" else "two\n")
