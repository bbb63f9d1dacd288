"""Servers that hang, die, flood or send elsewhere at any moment: nothing waits for them for ever."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from ferrule.mcp.client import MCPClient
from ferrule.mcp.errors import McpFailure
from ferrule.mcp.tools import MCPToolDefinition
from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.mcp_settings import McpServerSettings
from tests.mcp.test_client import client, text_of
from tests.mcp.web import Asked, Reply, mcp_result, stub


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Most of these servers do not end by themselves."""
    monkeypatch.setattr("ferrule.mcp.stdio.EXIT_GRACE", 0.2)
    monkeypatch.setattr("ferrule.mcp.http.CLOSE_SECONDS", 0.2)


async def use(made: MCPClient) -> None:
    """All phases of a server's life."""
    async with made:
        await made.list_tools()
        await made.request("resources/list", {"cursor": None})
        await made.call_tool("echo", {"text": "x"})


@pytest.mark.parametrize(
    ("method", "why"),
    [
        ("initialize", r"did not answer within 0.5 seconds \(startup_timeout\)"),
        ("tools/list", r"did not list its tools within 1 seconds \(startup_timeout\)"),
        ("resources/list", r"resources/list had no answer within 0.5 seconds \(tool_timeout\)"),
    ],
)
async def test_a_server_that_hangs_is_left_in_time(method: str, why: str) -> None:
    startup_timeout = {"initialize": 0.5, "tools/list": 1.0}.get(method, 30.0)
    made = client(f"hang={method}", startup_timeout=startup_timeout, tool_timeout=0.5)
    with pytest.raises((McpFailure, RespondToModel), match=why):
        await use(made)


@pytest.mark.parametrize(
    ("method", "why"),
    [
        ("initialize", "stub exited with code 5"),
        (
            "tools/list",
            "did not list its tools: tools/list failed: MCP server stub exited with code 5. The next request",
        ),
        ("resources/list", "resources/list failed: MCP server stub exited with code 5. The next request starts"),
    ],
)
async def test_a_server_that_dies_is_told_of_at_once(method: str, why: str) -> None:
    started = time.monotonic()
    with pytest.raises((McpFailure, RespondToModel), match=why):
        await use(client(f"die={method}"))
    assert time.monotonic() - started < 20


async def test_a_server_that_closes_its_output_and_lives_on_is_not_said_to_have_exited() -> None:
    with pytest.raises(McpFailure, match="tools/list failed: MCP server stub closed the connection"):
        await use(client("deaf=tools/list"))


async def test_a_flood_of_notifications_costs_little_and_tells_of_a_change_once_a_row() -> None:
    changes: list[None] = []
    async with client(on_tools_changed=lambda: changes.append(None)) as made:
        started = time.monotonic()
        await made.call_tool("flood", {})
        took = time.monotonic() - started
        assert text_of(await made.call_tool("echo", {"text": "on"})) == "ECHO: on"
    assert 1 <= len(changes) <= 200  # of 40,000
    assert took < 20


class Web:
    """A remote server with a session, which hangs where it is told to."""

    def __init__(self, hang: str) -> None:
        self.hang = hang
        self.released = threading.Event()

    def answer(self, asked: Asked) -> Reply:
        method = asked.json.get("method") if asked.method == "POST" else asked.method
        if method == self.hang:
            self.released.wait(50)
        if asked.method != "POST":
            return 405, {}, b""
        return mcp_result(asked, **{"mcp-session-id": "s"})


@contextmanager
def hanging(hang: str) -> Iterator[str]:
    web = Web(hang)
    with stub(web.answer, gets=True) as url:
        yield url
        web.released.set()


@pytest.mark.parametrize(
    ("hang", "why"),
    [
        ("initialize", r"did not answer within 1 seconds \(startup_timeout\)"),
        ("tools/list", r"did not list its tools within 1 seconds \(startup_timeout\)"),
        ("tools/call", r"web/echo did not answer within 0.5 seconds \(tool_timeout\)"),
        ("notifications/initialized", r"did not (answer|list its tools) within 1 seconds"),
        ("DELETE", None),
        ("GET", None),
    ],
)
async def test_a_remote_server_that_hangs_is_left_in_time(hang: str, why: str | None) -> None:
    tool = 0.5 if hang == "tools/call" else 30.0
    startup = 30.0 if hang in ("tools/call", "DELETE", "GET") else 1.0

    async def through() -> None:
        async with MCPClient("web", McpServerSettings(url=url, startup_timeout=startup, tool_timeout=tool)) as web:
            await web.list_tools()
            await web.call_tool("echo", {"text": "x"})

    with hanging(hang) as url:
        async with asyncio.timeout(20):
            if why is None:
                await through()
            else:
                with pytest.raises((McpFailure, RespondToModel), match=why):
                    await through()


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_redirects_that_lead_nowhere_end_with_the_address(status: int) -> None:
    def answer(asked: Asked) -> Reply:
        return status, {"location": "/mcp" if status > 302 else "https://other.example/mcp"}, b""

    with stub(answer) as url, pytest.raises(McpFailure, match=r"Redirect to http.* not followed"):
        await MCPClient("web", McpServerSettings(url=url)).connect()


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"type": "object", "properties": {"x": {"$ref": "#/properties/y"}, "y": {"$ref": "#/properties/x"}}},
        {"type": "object", "allOf": [{"$ref": "#"}], "properties": {"x": {}}},
        {"type": "object", "properties": {"x": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"$ref": "#/$defs/a"}}},
    ],
)
async def test_schemas_that_go_round_in_circles_are_used(schema: dict[str, Any]) -> None:
    tools = [{"name": "echo", "inputSchema": schema}, {"name": "echo", "description": "a second one of this name"}]
    async with client(f"tools={json.dumps(tools)}") as made:
        (tool,) = await made.list_tools()
        definition = MCPToolDefinition(tool, made)
        assert definition.action_from_arguments({"x": {"x": 1}}).data == {"x": {"x": 1}}
        assert definition.model is not None
