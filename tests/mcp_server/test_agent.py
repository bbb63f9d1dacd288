"""An agent as two tools of an MCP server."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ferrule.doors.mcp_server import agent, calls
from ferrule.doors.mcp_server.run import agent_opener
from ferrule.protocol.permissions import ReadOnly
from ferrule.protocol.settings import ModelSettings, ProviderSettings, Settings
from ferrule.testing import ScriptedModel, function_call, message
from mcp import Client
from tests.mcp_server.served import ERAS, ESCALATED, User, connected, served, settings_in, text_of
from tests.processes import running, until

MODEL = ModelSettings(model="m")


@asynccontextmanager
async def agent_at(model: ScriptedModel, settings: Settings, era: str = "auto", **more: Any) -> AsyncIterator[Client]:
    """A client of an agent with this model."""
    async with served(settings, agent_opener()) as server, connected(server, era, **more) as client:
        yield client


def with_model(model: ScriptedModel, folder: Path, **more: Any) -> Settings:
    provider = ProviderSettings(name="scripted", base_url=model.base_url)
    return settings_in(folder, model=MODEL, provider=provider, **more)


@pytest.mark.parametrize("era", ERAS)
async def test_a_task_gives_text_and_a_thread_that_goes_on(tmp_path: Path, era: str) -> None:
    with ScriptedModel([[message("first")], [message("second")]]) as model:
        async with agent_at(model, with_model(model, tmp_path), era) as client:
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            assert list(tools) == ["ferrule", "ferrule-reply"]
            assert tools["ferrule"].input_schema["required"] == ["prompt"]
            assert tools["ferrule-reply"].input_schema["required"] == ["threadId", "prompt"]
            assert tools["ferrule"].annotations is not None
            first = await client.call_tool("ferrule", {"prompt": "begin"})
            thread = first.structured_content["threadId"]
            second = await client.call_tool("ferrule-reply", {"threadId": thread, "prompt": "more"})
        assert text_of(first) == "first" and text_of(second) == "second" and not second.is_error
        assert second.structured_content == {"threadId": thread, "content": "second"}
        assert "begin" in model.requests[1].user_text and "more" in model.requests[1].user_text


async def test_a_thread_goes_on_in_another_server(tmp_path: Path) -> None:
    with ScriptedModel([[message("first")], [message("second")]]) as model:
        settings = with_model(model, tmp_path)
        async with agent_at(model, settings) as client:
            thread = (await client.call_tool("ferrule", {"prompt": "begin"})).structured_content["threadId"]
        async with agent_at(model, settings) as client:
            second = await client.call_tool("ferrule-reply", {"threadId": thread, "prompt": "more"})
        assert text_of(second) == "second" and "begin" in model.requests[1].user_text


@pytest.mark.parametrize(
    "thread", ["", "nothing", "/etc/passwd", "../x.jsonl", "0" * 8, "0" * 8 + "-0000" * 3 + "-" + "0" * 12]
)
async def test_a_thread_that_is_none_is_an_error(tmp_path: Path, thread: str) -> None:
    with ScriptedModel() as model:
        async with agent_at(model, with_model(model, tmp_path)) as client:
            result = await client.call_tool("ferrule-reply", {"threadId": thread, "prompt": "more"})
        assert result.is_error and not model.requests


@pytest.mark.parametrize("prompt", ["", " \n"])
async def test_an_empty_prompt_is_an_error(tmp_path: Path, prompt: str) -> None:
    with ScriptedModel([[message("first")]]) as model:
        async with agent_at(model, with_model(model, tmp_path)) as client:
            thread = (await client.call_tool("ferrule", {"prompt": "begin"})).structured_content["threadId"]
            for name, more in (("ferrule", {}), ("ferrule-reply", {"threadId": thread})):
                result = await client.call_tool(name, {"prompt": prompt} | more)
                assert result.is_error and "prompt is empty" in text_of(result)
        assert len(model.requests) == 1


async def test_only_as_many_threads_are_open_and_all_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "MAX_THREADS", 2)
    with ScriptedModel([[message(f"{n}")] for n in range(4)]) as model:
        async with agent_at(model, with_model(model, tmp_path)) as client:
            threads = [
                (await client.call_tool("ferrule", {"prompt": f"task {n}"})).structured_content["threadId"]
                for n in range(3)
            ]
            last = await client.call_tool("ferrule-reply", {"threadId": threads[0], "prompt": "more"})
        assert (
            text_of(last) == "3"
            and "task 0" in model.requests[3].user_text
            and "task 1" not in model.requests[3].user_text
        )


@pytest.mark.parametrize("era", ERAS)
async def test_it_tells_its_progress_and_asks_for_approval(
    tmp_path: Path, era: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(calls, "PROGRESS_S", 0.05)
    user, outside, told = User(), tmp_path / "outside", []

    async def heard(progress: float, total: float | None, message: str | None) -> None:
        told.append(str(message))

    steps = [
        [function_call("shell_command", {"command": "echo working; sleep 0.3"})],
        [function_call("shell_command", {"command": f"touch {outside}", **ESCALATED})],
        [message("done")],
    ]
    with ScriptedModel(steps) as model:
        async with agent_at(model, with_model(model, tmp_path), era, user=user) as client:
            result = await client.call_tool("ferrule", {"prompt": "go"}, progress_callback=heard)
    assert text_of(result) == "done" and outside.exists()
    assert f"touch {outside}" in user.asked[0].message
    assert any("working" in message for message in told)


async def test_a_cancelled_task_ends_its_turn_and_its_thread_goes_on(tmp_path: Path) -> None:
    mark = f": agent{os.getpid()}"
    stubborn = {"command": f"{mark}; trap '' TERM; sleep 1000; sleep 1000; :"}
    with ScriptedModel([[message("one")], [function_call("shell_command", stubborn)], [message("three")]]) as model:
        async with agent_at(model, with_model(model, tmp_path), "legacy") as client:
            thread = (await client.call_tool("ferrule", {"prompt": "go"})).structured_content["threadId"]
            reply = {"threadId": thread, "prompt": "run"}
            calling = asyncio.create_task(client.call_tool("ferrule-reply", reply))
            await until(lambda: bool(running(mark)))
            busy = await client.call_tool("ferrule-reply", reply)
            assert busy.is_error and "a turn is running" in text_of(busy)
            calling.cancel()
            await asyncio.wait([calling])
            assert running(mark)  # the turn takes a moment to end: what comes next waits for that
            last = await client.call_tool("ferrule-reply", {"threadId": thread, "prompt": "go on"})
        assert text_of(last) == "three"


async def test_a_model_that_fails_is_an_error_with_its_thread(tmp_path: Path) -> None:
    with ScriptedModel() as model:
        settings = with_model(model, tmp_path)
    async with agent_at(model, settings) as client:
        result = await client.call_tool("ferrule", {"prompt": "go"})
    assert result.is_error and result.structured_content["threadId"] and text_of(result)


async def test_a_task_has_never_more_rights_than_the_server(tmp_path: Path) -> None:
    call = function_call("shell_command", {"command": "touch made"})
    with ScriptedModel([[call], [message("done")]] * 3) as model:
        settings = with_model(model, tmp_path)
        Path(settings.cwd, "in").mkdir()
        async with agent_at(model, settings) as client:
            for asked in ({"sandbox": "read-only"}, {"sandbox": "danger-full-access", "cwd": "in"}):
                assert not (await client.call_tool("ferrule", {"prompt": "go", **asked})).is_error
            for wrong in ({"cwd": ".."}, {"cwd": "/"}, {"sandbox": "none"}, {"approval-policy": "sometimes"}):
                assert (await client.call_tool("ferrule", {"prompt": "go", **wrong})).is_error
            assert (await client.call_tool("ferrule", {})).is_error
        reading = msgspec.structs.replace(settings, sandbox_policy=ReadOnly())
        async with agent_at(model, reading) as client:
            await client.call_tool("ferrule", {"prompt": "go", "sandbox": "workspace-write"})
    assert os.listdir(settings.cwd) == ["in"] and os.listdir(f"{settings.cwd}/in") == ["made"]
