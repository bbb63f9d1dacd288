"""MCP servers through a whole session, with a scripted model over both wires."""

from pathlib import Path
from typing import Any

import pytest

from ferrule import Agent
from ferrule.protocol.events import McpServerStatus, McpToolCallBegin, McpToolCallEnd
from ferrule.testing import ScriptedModel, function_call, message
from tests.mcp.stub import server

WIRES = ("responses", "chat")


def agent(model: ScriptedModel, wire: Any, cwd: Path, servers: dict[str, Any], **more: Any) -> Agent:
    return Agent("m", tools=[], base_url=model.base_url, wire=wire, cwd=cwd, mcp_config={"mcpServers": servers}, **more)


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
    assert end.duration_ms < 5_000
    statuses = [event.status for event in seen if isinstance(event, McpServerStatus)]
    assert statuses == ["starting", "ready", "stopped"]
