"""Agents with MCP servers, over a scripted model."""

from pathlib import Path
from typing import Any

import ferrule.mcp.connection  # noqa: F401 - its second does not count in a test
from ferrule import Agent
from ferrule.protocol.events import McpServerStatus
from ferrule.testing import ScriptedModel

WIRES = ("responses", "chat")


def statuses(events: list[Any]) -> list[McpServerStatus]:
    return [event for event in events if isinstance(event, McpServerStatus)]


def agent(model: ScriptedModel, wire: Any, cwd: Path, servers: dict[str, Any], name: str = "m", **more: Any) -> Agent:
    return Agent(
        name, tools=[], base_url=model.base_url, wire=wire, cwd=cwd, mcp_config={"mcpServers": servers}, **more
    )
