"""A toolset in agents of Pydantic AI, by the real package over both wires."""

import asyncio
from collections.abc import AsyncIterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest
from pydantic_ai import (
    Agent,
    BinaryContent,
    DeferredToolRequests,
    DocumentUrl,
    ImageUrl,
    ToolApproved,
    ToolDenied,
    UsageLimits,
)
from pydantic_ai.exceptions import UsageLimitExceeded
from pydantic_ai.messages import FunctionToolResultEvent, ToolReturnPart
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

from ferrule.integrations.pydantic_ai import toolset
from ferrule.protocol.content import InputText
from ferrule.protocol.dynamic_tools import DynamicToolResponse, DynamicToolSpec
from ferrule.testing import ScriptedModel, function_call
from tests.integrations.frameworks import BESIDE, EVERY_KIND, PNG, command, opened, papers, run_program, with_every_kind
from tests.processes import alive, until


@pytest.fixture
def own_loop() -> Iterator[None]:
    """The loop of `run_sync`, which nobody else would close."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    asyncio.set_event_loop(None)
    loop.close()


@contextmanager
def scripted(*steps: Any, wire: str = "chat") -> Iterator[Any]:
    """A model that plays the steps, and has played them all."""
    with ScriptedModel(list(steps)) as server:
        yield model_of(server, wire)
        server.check()


def model_of(server: ScriptedModel, wire: str = "chat") -> Any:
    """A model whose client leaves no connection open: the framework closes it only with its loop."""
    client = httpx2.AsyncClient(limits=httpx2.Limits(max_keepalive_connections=0))
    kind = OpenAIResponsesModel if wire == "responses" else OpenAIChatModel
    return kind("m", provider=OpenAIProvider(base_url=server.base_url, api_key="unused", http_client=client))


def returned(result: Any) -> dict[str, ToolReturnPart]:
    """The answers by call id."""
    parts = [part for message in result.all_messages() for part in message.parts]
    return {part.tool_call_id: part for part in parts if isinstance(part, ToolReturnPart)}


async def collect(results: list[Any], ctx: Any, events: AsyncIterable[Any]) -> None:
    """Keep the answers of tools among the events of a stream."""
    results += [event.part async for event in events if isinstance(event, FunctionToolResultEvent)]


@pytest.mark.parametrize("wire", ["responses", "chat"])
@pytest.mark.usefixtures("own_loop")
def test_every_kind_of_call_comes_back_as_a_return(wire: str, tmp_path: Path) -> None:
    with scripted(BESIDE, EVERY_KIND, "done", wire=wire) as model, with_every_kind(tmp_path) as tools:
        result = Agent(model, toolsets=[toolset(tools)]).run_sync("go")
    spoken, failed, picture, patched, echoed = returned(result).values()
    assert "ünïcode 字" in spoken.content and spoken.outcome == "success"
    assert isinstance(picture.content, BinaryContent) and picture.content.media_type == "image/png"
    assert picture.content.data == PNG
    assert "A nêw.txt" in patched.content and (tmp_path / "nêw.txt").read_text() == "hällo\n"
    assert "Exit code: 3" in failed.content and failed.outcome == "failed"
    assert echoed.content == "ECHO: ö" and echoed.outcome == "success"
    assert result.output == "done"


async def test_a_failure_brings_all_its_parts(tmp_path: Path) -> None:
    with ScriptedModel([function_call("papers", {}), "done"]) as server:
        async with opened(tmp_path, papers) as tools:
            result = await Agent(model_of(server, "responses"), toolsets=[toolset(tools)]).run("go")
    [part] = returned(result).values()
    assert part.outcome == "failed"
    assert isinstance(part.content, list)
    text, picture, file, linked, named = part.content
    assert text == "tŏrn" and picture == ImageUrl("https://example.org/a.png")
    assert isinstance(file, BinaryContent) and file.data == b"%PDF-" and file.media_type == "application/pdf"
    assert linked == DocumentUrl("https://example.org/b.pdf")
    assert "file_1" in str(named)


@pytest.mark.usefixtures("own_loop")
def test_each_call_gets_its_own_decision(tmp_path: Path) -> None:
    calls = [command("pwd"), *(command(f"echo {letter} >> log") for letter in "abc")]
    edited = ToolApproved(override_args={"command": "echo E >> log", "login": False})
    with scripted(calls, "done") as model, opened(tmp_path, "shell_command", policy="untrusted") as tools:
        agent = Agent(model, toolsets=[toolset(tools)], output_type=[str, DeferredToolRequests])
        asked = agent.run_sync("go")
        assert isinstance(asked.output, DeferredToolRequests)
        [a, b, c] = [call.tool_call_id for call in asked.output.approvals]
        assert asked.output.metadata[a]["text"] == "echo a >> log"
        assert asked.output.metadata[a]["cwd"] == str(tmp_path)
        assert not (tmp_path / "log").exists()
        decided = asked.output.build_results(approvals={a: True, b: ToolDenied("nöt now"), c: edited})
        result = agent.run_sync(message_history=asked.all_messages(), deferred_tool_results=decided)
    assert [part.outcome for part in returned(result).values()] == ["success", "success", "denied", "success"]
    assert returned(result)[b].content == "nöt now"
    assert sorted((tmp_path / "log").read_text().split()) == ["E", "a"]


async def test_an_approval_of_one_command_is_none_of_another(tmp_path: Path) -> None:
    """In the history another command took the place of the one that was shown; its id is the same."""
    with scripted(command("echo shown >> log")) as model:
        async with opened(tmp_path, "shell_command", policy="untrusted") as tools:
            agent = Agent(model, toolsets=[toolset(tools)], output_type=[str, DeferredToolRequests])
            asked = await agent.run("go")
            assert isinstance(asked.output, DeferredToolRequests)
            [call] = asked.output.approvals
            call.args = str(call.args).replace("shown", "hidden")
            history = asked.all_messages()
            assert "hidden" in str(history)
            decided = asked.output.build_results(approve_all=True)
            again = await agent.run(message_history=history, deferred_tool_results=decided)
            assert isinstance(again.output, DeferredToolRequests)
            assert "hidden" in again.output.metadata[call.tool_call_id]["text"]
            other = asked.output.build_results(approve_all=True, metadata=asked.output.metadata)
            again = await Agent(model, toolsets=[toolset(tools)], output_type=[str, DeferredToolRequests]).run(
                message_history=history, deferred_tool_results=other
            )
            assert isinstance(again.output, DeferredToolRequests)
    assert not (tmp_path / "log").exists()


async def test_a_file_that_changes_after_the_last_look_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Approved is what was shown, also in the moment between the look at the approved call and its run."""
    text = "*** Begin Patch\n*** Update File: a.txt\n@@\n-old\n+new\n*** End Patch"
    file = tmp_path / "a.txt"
    file.write_text("old\n")
    with scripted(function_call("apply_patch", {"input": text}), "done") as model:
        async with opened(tmp_path, "apply_patch", policy="untrusted") as tools:
            agent = Agent(model, toolsets=[toolset(tools)], output_type=[str, DeferredToolRequests])
            asked = await agent.run("go")
            assert isinstance(asked.output, DeferredToolRequests)
            look = tools.question_of

            async def looked_then_changed(*call: Any) -> Any:
                question = await look(*call)
                file.write_text("theirs\nold\n")
                return question

            monkeypatch.setattr(tools, "question_of", looked_then_changed)
            decided = asked.output.build_results(approve_all=True)
            result = await agent.run(message_history=asked.all_messages(), deferred_tool_results=decided)
    [part] = returned(result).values()
    assert part.outcome == "failed" and "what was approved is not what the call would do now" in str(part.content)
    assert file.read_text() == "theirs\nold\n"


async def test_runs_whose_calls_have_one_id_keep_their_approvals(tmp_path: Path) -> None:
    def script(request: Any) -> Any:
        return "done" if request.outputs else command(f"echo {request.user_text} >> log", call_id="same")

    with ScriptedModel(script) as server:
        async with opened(tmp_path, "shell_command", policy="untrusted") as tools:
            agent = Agent(model_of(server), toolsets=[toolset(tools)], output_type=[str, DeferredToolRequests])
            for asked in await asyncio.gather(agent.run("one"), agent.run("two")):
                assert isinstance(asked.output, DeferredToolRequests)
                decided = asked.output.build_results(approve_all=True)
                result = await agent.run(message_history=asked.all_messages(), deferred_tool_results=decided)
                assert result.output == "done"
    assert sorted((tmp_path / "log").read_text().split()) == ["one", "two"]


async def test_a_timeout_of_the_definition_ends_the_process(tmp_path: Path) -> None:
    async def limited(ctx: Any, tools: Any) -> Any:
        return [replace(tool, timeout=0.3) for tool in tools]

    with scripted(command("echo $$ > pid; exec sleep 100"), "done") as model:
        async with opened(tmp_path, "shell_command") as tools:
            result = await Agent(model, toolsets=[toolset(tools).prepared(limited)]).run("go")
    [part] = returned(result).values()
    assert part.outcome == "retried" and "was ended after 0.3 seconds" in part.content
    pid = (tmp_path / "pid").read_text() if (tmp_path / "pid").exists() else ""
    assert not pid or not alive(int(pid))


async def test_cancelling_a_run_ends_the_process(tmp_path: Path) -> None:
    with scripted(command("echo $$ > pid; exec sleep 100", call_id="a")) as model:
        async with opened(tmp_path, "shell_command") as tools, Agent(model, toolsets=[toolset(tools)]) as agent:
            running = asyncio.create_task(agent.run("go"))
            pid = tmp_path / "pid"
            await until(lambda: pid.exists() and pid.read_text() != "")
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            assert not alive(int(pid.read_text()))


@pytest.mark.usefixtures("own_loop")
def test_a_command_that_goes_on_outlives_a_run_and_ends_with_the_toolset(tmp_path: Path) -> None:
    pid, start = tmp_path / "pid", {"cmd": "echo $$ > pid; exec cat", "login": False, "tty": True, "yield_time_ms": 250}

    def speak(request: Any) -> Any:
        session = int(request.outputs[0].text.partition("session ID ")[2].split()[0])
        return function_call("write_stdin", {"session_id": session, "chars": "hällo\n", "yield_time_ms": 250})

    script = [function_call("exec_command", start), "one", speak, "two"]
    with scripted(*script) as model, opened(tmp_path, "exec_command", "write_stdin") as tools:
        agent = Agent(model, toolsets=[toolset(tools)])
        first = agent.run_sync("go")
        second = agent.run_sync("on", message_history=first.all_messages())
        assert "hällo" in returned(second)["call_2"].content
        assert alive(int(pid.read_text()))
    assert not alive(int(pid.read_text()))


async def test_tools_come_and_go_between_requests(tmp_path: Path) -> None:
    async def late(request: Any) -> DynamicToolResponse:
        tools.remove_dynamic_tools(["late"])
        return DynamicToolResponse((InputText("löst"),))

    with ScriptedModel([function_call("late", {}), "done"]) as server:
        model = model_of(server)
        async with opened(tmp_path, "update_plan") as tools:
            agent = Agent(model, toolsets=[toolset(tools)])
            tools.add_dynamic_tools([DynamicToolSpec("late", "Late", {"type": "object"})], late)
            result = await agent.run("go")
        assert returned(result)["call_1"].content == "löst"
        assert [request.tool_names for request in server.requests] == [["update_plan", "late"], ["update_plan"]]


async def test_failures_cost_no_retries_and_limits_are_kept(tmp_path: Path) -> None:
    wrong = function_call("shell_command", {"comand": 1})
    with scripted(wrong, wrong, wrong, command("pwd"), [command("pwd"), command("touch made")]) as model:
        async with opened(tmp_path, "shell_command") as tools:
            agent = Agent(model, toolsets=[toolset(tools)], retries=1)
            results: list[Any] = []
            limits = UsageLimits(tool_calls_limit=2)
            with pytest.raises(UsageLimitExceeded):
                await agent.run("go", usage_limits=limits, event_stream_handler=partial(collect, results))
    assert [part.outcome for part in results] == ["failed", "failed", "failed", "success"]
    assert "command" in str(results[0].content)
    assert not (tmp_path / "made").exists()


@pytest.mark.usefixtures("own_loop")
def test_the_program_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    call = function_call("exec_command", {"cmd": "echo all > todo.txt", "login": False})
    with ScriptedModel([call, "done"]) as model:
        names = run_program("Pydantic AI", monkeypatch, tmp_path, model)
        asyncio.get_event_loop().run_until_complete(names["agent"].model.client.close())
        model.check()
    [question] = names["questions"]
    assert "echo all > todo.txt" in question
    assert (tmp_path / "todo.txt").read_text() == "all\n"
