"""Tools by themselves: one call of a toolset, and definitions in plain code."""

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from ferrule import (
    Action,
    Agent,
    Observation,
    RespondToModel,
    ReviewDecision,
    ToolContext,
    ToolDefinition,
    ToolExecutor,
    Toolset,
    UsageError,
    call_async_from_sync,
    tool,
)
from ferrule.mcp import create_mcp_tools
from ferrule.process.run import run
from ferrule.protocol.events import Event, ExecApproval
from ferrule.protocol.permissions import AskForApproval, DangerFullAccess
from ferrule.sync import background_loop
from ferrule.tools.context import Access
from ferrule.tools.effects import CommandEffect
from ferrule.tools.events import ToolEvent
from tests.mcp.stub import server
from tests.processes import DEADLINE, alive, until

PATCH = "*** Begin Patch\n*** Add File: new.txt\n+hello\n*** End Patch"


class Run(Action):
    """Runs a command line."""

    argv: tuple[str, ...]


class Ran(Observation):
    text: str
    exit_code: int


class Runner(ToolExecutor[Run, Ran]):
    async def __call__(self, action: Run, ctx: ToolContext) -> Ran:
        async def attempt(access: Access) -> Ran:
            done = await run(
                access.launcher, action.argv, env={"PATH": "/usr/bin:/bin"}, cwd=ctx.cwd, timeout_ms=10_000
            )
            return Ran(text=done.output.text(), exit_code=done.exit_code)

        return await ctx.run(CommandEffect(argv=action.argv, cwd=ctx.cwd), attempt)


def runner() -> ToolDefinition[Run, Ran]:
    return ToolDefinition[Run, Ran](executor=Runner())


@tool(read_only=True)
def shout(text: str) -> str:
    """Say it louder."""
    return text.upper()


def open_toolset(tmp_path: Path, *tools: Any, sandbox: str = "danger-full-access", **more: Any) -> Toolset:
    return Toolset.for_model("gpt-4.1", cwd=tmp_path, sandbox=sandbox, tools=[*tools], **more)


# --- a toolset


async def test_f16_a_toolset_runs_one_call(tmp_path: Path) -> None:
    async with open_toolset(tmp_path, shout, "apply_patch", "shell_command") as tools:
        output = await tools.call("shout", {"text": "hi"})
        assert (output.text, output.success) == ("HI", True)
        assert (await tools.call("shout", '{"text": "json"}', "call_7")).text == "JSON"
        for arguments in (PATCH, {"input": PATCH}, json.dumps({"input": PATCH})):
            assert (await tools.call("apply_patch", arguments)).success, arguments
            (tmp_path / "new.txt").unlink()
        echoed = await tools.call("shell_command", {"command": "echo two words; exit 3"})
        assert "two words" in echoed.text and echoed.success is False


def test_f16_so_does_its_plain_twin(tmp_path: Path) -> None:
    with open_toolset(tmp_path, shout) as tools:
        assert tools.call_sync("shout", {"text": "hi"}).text == "HI"
        assert tools.run_sync([{"type": "function_call", "call_id": "a", "name": "shout", "arguments": '{"text":"x"}'}])


async def test_f16_what_goes_wrong_is_told_in_the_output(tmp_path: Path) -> None:
    @tool(read_only=True)
    def breaks(how: str) -> str:
        raise {"exit": SystemExit(3), "interrupt": KeyboardInterrupt(), "value": ValueError("no")}[how]

    async with open_toolset(tmp_path, shout, breaks) as tools:
        for name, arguments, words in (
            ("shoot", {}, "did you mean shout"),
            ("shout", {"txt": 1}, "text"),
            ("shout", "{broken", "failed to parse function arguments"),
            ("shout", "plain words", "JSON arguments"),
            ("breaks", {"how": "exit"}, "SystemExit"),
            ("breaks", {"how": "interrupt"}, "KeyboardInterrupt"),
            ("breaks", {"how": "value"}, "ValueError: no"),
        ):
            output = await tools.call(name, arguments)
            assert output.success is False and words in output.text, (name, output.text)
        with pytest.raises(TypeError):
            await tools.call("shout", {"text": object()})


async def test_f16_it_is_confined_asked_about_and_cut_as_in_a_session(tmp_path: Path) -> None:
    asked: list[ExecApproval] = []

    def deny(question: ExecApproval) -> ReviewDecision:
        asked.append(question)
        return ReviewDecision.DENIED

    async with open_toolset(
        tmp_path, "shell_command", shout, sandbox="read-only", approval_policy="untrusted", on_approval=deny
    ) as tools:
        refused = await tools.call("shell_command", {"command": "touch x"})
        assert "rejected by user" in refused.text and [one.kind for one in asked] == ["command"]
        long = await tools.call("shout", {"text": "x" * 1_000_000})
        assert len(long.text) < 100_000
    async with open_toolset(tmp_path, "shell_command", sandbox="read-only") as tools:
        assert (await tools.call("shell_command", {"command": "touch x"})).success is False
    assert not (tmp_path / "x").exists()


async def test_f16_a_native_tool_is_called_by_its_name(tmp_path: Path) -> None:
    async with open_toolset(tmp_path, "local_shell", "native_shell") as tools:
        local = await tools.call("local_shell", {"command": ["echo", "a"]})
        assert "a" in local.text and local.success
        native = await tools.call("shell", {"commands": ["echo b"]})
        assert "b" in native.text and native.success


async def test_f16_a_notebook_calls_both_ways(tmp_path: Path) -> None:
    """There a loop runs already, and the cell is plain code on its thread."""
    assert asyncio.get_running_loop() is not background_loop()
    with open_toolset(tmp_path, shout) as tools:
        assert tools.call_sync("shout", {"text": "cell"}).text == "CELL"
        with pytest.raises(RuntimeError, match="another event loop"):
            await tools.call("shout", {"text": "cell"})
    assert runner().call(Run(argv=("echo", "cell"))).text == "cell\n"
    async with ToolContext.local(cwd=tmp_path) as mine:
        assert (await runner()(Run(argv=("pwd",)), mine)).text == f"{tmp_path}\n"
        with pytest.raises(RuntimeError, match="another event loop"):
            runner().call(Run(argv=("pwd",)), mine)


def test_f16_a_call_can_end_by_its_timeout(tmp_path: Path) -> None:
    pid, timeout = tmp_path / "pid", 1.0
    with open_toolset(tmp_path, "shell_command") as tools:
        while not pid.exists():  # on a busy machine a command starts late
            with pytest.raises(TimeoutError):
                tools.call_sync("shell_command", {"command": "echo $$ > pid; sleep 100"}, timeout=timeout)
            timeout *= 2
    assert not alive(int(pid.read_text()))


async def test_f16_closing_a_toolset_ends_the_call_that_runs(tmp_path: Path) -> None:
    tools = open_toolset(tmp_path, "shell_command")
    running = asyncio.create_task(
        tools.call("shell_command", {"command": "echo $$ > pid; sleep 100", "timeout_ms": 90_000})
    )
    pid = tmp_path / "pid"
    await until(lambda: pid.exists() and pid.read_text() != "")
    async with asyncio.timeout(DEADLINE):
        await tools.aclose()
        output = await running
    assert output.success is False and "the toolset was closed" in output.text
    assert not alive(int((tmp_path / "pid").read_text()))


async def test_f16_a_question_with_nobody_there_is_an_answer(tmp_path: Path) -> None:
    async with open_toolset(tmp_path, "request_user_input") as tools:
        output = await tools.call("request_user_input", {"questions": [{"id": "a", "question": "b?"}]})
    assert output.success is False and "no answer" in output.text


def test_f16_tools_may_call_their_toolset(tmp_path: Path) -> None:
    """From a thread, where it waits, and in the loop of plain code, where it may not."""
    held: list[Toolset] = []

    @tool
    def outer(text: str) -> str:
        return held[0].call_sync("shout", {"text": text}).text

    @tool
    async def awaited(text: str) -> str:
        return (await held[0].call("shout", {"text": text})).text

    @tool(blocking=False)
    def in_loop(text: str) -> str:
        return held[0].call_sync("shout", {"text": text}).text

    with open_toolset(tmp_path, shout, outer, awaited, in_loop) as tools:
        held.append(tools)
        assert tools.call_sync("outer", {"text": "a"}, timeout=DEADLINE).text == "A"
        assert tools.call_sync("awaited", {"text": "b"}, timeout=DEADLINE).text == "B"
        assert "await the coroutine" in tools.call_sync("in_loop", {"text": "c"}, timeout=DEADLINE).text


def test_f16_many_threads_call_one_toolset(tmp_path: Path) -> None:
    with open_toolset(tmp_path, shout) as tools:
        found: list[str] = []
        threads = [
            threading.Thread(target=lambda n=n: found.append(tools.call_sync("shout", {"text": f"t{n}"}, "same").text))
            for n in range(20)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE)
    assert sorted(found) == sorted(f"T{n}" for n in range(20))


# --- a definition


def test_f16_a_definition_is_called_in_plain_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert runner().call(Run(argv=("pwd",))) == Ran(text=f"{tmp_path}\n", exit_code=0)
    (tmp_path / "sub").mkdir()
    with ToolContext.local(cwd=tmp_path / "sub") as ctx:
        assert runner().call(Run(argv=("pwd",)), ctx).text == f"{tmp_path}/sub\n"
        assert call_async_from_sync(runner(), Run(argv=("pwd",)), ctx, timeout=DEADLINE).exit_code == 0
    with pytest.raises(TimeoutError):
        runner().call(Run(argv=("sleep", "100")), timeout=0.3)


def test_f16_it_is_confined_there_too(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    inside = tmp_path / "inside"
    inside.mkdir()
    with ToolContext.local(cwd=inside, sandbox="read-only") as ctx:
        assert runner().call(Run(argv=("touch", str(outside))), ctx).exit_code != 0
        assert runner().call(Run(argv=("touch", "mine")), ctx).exit_code != 0
    with ToolContext.local(cwd=inside, sandbox="danger-full-access") as ctx:
        assert runner().call(Run(argv=("touch", str(outside))), ctx).exit_code == 0
    assert outside.exists() and not (inside / "mine").exists()


def test_f16_a_local_context_can_ask_and_tell(tmp_path: Path) -> None:
    asked: list[ExecApproval] = []
    told: list[Event | ToolEvent] = []

    @tool
    def deploy(target: str) -> str:
        return f"to {target}"

    @tool(read_only=True)
    def tell(ctx: ToolContext) -> str:
        from ferrule.protocol.events import WarningEvent

        ctx.emit(WarningEvent(message=ctx.cwd))
        return "told"

    def decide(question: ExecApproval) -> ReviewDecision:
        asked.append(question)
        return ReviewDecision.DENIED

    with ToolContext.local(cwd=tmp_path, approval_policy="untrusted", on_approval=decide, on_event=told.append) as ctx:
        with pytest.raises(RespondToModel, match="rejected by user"):
            deploy.call(deploy.action_from_arguments({"target": "x"}), ctx)
        assert str(tell.call(tell.action_from_arguments({}), ctx)) == "told"
    assert [one.text for one in asked] == ['deploy {"target":"x"}'] and len(told) == 1


def test_f16_wrong_words_are_refused_at_once(tmp_path: Path) -> None:
    for wrong in ({"cwd": tmp_path / "gone"}, {"sandbox": "some"}, {"approval_policy": "perhaps"}):
        with pytest.raises(UsageError):
            ToolContext.local(**wrong)


def test_f16_tools_of_mcp_servers_are_called_in_plain_code(tmp_path: Path) -> None:
    tools = {one.mcp_tool.name: one for one in create_mcp_tools({"mcpServers": {"stub": server()}})}
    echo, write = tools["echo"], tools["write"]
    assert echo.call(echo.action_from_arguments({"text": "plain"})).to_llm_content == "ECHO: plain"
    assert not write.annotations.readOnlyHint
    with ToolContext.local(cwd=tmp_path) as ctx:
        assert write.call(write.action_from_arguments({}), ctx).success is not None
        assert call_async_from_sync(echo, echo.action_from_arguments({"text": "a"}), ctx, timeout=DEADLINE).success
    call_async_from_sync(echo.close)


def test_f16_the_tools_map_needs_no_provider_and_its_tools_act_where_the_agent_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("FERRULE_HOME", str(tmp_path / "home"))
    where = runner()
    agent = Agent(
        cwd=tmp_path, tools=["shell_command", where], mcp_config={"mcpServers": {"stub": server(required=True)}}
    )
    tools = agent.tools_map
    shell, echo = tools["shell_command"], tools["mcp__stub__echo"]
    assert tools["run"] is where and agent.tools_map["mcp__stub__echo"] is echo
    assert f"{tmp_path}\n" in shell.call(shell.action_from_arguments({"command": "pwd"})).output
    assert where.call(Run(argv=("pwd",))).text == f"{tmp_path}\n"
    assert echo.call(echo.action_from_arguments({"text": "map"}), timeout=DEADLINE).to_llm_content == "ECHO: map"

    async def elsewhere() -> str:
        return str((await shell(shell.action_from_arguments({"command": "pwd"}))).output)

    assert asyncio.run(elsewhere()) == f"{tmp_path}\n"
    agent.close()
    agent.close()
    with pytest.raises(RespondToModel):
        echo.call(echo.action_from_arguments({"text": "gone"}))


def test_permissions_are_those_that_were_given(tmp_path: Path) -> None:
    with ToolContext.local(cwd=tmp_path, sandbox=DangerFullAccess(), approval_policy="on-request") as ctx:
        assert ctx.permissions.approval_policy is AskForApproval.ON_REQUEST
        assert ctx.cwd == str(tmp_path)
