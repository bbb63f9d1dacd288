"""One server over stdio: how it starts, what it is given, how it fails, how it is ended. Real processes."""

import asyncio
import contextlib
import json
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ferrule.config.mcp_json import mcp_servers_of
from ferrule.lookup import Places
from ferrule.mcp import clock
from ferrule.mcp.client import MAX_TOOLS, MCPClient
from ferrule.mcp.connection import Connection
from ferrule.mcp.errors import McpFailure
from ferrule.protocol.errors import RespondToModel, UsageError
from ferrule.protocol.events import ElicitationRequest
from ferrule.protocol.mcp_settings import McpServerSettings
from ferrule.sync import call_async_from_sync
from ferrule.tools.questions import Answer, Elicited, NoAnswer
from tests.mcp.stub import loading, server


def settings(*modes: str, **more: Any) -> McpServerSettings:
    return mcp_servers_of({"mcpServers": {"stub": server(*modes, **more)}})["stub"]


def client(*modes: str, cwd: Path | str = "/", **more: Any) -> MCPClient:
    passed = {name: more.pop(name) for name in ("ask", "env", "on_tools_changed") if name in more}
    return MCPClient("stub", settings(*modes, **more), cwd=str(cwd), **passed)


def text_of(result: dict[str, Any]) -> str:
    return str(result["content"][0]["text"])


async def until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


def is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


async def test_b107_noise_on_stdout_and_a_flood_of_stderr_are_survived(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "ferrule.mcp"):
        async with client("noise", "stderr") as stub:
            assert text_of(await stub.call_tool("echo", {"text": "hi"})) == "ECHO: hi"
    assert "Starting v1.2" in caplog.text


async def test_a_server_that_failed_thousands_of_times_is_still_waited_for() -> None:
    stub = client()
    stub._failures = 5_000
    stub._failed()
    with pytest.raises(McpFailure, match="failed 5001 times in a row; it is started again in 30 seconds"):
        await stub.connect()


async def test_b107_a_server_that_never_speaks_is_named_with_its_first_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ferrule.mcp.stdio.EXIT_GRACE", 0.2)
    stub = MCPClient("stub", mcp_servers_of({"mcpServers": {"stub": loading(startup_timeout=2)}})["stub"], cwd="/")
    with pytest.raises(McpFailure, match=r"did not answer within 2 seconds.*still loading") as failed:
        await stub.connect()
    assert failed.value.kind == "timeout"


async def test_b109_a_server_that_exited_is_started_again_at_the_next_call(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with client("exit-after-call", f"log={log}") as stub:
        for number in (1, 2, 3):
            assert text_of(await stub.call_tool("echo", {"text": number})) == f"ECHO: {number}"
            connection = stub._connection
            assert connection is not None
            await until(lambda connection=connection: not connection.alive)  # type: ignore[misc]
    assert log.read_text().count("start") == 3


async def test_b109_a_call_during_which_the_server_died_fails_at_once_and_is_not_repeated(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with client(f"log={log}") as stub:
        started = time.monotonic()
        with pytest.raises(RespondToModel, match=r"exited with code 9.*out of memory.*not repeated"):
            await stub.call_tool("die", {})
        assert time.monotonic() - started < 20
        assert log.read_text().count("start") == 1
        assert text_of(await stub.call_tool("echo", {"text": "back"})) == "ECHO: back"


async def test_b109_a_server_that_dies_at_every_start_is_started_less_and_less(tmp_path: Path) -> None:
    log = tmp_path / "log"
    stub = client("crash-at-start", f"log={log}")
    with pytest.raises(McpFailure, match="exited with code 3; its stderr ends with: no license found") as failed:
        await stub.connect()
    assert failed.value.kind == "crash"
    started = time.monotonic()
    for _ in range(30):
        with pytest.raises(McpFailure):
            await stub.call_tool("echo", {})
        if time.monotonic() - started > 3:
            break
    starts = log.read_text().count("start")
    assert 2 <= starts <= 6
    with pytest.raises(McpFailure, match="times in a row"):  # noqa: PT012 - one of these is refused
        for _ in range(30):
            with contextlib.suppress(McpFailure) if stub._failures < 5 else contextlib.nullcontext():
                await stub.call_tool("echo", {})
    await stub.close()


async def test_b113_all_pages_are_read_once() -> None:
    async with client("pages") as stub:
        assert [tool.name for tool in await stub.list_tools()] == ["a", "b", "c", "d", "e"]


async def test_b113_a_list_without_end_is_cut(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = tmp_path / "log"
    async with client("endless", f"log={log}") as stub:
        assert [tool.name for tool in await stub.list_tools()] == ["again"]
    assert log.read_text().count("tools/list") == 2
    assert "does not end" in caplog.text
    async with client("endless-fresh") as stub:
        assert len(await stub.list_tools()) == MAX_TOOLS


async def test_b116_a_result_without_content_or_with_unknown_blocks_is_kept() -> None:
    results: list[dict[str, Any]] = [
        {"structuredContent": {"n": 1}},
        {"content": [{"type": "future", "x": 1}], "isError": False},
        {"content": [{"type": "text", "text": "no"}], "isError": True, "_meta": {"a": 1}},
    ]
    async with client() as stub:
        for result in results:
            assert await stub.call_tool("result", {"result": result}) == result


async def test_b118_a_server_gets_a_small_environment_and_its_own_values(tmp_path: Path) -> None:
    host = {
        **{name: os.environ[name] for name in ("PATH",)},
        "HOME": str(tmp_path), "LANG": "C.UTF-8", "TMPDIR": "/tmp", "https_proxy": "http://p:1",
        "OPENAI_API_KEY": "sk-secret", "AWS_SECRET_ACCESS_KEY": "x", "EXTRA": "yes", "OTHER": "no", "F": "() { :;}",
    }  # fmt: skip
    (tmp_path / "srv").mkdir()
    more = {"env": {"TOKEN": "t", "LANG": "de"}, "env_vars": ["EXTRA", "MISSING"], "cwd": "srv"}
    stub = MCPClient("stub", settings(**more), cwd=str(tmp_path), env=host)
    async with stub:
        seen = json.loads(text_of(await stub.call_tool("environ", {})))
    environment = {name: value for name, value in seen["env"].items() if name not in ("FERRULE_PROCESS", "LC_CTYPE")}
    assert environment == {
        "PATH": host["PATH"], "HOME": str(tmp_path), "LANG": "de", "TMPDIR": "/tmp", "https_proxy": "http://p:1",
        "TOKEN": "t", "EXTRA": "yes",
    }  # fmt: skip
    assert seen["cwd"] == str(tmp_path / "srv")


async def test_b118_a_tilde_in_the_cwd_is_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "srv").mkdir()
    async with client(cwd=Path("/")) as stub:
        assert json.loads(text_of(await stub.call_tool("environ", {})))["cwd"] == "/"
    async with MCPClient("stub", settings(cwd="~/srv"), cwd="/") as stub:
        assert json.loads(text_of(await stub.call_tool("environ", {})))["cwd"] == str(tmp_path / "srv")


async def test_b119_what_is_missing_is_named() -> None:
    with pytest.raises(McpFailure, match="working directory does not exist: /does/not/exist") as failed:
        await MCPClient("stub", settings(cwd="/does/not/exist")).connect()
    assert failed.value.kind == "launch"
    missing = McpServerSettings(command="npx-missing")
    with pytest.raises(McpFailure, match=r"program not found: npx-missing \(PATH searched: /a:/b\)"):
        await MCPClient("stub", missing, env={"PATH": "/a:/b"}).connect()


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """Where commands can write: two programs that say that they ran."""
    folder = tmp_path / "work/.venv/bin"
    folder.mkdir(parents=True)
    for name in ("server", "python3"):
        (folder / name).write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
        (folder / name).chmod(0o755)
    return folder


async def test_s09_a_server_by_name_never_comes_from_where_commands_can_write(planted: Path, tmp_path: Path) -> None:
    """What it starts in turn does not either; and what the user named by its path runs."""
    fine, places = tmp_path / "fine", Places((str(tmp_path / "work"),))
    fine.mkdir()
    stub = settings()
    (fine / "server").write_text(f"#!/bin/sh\nexec {stub.command} {' '.join(stub.args)}\n")
    (fine / "python3").symlink_to("/bin/true")
    env = {"PATH": f"{planted}:{fine}:/usr/bin:/bin"}
    by_name = McpServerSettings(command="server")
    with pytest.raises(McpFailure, match=f"{planted}/server is not used: commands can write there; if you want it"):
        await MCPClient("stub", by_name, env={"PATH": str(planted)}, places=places).connect()
    (fine / "server").chmod(0o755)
    async with MCPClient("stub", by_name, env=env, places=places) as found:
        assert found.another_program is not None and f"so {fine}/server is started" in found.another_program
        seen = json.loads(text_of(await found.call_tool("environ", {})))
    assert seen["env"]["PATH"] == f"{fine}:/usr/bin:/bin" and not (tmp_path / "ran").exists()
    by_path = McpServerSettings(command=f"{planted}/server")
    with pytest.raises(McpFailure):
        await MCPClient("stub", by_path, env=env, places=places).connect()
    assert (tmp_path / "ran").exists()


async def test_s09_a_path_that_is_configured_for_a_server_stays(planted: Path, tmp_path: Path) -> None:
    path = f"{planted}:/usr/bin:/bin"
    configured = settings(env={"PATH": path})
    async with MCPClient("stub", configured, places=Places((str(tmp_path / "work"),))) as stub:
        assert json.loads(text_of(await stub.call_tool("environ", {})))["env"]["PATH"] == path


async def test_a_cancelled_call_is_cancelled_on_the_server(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with client(f"log={log}") as stub:
        call = asyncio.ensure_future(stub.call_tool("slow", {}))
        await until(lambda: "slow" in log.read_text())
        assert call.cancel()
        await asyncio.wait([call])
        assert call.cancelled()
        assert text_of(await stub.call_tool("echo", {"text": "alive"})) == "ECHO: alive"
        await until(lambda: "cancelled" in log.read_text())


async def test_a_call_that_takes_too_long_is_cancelled_and_says_so(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with client(f"log={log}", tool_timeout=0.2) as stub:
        with pytest.raises(RespondToModel, match=r"stub/slow did not answer within 0.2 seconds \(tool_timeout\)"):
            await stub.call_tool("slow", {})
        await until(lambda: "cancelled" in log.read_text())


async def test_progress_gives_a_call_its_time_anew() -> None:
    steps: list[tuple[float, float | None, str]] = []
    async with client(tool_timeout=0.7) as stub:  # the call takes 0.9 s, with a sign of life every 0.1 s
        await stub.call_tool("progress", {}, on_progress=lambda *step: steps.append(step))
    assert steps == [(number, 9, f"step {number}") for number in range(9)]


async def test_f09_progress_after_the_end_of_its_call_is_ignored(caplog: pytest.LogCaptureFixture) -> None:
    steps: list[float] = []
    async with client() as stub:
        for _ in range(20):
            await stub.call_tool("late", {}, on_progress=lambda step, total, text: steps.append(step))
        assert text_of(await stub.call_tool("echo", {"text": "on"})) == "ECHO: on"
    assert steps == []
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_f09_a_call_that_tells_progress_for_ever_ends(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock, "MAX_CALL_SECONDS", 0.3)
    async with client(tool_timeout=0.2) as stub:
        with pytest.raises(RespondToModel, match="did not answer"):
            await stub.call_tool("late", {"ever": True})
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_an_elicitation_is_asked_and_its_time_does_not_count() -> None:
    asked: list[ElicitationRequest] = []

    async def ask(request: ElicitationRequest) -> Answer:
        asked.append(request)
        await asyncio.sleep(0.8)
        return Elicited("accept", {"ok": True})

    async with client(ask=ask, tool_timeout=0.6) as stub:
        assert json.loads(text_of(await stub.call_tool("ask", {}))) == {"action": "accept", "content": {"ok": True}}
    assert (asked[0].server, asked[0].message) == ("stub", "Really?")
    assert asked[0].schema["properties"] == {"ok": {"type": "boolean"}}


async def test_an_elicitation_that_nobody_answers_is_cancelled() -> None:
    async def ask(request: ElicitationRequest) -> Answer:
        return NoAnswer("nobody is there")

    async with client(ask=ask) as stub:
        assert json.loads(text_of(await stub.call_tool("ask", {}))) == {"action": "cancel"}


async def test_a_server_that_knows_only_the_newer_protocol() -> None:
    changed = asyncio.Event()

    async def ask(request: ElicitationRequest) -> Answer:
        return Elicited("accept", {"ok": request.message == "Really?"})

    async with client("modern", ask=ask, on_tools_changed=changed.set) as stub:
        assert "echo" in [tool.name for tool in await stub.list_tools()]
        assert text_of(await stub.call_tool("echo", {"text": "new"})) == "ECHO: new"
        said = json.loads(text_of(await stub.call_tool("ask", {})))
        assert said == {"state": "state", "action": "accept", "content": {"ok": True}}
        await stub.call_tool("grow", {})
        await asyncio.wait_for(changed.wait(), 10)
        assert "grown" in [tool.name for tool in await stub.list_tools()]


async def test_a_result_that_is_too_large_is_an_error_and_the_server_lives() -> None:
    async with client() as stub:
        with pytest.raises(RespondToModel, match="larger than 32 MiB"):
            await stub.call_tool("huge", {})
        assert text_of(await stub.call_tool("echo", {"text": "on"})) == "ECHO: on"


async def test_the_whole_tree_is_ended(tmp_path: Path) -> None:
    async with client(f"child={tmp_path / 'pid'}"):
        pid = int((tmp_path / "pid").read_text())
        assert not is_gone(pid)
    assert is_gone(pid)


async def test_a_server_that_ignores_the_end_of_its_input_and_sigterm_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ferrule.mcp.stdio.EXIT_GRACE", 0.2)
    log = tmp_path / "log"
    async with client("stubborn", f"log={log}") as stub:
        await stub.call_tool("echo", {})
    pid = int(log.read_text().split()[1])
    assert is_gone(pid)


async def test_many_calls_at_once_share_one_connection(tmp_path: Path) -> None:
    log = tmp_path / "log"
    stub = client(f"log={log}")
    results = await asyncio.gather(*(stub.call_tool("echo", {"text": str(i)}) for i in range(100)))
    assert [text_of(result) for result in results] == [f"ECHO: {i}" for i in range(100)]
    await stub.close()
    assert log.read_text().count("start") == 1


async def test_a_closed_client_stays_closed() -> None:
    stub = client()
    await stub.connect()
    await stub.close()
    await stub.close()
    with pytest.raises(McpFailure, match="was closed"):
        await stub.call_tool("echo", {})


async def test_closing_while_it_connects_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ferrule.mcp.stdio.EXIT_GRACE", 0.2)
    log = tmp_path / "log"
    stub = client("silent", f"log={log}")
    connecting = asyncio.ensure_future(stub.connect())
    await until(log.exists)
    await until(lambda: log.read_text() != "")
    await stub.close()
    with pytest.raises((McpFailure, asyncio.CancelledError)):
        await connecting
    assert is_gone(int(log.read_text().split()[1]))


async def test_many_servers_start_at_once_but_not_all(monkeypatch: pytest.MonkeyPatch) -> None:
    now, most = 0, 0
    opened = Connection.open

    async def counted(self: Connection, timeout: float) -> None:
        nonlocal now, most
        now, most = now + 1, max(most, now + 1)
        await opened(self, timeout)
        now -= 1

    monkeypatch.setattr(Connection, "open", counted)
    monkeypatch.setattr("ferrule.mcp.client.MAX_STARTING", 2)
    clients = [client() for _ in range(5)]
    lists = await asyncio.gather(*(one.list_tools() for one in clients))
    await asyncio.gather(*(one.close() for one in clients))
    assert all(lists) and most == 2


def test_plain_code_uses_it_with_a_timeout() -> None:
    with client() as stub:
        assert text_of(call_async_from_sync(stub.call_tool, "echo", {"text": "sync"})) == "ECHO: sync"
        with pytest.raises(RespondToModel, match=r"within 0.1 seconds"):
            call_async_from_sync(stub.call_tool, "slow", {}, timeout=0.1)


async def test_a_client_of_another_loop_is_reached_there() -> None:
    stub = client()
    await asyncio.to_thread(call_async_from_sync, stub.connect)
    assert text_of(await stub.call_tool("echo", {"text": "across"})) == "ECHO: across"
    await stub.close()


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({}, "needs either a command"),
        ({"command": "a", "url": "http://b"}, "needs either a command"),
        ({"url": "ftp://x"}, "must begin with http"),
        ({"command": "a", "tool_timeout": 0}, "above zero"),
        ({"command": "a", "arg": []}, "unknown key mcp_servers.s.arg; did you mean args"),
        ({"command": "a", "args": "x"}, "mcp_servers.s.args must be a list of strings"),
        ({"command": "a", "approval": "yes"}, "must be one of auto, prompt, allow"),
        ({"command": "a", "type": "sse"}, "must be stdio or http"),
        ({"command": "a", "timeout": "5s"}, "s.timeout must be a number of milliseconds"),
        ({"url": "http://a", "auth": {"token": "t"}}, 's.auth must be "oauth" or a bearer token'),
        ({"url": "http://a", "auth": "t", "headers": 1}, "s.headers must be"),
    ],
)
def test_wrong_settings_say_what_is_right(given: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        mcp_servers_of({"mcpServers": {"s": given}})


def test_what_other_clients_write_is_read() -> None:
    local = {"command": "a", "type": "stdio", "timeout": 30_000, "description": "d", "icon": "i", "keep_alive": True}
    remote = {"url": "http://b", "transport": "http", "auth": "secret", "headers": {"X": "1"}}
    login = {"url": "http://c", "auth": "oauth", "timeout": 30_000, "tool_timeout": 5}
    servers = mcp_servers_of({"mcpServers": {"local": local, "remote": remote, "login": login}})
    assert servers["local"] == McpServerSettings(command="a", tool_timeout=30)
    assert servers["remote"].headers == {"Authorization": "Bearer secret", "X": "1"}
    assert servers["login"] == McpServerSettings(url="http://c", tool_timeout=5)
