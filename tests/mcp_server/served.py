"""Servers in this process, for the real client of the SDK."""

import base64
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mcp.server.lowlevel import Server

from ferrule.doors.mcp_server import clients as mcp_clients
from ferrule.doors.mcp_server.offer import Opener
from ferrule.doors.mcp_server.run import tools_opener
from ferrule.doors.mcp_server.server import Clients, server_of
from ferrule.protocol.permissions import AskForApproval, WorkspaceWrite
from ferrule.protocol.settings import Settings
from mcp import Client, types

ERAS = ("legacy", "auto")
"""The modes of the client: of 2025-11-25, which begins with a handshake, and of 2026-07-28."""

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)

ESCALATED = {"sandbox_permissions": "require_escalated", "justification": "it must"}
"""What lets a command need approval."""


def settings_in(folder: Path, **more: Any) -> Settings:
    """The settings of a server that works in a folder `work`, with a home beside it."""
    work = folder / "work"
    work.mkdir(exist_ok=True)
    given: dict[str, Any] = {
        "cwd": os.path.realpath(work),
        "home": str(folder / "home"),
        "approval_policy": AskForApproval.ON_REQUEST,
        "sandbox_policy": WorkspaceWrite(exclude_slash_tmp=True, exclude_tmpdir_env_var=True),
    }
    return Settings(**given | more)


@asynccontextmanager
async def served(
    settings: Settings, opener: Opener | None = None, tools: Sequence[str] | None = None, **more: Any
) -> AsyncIterator[Server[Any]]:
    """A server whose clients are closed at the end."""
    opener = opener or tools_opener(tools)
    async with serving(mcp_clients.Client(settings, opener, **more)) as server:
        yield server


@asynccontextmanager
async def serving(client: mcp_clients.Client) -> AsyncIterator[Server[Any]]:
    """A server of one client, whom it closes at the end."""
    clients = Clients(client, lambda: client)
    try:
        yield server_of(clients, "")[0]
    finally:
        await clients.aclose()


class User:
    """The user of a client: sees what is asked, and answers as told."""

    def __init__(self, action: str = "accept", content: dict[str, Any] | None = None) -> None:
        self.asked: list[types.ElicitRequestFormParams] = []
        self._answer = types.ElicitResult(action=action, content=content)

    async def __call__(self, context: object, params: Any) -> types.ElicitResult:
        self.asked.append(params)
        return self._answer


@asynccontextmanager
async def connected(server: Any, era: str, user: User | None = None, **more: Any) -> AsyncIterator[Client]:
    """The SDK's client of a server."""
    async with Client(server, mode=era, elicitation_callback=user, **more) as client:
        yield client


def text_of(result: types.CallToolResult) -> str:
    return "".join(block.text for block in result.content if isinstance(block, types.TextContent))


def roots(*folders: object) -> Any:
    """What a client answers to the question for its roots."""

    async def answer(context: object) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri=f"file://{folder}") for folder in folders])

    return answer
