"""The MCP server: its methods, each a translation of what a client's session does."""

import asyncio
from collections.abc import Callable
from typing import Any

from mcp.server.lowlevel import NotificationOptions, Server
from mcp.server.models import InitializationOptions
from mcp.shared.exceptions import MCPError
from mcp_types import (
    INVALID_PARAMS,
    CallToolRequestParams,
    CallToolResult,
    EmptyResult,
    InputRequiredResult,
    ListResourcesResult,
    ListResourceTemplatesResult,
    ListToolsResult,
    NotificationParams,
    PaginatedRequestParams,
    ReadResourceRequestParams,
    ReadResourceResult,
    SetLevelRequestParams,
)
from starlette.requests import Request

from ferrule import __version__
from ferrule.doors.mcp_server.calls import Context
from ferrule.doors.mcp_server.clients import Client

SESSION_HEADER = "mcp-session-id"

NAME = "ferrule"


class Clients:
    """The clients of one server. Over stdio there is one. Over HTTP each session of the protocol is one; the era of
    2026-07-28 has no sessions there: all its requests are of one client, whose token they carry."""

    def __init__(self, shared: Client, make: Callable[[], Client]) -> None:
        self._shared = shared
        self._make = make
        self._by_session: dict[str, Client] = {}
        self._ending: set[asyncio.Task[None]] = set()

    def of(self, ctx: Context) -> Client:
        """Return the client that asks."""
        request = ctx.request
        session_id = request.headers.get(SESSION_HEADER) if isinstance(request, Request) else None
        if session_id is None or not ctx.session.can_send_request:
            return self._shared
        known = self._by_session.get(session_id)
        if known is None:
            known = self._by_session[session_id] = self._make()
            # The SDK has no public way to what lives as long as a session does.
            ctx.session._connection.exit_stack.push_async_callback(self._end, session_id)
        return known

    def has_calls(self, session_id: str) -> bool:
        """Tell whether calls run in a session of the protocol."""
        client = self._by_session.get(session_id)
        return client is not None and client.has_calls

    def end_calls(self, session_id: str) -> None:
        """End the calls that run in a session of the protocol."""
        client = self._by_session.get(session_id)
        if client is not None:
            client.end_calls()

    async def _end(self, session_id: str) -> None:
        """End a client, whole also where the SDK loses patience."""
        ending = asyncio.create_task(self._by_session.pop(session_id).aclose())
        self._ending.add(ending)
        ending.add_done_callback(self._ending.discard)
        await asyncio.shield(ending)

    async def aclose(self) -> None:
        """End all clients."""
        await asyncio.gather(*map(self._end, tuple(self._by_session)), *self._ending, self._shared.aclose())


def server_of(clients: Clients, instructions: str) -> tuple[Server[Any], InitializationOptions]:
    """Return the server for these clients, and how it introduces itself."""

    async def list_tools(ctx: Context, params: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=await clients.of(ctx).tools(ctx))

    async def call_tool(ctx: Context, params: CallToolRequestParams) -> CallToolResult | InputRequiredResult:
        return await clients.of(ctx).call(ctx, params)

    async def list_resources(ctx: Context, params: PaginatedRequestParams | None) -> ListResourcesResult:
        return ListResourcesResult(resources=[kept.resource for kept in clients.of(ctx).shelf])

    async def list_templates(ctx: Context, params: PaginatedRequestParams | None) -> ListResourceTemplatesResult:
        return ListResourceTemplatesResult(resource_templates=[])

    async def read_resource(ctx: Context, params: ReadResourceRequestParams) -> ReadResourceResult:
        kept = clients.of(ctx).shelf.get(params.uri)
        if kept is None:
            raise MCPError(code=INVALID_PARAMS, message=f"there is no resource {params.uri}, or it is too old")
        return ReadResourceResult(contents=[kept.contents])

    async def set_level(ctx: Context, params: SetLevelRequestParams) -> EmptyResult:
        clients.of(ctx).notes.level = params.level
        return EmptyResult()

    async def roots_changed(ctx: Context, params: NotificationParams) -> None:
        clients.of(ctx).forget_roots()

    server: Server[Any] = Server(
        NAME,
        version=__version__,
        instructions=instructions,
        get_tool_input_schema=lambda name: (
            None
        ),  # no argument of ours goes into a header, for which all would be listed
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        on_list_resources=list_resources,
        on_list_resource_templates=list_templates,
        on_read_resource=read_resource,
    )
    # As arguments of the server they warn that the next protocol has them no more.
    server.add_request_handler("logging/setLevel", SetLevelRequestParams, set_level)
    server.add_notification_handler("notifications/roots/list_changed", NotificationParams, roots_changed)
    return server, server.create_initialization_options(NotificationOptions())
