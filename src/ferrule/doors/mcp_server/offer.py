"""What a client can call, and the tools of a session as such an offer."""

import json
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec
from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS, CallToolResult, Tool

from ferrule.doors.mcp_server.calls import Call, Notes
from ferrule.doors.mcp_server.desk import Desk
from ferrule.doors.mcp_server.listing import tools_of
from ferrule.doors.mcp_server.results import result_of
from ferrule.doors.mcp_server.shelf import Shelf
from ferrule.protocol.json_text import JsonValue
from ferrule.protocol.settings import Settings
from ferrule.session.offline import open_offline
from ferrule.session.session import Session


class Asking(msgspec.Struct, frozen=True):
    """What an offer tells its client, and whether that can ask its user."""

    notes: Notes
    shelf: Shelf
    elicits: bool


class Offer(Protocol):
    """What one client can call."""

    def tools(self) -> list[Tool]:
        """Return the tools as they are listed."""
        ...

    async def call(self, call: Call, name: str, arguments: Mapping[str, JsonValue]) -> CallToolResult:
        """Do a call. Raises `MCPError` for a tool that is not offered."""
        ...

    async def aclose(self) -> None:
        """End everything that calls have left running."""
        ...


class Opener(Protocol):
    """Opens the offer for one client."""

    async def __call__(self, settings: Settings, asking: Asking) -> Offer:
        """Return the offer. Raises `FerruleError`."""
        ...


class ToolsOffer:
    """The tools of a session that never asks a model."""

    def __init__(self, session: Session, desk: Desk, shelf: Shelf) -> None:
        self._session = session
        self._desk = desk
        self._shelf = shelf
        self._tools = {tool.name: tool for tool in tools_of(session.toolset)}

    @classmethod
    async def open(cls, settings: Settings, asking: Asking, tools: Sequence[str] | None = None) -> "ToolsOffer":
        """Open the tools of the settings' profile, or those of these names. MCP servers are not started: the client
        has its own, and this may be one of the configured. Raises `FerruleError`."""
        desk = Desk(asking.notes, asking.shelf, elicits=asking.elicits)
        settings = msgspec.structs.replace(settings, mcp_servers={})
        session, _ = await open_offline(settings, desk, tools=tools)
        for warning in session.toolset.warnings:
            asking.notes.add("warning", warning)
        return cls(session, desk, asking.shelf)

    def tools(self) -> list[Tool]:
        """See `Offer.tools`."""
        return list(self._tools.values())

    async def call(self, call: Call, name: str, arguments: Mapping[str, JsonValue]) -> CallToolResult:
        """See `Offer.call`."""
        if name not in self._tools:
            raise unknown(name, self._tools)
        desk, toolset = self._desk, self._session.toolset
        desk.calls[call.id] = call
        try:
            output = await toolset.call(name, json.dumps(dict(arguments)), call.id)
        finally:
            del desk.calls[call.id]
            observation = desk.observed.pop(call.id, None)
        found = toolset.current()[1].find(name)
        return result_of(output, observation, None if found is None else found.handler, call.id, self._shelf)

    async def aclose(self) -> None:
        """See `Offer.aclose`."""
        await self._session.aclose()


def unknown(name: str, known: Mapping[str, object]) -> MCPError:
    """Return the error for a tool that is not offered."""
    return MCPError(code=INVALID_PARAMS, message=f"there is no tool {name!r}; the tools are: {', '.join(known)}")
