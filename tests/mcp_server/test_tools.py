"""The tools of a profile as an MCP client sees and calls them, in both eras of the protocol."""

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

from ferrule.doors.mcp_server import calls
from ferrule.doors.mcp_server.clients import Client
from ferrule.doors.mcp_server.run import tools_opener
from ferrule.protocol.permissions import AskForApproval
from mcp import types
from tests.mcp_server.served import (
    ERAS,
    ESCALATED,
    PNG,
    User,
    connected,
    roots,
    served,
    serving,
    settings_in,
    text_of,
)
from tests.processes import running, until

pytestmark = pytest.mark.parametrize("era", ERAS)


async def test_every_tool_of_the_profile_is_listed_with_its_annotations(tmp_path: Path, era: str) -> None:
    async with served(settings_in(tmp_path, profile="all")) as server, connected(server, era) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert {"exec_command", "write_stdin", "apply_patch", "read_file", "grep_files", "view_image"} <= set(tools)
    for tool in tools.values():
        hints = tool.annotations
        assert hints is not None and tool.input_schema["type"] == "object"
        assert None not in (hints.read_only_hint, hints.destructive_hint, hints.idempotent_hint, hints.open_world_hint)
    reads, runs = tools["read_file"], tools["exec_command"]
    assert reads.annotations is not None and reads.annotations.read_only_hint
    assert runs.annotations is not None and runs.annotations.destructive_hint
    assert runs.output_schema is not None and "exit_code" in runs.output_schema["properties"]
    assert tools["view_image"].output_schema is None  # clients show structured content instead of the picture


async def test_a_command_runs_in_the_sandbox_and_its_observation_is_structured(tmp_path: Path, era: str) -> None:
    settings = settings_in(tmp_path)
    script = f"pwd; touch here; touch {tmp_path}/outside"
    async with served(settings) as server, connected(server, era) as client:
        result = await client.call_tool("exec_command", {"cmd": script})
    assert result.is_error and "Process exited with code 1" in text_of(result)
    assert result.structured_content["exit_code"] == 1
    assert settings.cwd in result.structured_content["output"]
    assert os.listdir(settings.cwd) == ["here"] and not (tmp_path / "outside").exists()


async def test_a_patch_is_a_call_with_one_text(tmp_path: Path, era: str) -> None:
    settings = settings_in(tmp_path)
    patch = "*** Begin Patch\n*** Add File: new.txt\n+hello\n*** End Patch\n"
    async with served(settings) as server, connected(server, era) as client:
        result = await client.call_tool("apply_patch", {"input": patch})
        given = await client.call_tool("exec_command", {"cmd": f"apply_patch <<'E'\n{patch.replace('new', 'b')}E"})
    assert not result.is_error and "new.txt" in text_of(result)
    assert Path(settings.cwd, "new.txt").read_text() == "hello\n"
    assert "b.txt" in text_of(given) and "b.txt" in given.structured_content["text"]


async def test_only_what_is_listed_can_be_called(tmp_path: Path, era: str) -> None:
    settings = settings_in(tmp_path)
    async with served(settings, tools=["read_file", "list_d*"]) as server, connected(server, era) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == ["read_file", "list_dir"]
        for name in ("exec_command", "apply_patch", "nonsense"):
            with pytest.raises(MCPError, match="the tools are: read_file, list_dir"):
                await client.call_tool(name, {"cmd": "touch x", "input": "x"})
    assert os.listdir(settings.cwd) == []


async def test_what_is_wrong_with_a_call_is_told_in_its_result(tmp_path: Path, era: str) -> None:
    async with served(settings_in(tmp_path)) as server, connected(server, era) as client:
        result = await client.call_tool("exec_command", {"command_line": 3})
        assert result.is_error and "cmd" in text_of(result)


async def test_a_long_command_reports_progress(tmp_path: Path, era: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert calls.PROGRESS_S <= 2
    monkeypatch.setattr(calls, "PROGRESS_S", 0.05)
    told: list[tuple[float, str | None]] = []

    async def heard(progress: float, total: float | None, message: str | None) -> None:
        told.append((progress, message))

    async with served(settings_in(tmp_path)) as server, connected(server, era) as client:
        await client.call_tool("exec_command", {"cmd": "echo first; sleep 0.5"}, progress_callback=heard)
    assert len(told) >= 4 and sorted(told, key=lambda one: one[0]) == told
    assert str(told[-1][1]).endswith(": first")


async def test_a_cancelled_call_ends_its_process_and_nothing_else(tmp_path: Path, era: str) -> None:
    mark = f": cancelled{os.getpid()}{era}"
    async with served(settings_in(tmp_path)) as server, connected(server, era) as client:
        kept = (
            await client.call_tool("exec_command", {"cmd": "cat", "tty": True, "yield_time_ms": 250})
        ).structured_content
        calling = asyncio.create_task(client.call_tool("exec_command", {"cmd": f"{mark}; sleep 1000; :"}))
        await until(lambda: bool(running(mark)))
        calling.cancel()
        await until(lambda: not running(mark))
        with pytest.raises(asyncio.CancelledError):
            await calling
        typed = {"session_id": kept["session_id"], "chars": "still\n", "yield_time_ms": 300}
        assert "still" in text_of(await client.call_tool("write_stdin", typed))


async def test_calls_that_are_cancelled_at_any_moment_leave_nothing(tmp_path: Path, era: str) -> None:
    mark, user = f": any{os.getpid()}{era}", User()
    known = Client(settings_in(tmp_path), tools_opener(None))
    async with serving(known) as server, connected(server, era, user) as client:
        await client.list_tools()

        async def cancelled(turns: int) -> None:
            more = ESCALATED if turns % 2 else {}
            calling = asyncio.create_task(client.call_tool("exec_command", {"cmd": f"{mark}; sleep 1000; :"} | more))
            for _ in range(turns):
                await asyncio.sleep(0)
            calling.cancel()
            await asyncio.wait([calling])

        await asyncio.gather(*(cancelled(turns) for turns in (*range(12), *range(12, 60, 6))))
        # A question that was handed out before the client cancelled waits for its hour: its request is answered.
        await until(lambda: not running(mark) and len(known._calls) == len(known._parked))


async def test_a_session_of_the_client_keeps_its_shells_and_ends_them(tmp_path: Path, era: str) -> None:
    mark = f": kept{os.getpid()}{era}"
    async with served(settings_in(tmp_path)) as server:
        async with connected(server, era) as client:
            first = await client.call_tool("exec_command", {"cmd": f"{mark}; sleep 1000; :", "yield_time_ms": 250})
            assert first.structured_content["session_id"] is not None and running(mark)
            waited = {"session_id": first.structured_content["session_id"], "yield_time_ms": 5_000}
            second = asyncio.create_task(client.call_tool("write_stdin", waited))
            await asyncio.sleep(0)
            second.cancel()
        assert running(mark)
    assert not running(mark)


async def test_calls_run_beside_each_other(tmp_path: Path, era: str) -> None:
    folder = settings_in(tmp_path)
    waits = "until [ -e {0} ]; do sleep 0.05; done; touch {1}"
    async with served(folder) as server, connected(server, era) as client:
        await client.list_tools()
        results = await asyncio.gather(
            client.call_tool("exec_command", {"cmd": waits.format("a", "b")}),
            client.call_tool("exec_command", {"cmd": f"touch a; {waits.format('b', 'c')}"}),
        )
    assert not any(result.is_error for result in results) and "c" in os.listdir(folder.cwd)


async def test_the_message_of_an_elicitation_holds_the_command_and_yes_runs_it(tmp_path: Path, era: str) -> None:
    user, outside = User(), tmp_path / "outside"
    async with served(settings_in(tmp_path)) as server, connected(server, era, user) as client:
        result = await client.call_tool("exec_command", {"cmd": f"touch {outside}", **ESCALATED})
    assert not result.is_error and outside.exists()
    assert f"touch {outside}" in user.asked[0].message and "it must" in user.asked[0].message


@pytest.mark.parametrize(("action", "content"), [("decline", None), ("cancel", None), ("accept", {"decision": "no"})])
async def test_everything_else_means_no(tmp_path: Path, era: str, action: str, content: Any) -> None:
    user, outside = User(action, content), tmp_path / "outside"
    async with served(settings_in(tmp_path)) as server, connected(server, era, user) as client:
        result = await client.call_tool("exec_command", {"cmd": f"touch {outside}", **ESCALATED})
    assert len(user.asked) == 1 and result.is_error and "rejected by user" in text_of(result)
    assert not outside.exists()


async def test_without_elicitation_a_call_that_needs_approval_says_so(tmp_path: Path, era: str) -> None:
    outside = tmp_path / "outside"
    patch = f"*** Begin Patch\n*** Add File: {outside}\n+x\n*** End Patch\n"
    async with served(settings_in(tmp_path)) as server, connected(server, era) as client:
        for name, arguments in (
            ("exec_command", {"cmd": f"touch {outside}", **ESCALATED}),
            ("apply_patch", {"input": patch}),
        ):
            result = await client.call_tool(name, arguments)
            assert result.is_error and "approval" in text_of(result)
    assert not outside.exists()


async def test_a_yes_for_the_session_is_asked_for_once(tmp_path: Path, era: str) -> None:
    user = User(content={"decision": "for this session"})
    async with served(settings_in(tmp_path)) as server, connected(server, era, user) as client:
        for _ in range(2):
            result = await client.call_tool("exec_command", {"cmd": f"echo >> {tmp_path}/log", **ESCALATED})
            assert not result.is_error
    assert len(user.asked) == 1 and (tmp_path / "log").read_text() == "\n\n"


async def test_questions_of_calls_that_run_at_once_reach_their_user(tmp_path: Path, era: str) -> None:
    user = User()
    async with served(settings_in(tmp_path)) as server, connected(server, era, user) as client:
        await client.list_tools()
        await asyncio.gather(
            *(client.call_tool("exec_command", {"cmd": f"touch {tmp_path}/n{n}", **ESCALATED}) for n in range(3))
        )
    assert len(user.asked) == 3 and {"n0", "n1", "n2"} <= set(os.listdir(tmp_path))


async def test_a_tool_asks_the_user(tmp_path: Path, era: str) -> None:
    user = User(content={"colour": "blue"})
    option = {"label": "red", "description": "as a rose"}
    question = {"id": "colour", "header": "Colour", "question": "Which?", "options": [option]}
    async with served(settings_in(tmp_path, profile="all")) as server, connected(server, era, user) as client:
        result = await client.call_tool("request_user_input", {"questions": [question]})
    assert '{"answers":{"colour":{"answers":["blue"]}}}' in text_of(result)
    assert user.asked[0].message == "Which?" and "red: as a rose" in str(user.asked[0].requested_schema)


async def test_an_output_that_was_cut_and_a_picture_can_be_read_later(tmp_path: Path, era: str) -> None:
    settings = settings_in(tmp_path, profile="all")
    Path(settings.cwd, "p.png").write_bytes(PNG)
    Path(settings.cwd, "long").write_text("".join(f"line {n}\n" for n in range(8_000)))
    async with served(settings) as server, connected(server, era) as client:
        for name, arguments in (
            ("exec_command", {"cmd": "seq 1 20000"}),
            ("read_file", {"file_path": f"{settings.cwd}/long", "limit": 8000}),
        ):
            result = await client.call_tool(name, arguments)
            link = next(block for block in result.content if isinstance(block, types.ResourceLink))
            whole = (await client.read_resource(link.uri)).contents[0]
            assert isinstance(whole, types.TextResourceContents) and len(whole.text) > len(text_of(result))
        shown = await client.call_tool("view_image", {"path": "p.png"})
        assert isinstance(shown.content[0], types.ImageContent) and shown.content[0].mime_type == "image/png"
        listed = (await client.list_resources()).resources
        assert [entry.mime_type for entry in listed] == ["text/plain", "text/plain", "image/png"]
        with pytest.raises(MCPError, match="there is no resource"):
            await client.read_resource("ferrule://results/other.txt")


async def test_warnings_reach_the_clients_log(tmp_path: Path, era: str) -> None:
    told: list[types.LoggingMessageNotificationParams] = []

    async def log(params: types.LoggingMessageNotificationParams) -> None:
        told.append(params)

    wants = {"io.modelcontextprotocol/logLevel": "warning"} if era == "auto" else None
    settings = settings_in(tmp_path)
    Path(settings.home).mkdir()
    async with (
        served(settings) as server,
        connected(server, era, logging_callback=log, list_roots_callback=roots("/usr")) as client,
    ):
        await client.call_tool("exec_command", {"cmd": "true"}, meta=wants)  # type: ignore[arg-type]
    assert any(note.level == "warning" and "/usr stays outside" in note.data for note in told)


async def test_never_asks_nothing(tmp_path: Path, era: str) -> None:
    user = User()
    settings = settings_in(tmp_path, approval_policy=AskForApproval.NEVER)
    async with served(settings) as server, connected(server, era, user) as client:
        result = await client.call_tool("exec_command", {"cmd": "true", **ESCALATED})
    assert user.asked == [] and result.is_error and "approval" in text_of(result)
