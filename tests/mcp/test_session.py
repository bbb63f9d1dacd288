"""MCP servers through a whole session, with a scripted model over both wires."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from ferrule.mcp import source
from ferrule.mcp.errors import McpFailure
from ferrule.mcp.tools import MCPToolDefinition
from ferrule.protocol.events import (
    ExecApproval,
    McpServerStatus,
    McpToolCallBegin,
    McpToolCallEnd,
    McpToolCallProgress,
    WarningEvent,
)
from ferrule.protocol.permissions import ReviewDecision
from ferrule.testing import ScriptedModel, function_call, message
from ferrule.tools.questions import Answer, Elicited
from tests.mcp.sessions import WIRES, agent, statuses
from tests.mcp.stub import server, tool
from tests.processes import alive, running, until


@pytest.mark.parametrize("wire", WIRES)
async def test_a_tool_is_listed_in_the_first_request_and_called(wire: str, tmp_path: Path) -> None:
    script = [[function_call("mcp__stub__echo", {"text": "hi"})], [message("done")]]
    seen: list[Any] = []
    with ScriptedModel(script) as model:
        result = await agent(model, wire, tmp_path, {"stub": server()}, on_event=seen.append).run("go")
        assert result.text == "done"
        assert "mcp__stub__echo" in model.requests[0].tool_names
        assert model.requests[1].outputs[0].text == "ECHO: hi"
    begin = next(event for event in seen if isinstance(event, McpToolCallBegin))
    end = next(event for event in seen if isinstance(event, McpToolCallEnd))
    assert (begin.server, begin.tool, begin.arguments) == ("stub", "echo", '{"text":"hi"}')
    assert end.success
    statuses = [event.status for event in seen if isinstance(event, McpServerStatus)]
    assert [status for status in statuses if status != "waiting"] == ["starting", "ready", "stopped"]


@pytest.mark.parametrize("mode", ["read-only", "workspace-write", "danger-full-access"])
async def test_s09_a_server_by_name_in_every_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str) -> None:
    planted = tmp_path / ".venv/bin"
    planted.mkdir(parents=True)
    (planted / "server").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    (planted / "server").chmod(0o755)
    monkeypatch.setenv("PATH", f"{planted}:/usr/bin:/bin")
    events: list[Any] = []
    with ScriptedModel([[message("done")]]) as model:
        servers = {"stub": {"command": "server"}}
        await agent(model, "responses", tmp_path, servers, on_event=events.append, sandbox=mode).run("go")
    (failed,) = [status for status in statuses(events) if status.status == "failed"]
    assert "commands can write there" in failed.message
    assert not (tmp_path / "ran").exists()


async def test_f08_a_list_that_changes_at_each_reading_is_read_when_a_request_is_due(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    monkeypatch.setattr(source, "LIST_PAUSE", 0.01)
    with ScriptedModel([[message(str(number))] for number in range(3)]) as model:
        made = agent(model, "responses", tmp_path, {"stub": server("storm", f"log={log}")})
        async with await made.open() as session:
            for number in range(3):
                await session.run(str(number))
                await asyncio.sleep(0.3)  # in which a loop would read it a hundred times
        assert all("mcp__stub__echo" in request.tool_names for request in model.requests)
    assert 1 <= log.read_text().count("tools/list") <= 3


async def test_f08_requests_in_quick_succession_share_a_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    monkeypatch.setattr(source, "LIST_PAUSE", 60.0)
    monkeypatch.setattr(source, "LIST_PATIENCE", 0.01)
    with ScriptedModel([[message(str(number))] for number in range(3)]) as model:
        made = agent(model, "responses", tmp_path, {"stub": server("storm", f"log={log}")})
        async with await made.open() as session:
            await until(lambda: session.toolset.current()[1].handler("mcp__stub__echo") is not None)
            for number in range(3):
                await session.run(str(number))
        assert all("mcp__stub__echo" in request.tool_names for request in model.requests)
    assert log.read_text().count("tools/list") == 1


async def test_b110_a_slow_server_is_waited_for_and_a_dead_one_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "LIST_PATIENCE", 0.01)
    gate = tmp_path / "gate"
    servers = {
        "fast": server(),
        "slow": server(f"gate={gate}"),
        "silent": server("silent", startup_timeout=0.5),
        "dead": server("crash-at-start"),
        "missing": {"command": "npx-missing"},
    }
    events: list[Any] = []

    def opens(event: Any) -> None:
        events.append(event)
        if isinstance(event, McpServerStatus) and (event.server, event.status) == ("slow", "waiting"):
            asyncio.get_running_loop().call_later(0.3, gate.touch)

    with ScriptedModel([[message("one")]]) as model:
        await agent(model, "responses", tmp_path, servers, on_event=opens).run("first")
        names = set(model.requests[0].tool_names)
    assert {"mcp__fast__echo", "mcp__slow__echo"} <= names
    waited = {event.server: event.message for event in statuses(events) if event.status == "waiting"}
    assert waited["slow"].endswith(f"MCP server slow ({sys.executable}), at most 60 s (startup_timeout)")
    failed = {event.server: event.message for event in statuses(events) if event.status == "failed"}
    assert "did not answer within 0.5 seconds" in failed["silent"]
    assert "exited with code 3" in failed["dead"]
    assert "program not found: npx-missing" in failed["missing"]
    warnings = [event.message for event in events if isinstance(event, WarningEvent)]
    for name, step in (("silent", "startup_timeout"), ("dead", "run its command"), ("missing", "install it")):
        (warning,) = [text for text in warnings if text.startswith(f"MCP server {name} ")]
        assert step in warning.partition("goes on without its tools: ")[2]


async def test_servers_start_side_by_side(tmp_path: Path) -> None:
    (meeting := tmp_path / "meeting").mkdir()
    servers = {f"s{i}": server(f"meet={meeting}", "of=8", enabled_tools=["echo"]) for i in range(8)}
    with ScriptedModel([[message("done")]]) as model:
        async with await agent(model, "responses", tmp_path, servers).open() as session:
            await session.toolset.settled()
            await session.run("go")
        assert sum(name.endswith("__echo") for name in model.requests[0].tool_names) == 8


async def test_a_required_server_that_fails_fails_the_session(tmp_path: Path) -> None:
    events: list[Any] = []
    servers = {"needed": server("crash-at-start", required=True), "other": server()}
    with ScriptedModel([]) as model:
        with pytest.raises(
            McpFailure, match=r"MCP server needed exited with code 3.*no license found \(it is required\): "
        ):
            await agent(model, "chat", tmp_path, servers, on_event=events.append).run("go")
        assert not model.requests
    assert not [event for event in events if isinstance(event, WarningEvent) and "needed" in event.message]


async def test_a_changed_list_is_read_before_the_next_request(tmp_path: Path) -> None:
    script = [[function_call("mcp__stub__grow", {})], [message("done")]]
    with ScriptedModel(script) as model:
        await agent(model, "responses", tmp_path, {"stub": server()}).run("go")
        assert "mcp__stub__grown" not in model.requests[0].tool_names
        assert "mcp__stub__grown" in model.requests[1].tool_names


@pytest.mark.parametrize("wire", WIRES)
async def test_the_other_spelling_reaches_the_same_tool(wire: str, tmp_path: Path) -> None:
    script = [[function_call("stub/echo", {"text": "slash"})], [message("done")]]
    with ScriptedModel(script) as model:
        await agent(model, wire, tmp_path, {"stub": server()}).run("go")
        assert model.requests[1].outputs[0].text == "ECHO: slash"


async def test_tools_that_are_not_wanted_are_not_there(tmp_path: Path) -> None:
    servers = {
        "some": server(enabled_tools=["echo", "slow"], disabled_tools=["slow"]),
        "off": server(enabled=False),
    }
    with ScriptedModel([[message("done")]]) as model:
        await agent(model, "chat", tmp_path, servers).run("go")
        names = [name for name in model.requests[0].tool_names if name.startswith("mcp__")]
        assert names == ["mcp__some__echo"]


@pytest.mark.parametrize(
    ("approval", "tool", "policy", "asked", "answer"),
    [
        ("auto", "echo", "never", 0, "ECHO: x"),
        ("auto", "write", "never", 0, "MCP tool call requires approval, but the approval policy is never; the setting"),
        ("auto", "write", "on-request", 1, "write:"),
        ("prompt", "echo", "on-request", 1, "ECHO: x"),
        ("allow", "write", "never", 0, "write:"),
    ],
)  # fmt: skip
async def test_what_needs_approval(
    approval: str, tool: str, policy: str, asked: int, answer: str, tmp_path: Path
) -> None:
    questions: list[ExecApproval] = []

    def approve(question: ExecApproval) -> ReviewDecision:
        questions.append(question)
        return ReviewDecision.APPROVED

    script = [[function_call(f"mcp__stub__{tool}", {"text": "x"})], [message("done")]]
    with ScriptedModel(script) as model:
        servers = {"stub": server(approval=approval)}
        await agent(model, "chat", tmp_path, servers, approval_policy=policy, on_approval=approve).run("go")
        assert model.requests[1].outputs[0].text.startswith(answer)
    assert [question.text for question in questions] == [f'stub/{tool} {{"text":"x"}}'] * asked


async def test_progress_is_an_event(tmp_path: Path) -> None:
    events: list[Any] = []
    script = [[function_call("mcp__stub__progress", {})], [message("done")]]
    with ScriptedModel(script) as model:
        await agent(model, "chat", tmp_path, {"stub": server()}, on_event=events.append).run("go")
    (end,) = [event for event in events if isinstance(event, McpToolCallEnd)]
    assert 900 <= end.duration_ms < 30_000
    steps = [event for event in events if isinstance(event, McpToolCallProgress)]
    assert [(step.progress, step.total, step.message) for step in steps[:2]] == [(0, 9, "step 0"), (1, 9, "step 1")]


async def test_an_elicitation_goes_to_the_front_end(tmp_path: Path) -> None:
    script = [[function_call("mcp__stub__ask", {})], [message("done")]]
    with ScriptedModel(script) as model:

        def answer(question: Any) -> Answer:
            assert (question.server, question.message) == ("stub", "Really?")
            return Elicited("accept", {"ok": False})

        await agent(model, "chat", tmp_path, {"stub": server()}, on_question=answer).run("go")
        assert json.loads(model.requests[1].outputs[0].text) == {"action": "accept", "content": {"ok": False}}


@pytest.mark.parametrize("wire", WIRES)
async def test_m056_an_elicitation_without_a_user_is_cancelled_at_once(wire: str, tmp_path: Path) -> None:
    script = [[function_call("mcp__stub__ask", {})], [message("done")]]
    with ScriptedModel(script) as model:
        async with asyncio.timeout(20):
            result = await agent(model, wire, tmp_path, {"stub": server()}).run("go")
        assert result.text == "done"
        assert json.loads(model.requests[1].outputs[0].text) == {"action": "cancel"}


async def test_an_interrupted_turn_cancels_its_call(tmp_path: Path) -> None:
    log = tmp_path / "log"
    events: list[Any] = []
    with ScriptedModel([[function_call("mcp__stub__slow", {})]]) as model:
        made = agent(model, "chat", tmp_path, {"stub": server(f"log={log}")}, on_event=events.append)
        async with await made.open() as session:
            turn = asyncio.ensure_future(session.run("go"))
            await until(lambda: any(isinstance(event, McpToolCallBegin) for event in events))
            session.interrupt()
            assert (await turn).aborted
            await until(lambda: "cancelled" in log.read_text())
    assert "end" in log.read_text()


async def test_calls_run_side_by_side_where_the_server_says_so(tmp_path: Path) -> None:
    for parallel, seconds in ((True, 30), (False, 0.3)):
        calls = [function_call("mcp__stub__meet", {"seconds": seconds}) for _ in range(4)]
        with ScriptedModel([calls, [message("done")]]) as model:
            servers = {"stub": server(supports_parallel_tool_calls=parallel)}
            async with await agent(model, "chat", tmp_path, servers).open() as session:
                await session.toolset.settled()
                await session.run("go")
            said = {output.text for output in model.requests[1].outputs}
        assert ("alone" in said) is not parallel, said


async def test_without_servers_nothing_of_it_is_there(tmp_path: Path) -> None:
    with ScriptedModel([[message("done")]]) as model:
        program = (
            "import sys; from ferrule import Agent; "
            f"Agent('m', base_url={model.base_url!r}, cwd={str(tmp_path)!r}).run_sync('hi'); "
            "print([n for n in sys.modules if n.split('.')[0] in ('mcp', 'mcp_types') or n.startswith('ferrule.mcp.')])"
        )
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE)
        out, _ = await process.communicate()
        assert out.decode().strip() == "[]"
        assert not [name for name in model.requests[0].tool_names if "mcp" in name]


async def test_the_tools_of_servers_stand_in_the_tools_map(tmp_path: Path) -> None:
    with ScriptedModel([]) as model:
        async with agent(model, "chat", tmp_path, {"stub": server(str(tmp_path))}) as made:
            tools = await asyncio.to_thread(lambda: made.tools_map)
            assert running(str(tmp_path))
    assert isinstance(tools["mcp__stub__echo"], MCPToolDefinition)
    assert tools["stub/echo"] is tools["mcp__stub__echo"]
    assert not running(str(tmp_path))


async def test_a_command_session_that_a_plain_program_forgets_ends_with_it(tmp_path: Path) -> None:
    program = (
        f"from ferrule import Agent; tool = Agent('m', tools=['exec_command'], sandbox='danger-full-access', "
        f"cwd={str(tmp_path)!r}).tools_map['exec_command']; "
        "command = \"trap '' HUP TERM; echo $$ > pid; while :; do sleep 1; done\"; "
        "tool.call(tool.action_from_arguments({'cmd': command, 'yield_time_ms': 500}))"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program)
    assert await process.wait() == 0
    assert not alive(int((tmp_path / "pid").read_text()))


async def test_m056_a_question_that_nobody_can_answer_is_cancelled_and_the_call_goes_on(tmp_path: Path) -> None:
    with ScriptedModel([[function_call("mcp__stub__ask", {})], [message("done")]]) as model:
        await agent(model, "chat", tmp_path, {"stub": server(tool_timeout=5)}).run("go")
        assert '{"action": "cancel"}' in model.requests[1].outputs[0].text


async def test_servers_that_a_plain_program_forgets_end_with_it(tmp_path: Path) -> None:
    """These ignore the end of their input, and so outlived the program."""
    mine, bare = (server("stubborn", f"child={tmp_path}/{name}") for name in ("mine", "bare"))
    program = (
        "from ferrule import Agent; from ferrule.mcp import create_mcp_tools; "
        f"Agent('m', tools=[], mcp_config={{'mcpServers': {{'stub': {mine!r}}}}}).tools_map; "
        f"create_mcp_tools({{'mcpServers': {{'stub': {bare!r}}}}})"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program)
    assert await process.wait() == 0
    assert not running(f"child={tmp_path}")
    assert not any(alive(int((tmp_path / name).read_text())) for name in ("mine", "bare"))


@pytest.mark.parametrize("wire", WIRES)
async def test_many_tools_wait_behind_tool_search_and_can_be_called(wire: str, tmp_path: Path) -> None:
    tools = [tool(f"t{number}", annotations={"readOnlyHint": True}) for number in range(60)]
    script = [[function_call("mcp__stub__t7", {})], [message("done")]]
    with ScriptedModel(script) as model:
        await agent(model, wire, tmp_path, {"stub": server("tools=" + json.dumps(tools))}).run("go")
        assert "tool_search" in model.requests[0].tool_names
        assert not [name for name in model.requests[0].tool_names if name.startswith("mcp__")]
        assert model.requests[1].outputs[0].text == "t7: {}"
