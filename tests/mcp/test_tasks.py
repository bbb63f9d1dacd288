"""Tools that run only as tasks of their server."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from ferrule.mcp.client import NO_TASKS
from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.events import ElicitationRequest, McpToolCallProgress, WarningEvent
from ferrule.testing import ScriptedModel, function_call, message
from ferrule.tools.questions import Answer, Elicited
from tests.mcp.sessions import agent
from tests.mcp.stub import server
from tests.mcp.test_client import client, text_of, until


async def test_m057_a_tool_that_needs_a_task_runs_as_one_and_tells_its_progress() -> None:
    steps: list[Any] = []
    async with client("tasks", tool_timeout=0.6) as stub:  # it works for 0.8 s, and answers all the time
        await stub.list_tools()
        result = await stub.call_tool("deep", {"steps": 8}, on_progress=lambda *step: steps.append(step))
    assert text_of(result) == "deep: done"
    assert (0.0, None, "begun") in steps
    assert [step for step in steps if step[1]] == [(float(number), 3, "") for number in range(1, 9)]


async def test_m057_a_task_that_asks_is_answered(tmp_path: Path) -> None:
    async def ask(request: ElicitationRequest) -> Answer:
        await asyncio.sleep(0.8)
        return Elicited("accept", {"ok": request.message == "Which?"})

    async with client("tasks", ask=ask, tool_timeout=0.6) as stub:
        await stub.list_tools()
        said = text_of(await stub.call_tool("deep", {"steps": 1, "ask": 0.3}))
    assert json.loads(said.removeprefix("deep: ")) == {"action": "accept", "content": {"ok": True}}


async def test_m057_a_cancelled_call_cancels_its_task(tmp_path: Path) -> None:
    log = tmp_path / "log"
    async with client("tasks", f"log={log}") as stub:
        await stub.list_tools()
        begun = asyncio.Event()
        call = asyncio.ensure_future(
            stub.call_tool("deep", {"steps": 600}, on_progress=lambda *step: begun.set() if step[0] == 2 else None)
        )
        await begun.wait()
        call.cancel()
        await asyncio.wait([call])
        assert call.cancelled()
        await until(lambda: "task cancelled" in log.read_text())
        assert text_of(await stub.call_tool("echo", {"text": "alive"})) == "ECHO: alive"


@pytest.mark.parametrize(
    ("modes", "arguments", "why"),
    [
        (("tasks",), {"end": "failed"}, "stub/deep failed: its task failed: the disk is full"),
        (("tasks", "forgets-tasks"), {}, "stub/deep failed: its task failed: no such task"),
    ],
)
async def test_m057_a_task_that_fails_or_is_forgotten_says_so(
    modes: tuple[str, ...], arguments: dict[str, Any], why: str
) -> None:
    async with client(*modes) as stub:
        await stub.list_tools()
        with pytest.raises(RespondToModel, match=why):
            await stub.call_tool("deep", arguments)


async def test_m057_without_tasks_at_the_server_the_tool_is_hidden_with_a_reason(tmp_path: Path) -> None:
    events: list[Any] = []
    servers = {"plain": server(), "able": server("tasks")}
    script = [[function_call("mcp__able__deep", {"steps": 1})], [message("done")]]
    with ScriptedModel(script) as model:
        await agent(model, "responses", tmp_path, servers, on_event=events.append).run("go")
        names = model.requests[0].tool_names
        assert "mcp__able__deep" in names
        assert "mcp__plain__deep" not in names
        assert model.requests[1].outputs[0].text == "deep: done"
    warnings = [event.message for event in events if isinstance(event, WarningEvent)]
    assert f"the tool 'deep' of the MCP server plain is left out: {NO_TASKS}" in warnings
    assert any(event.message == "begun" for event in events if isinstance(event, McpToolCallProgress))
