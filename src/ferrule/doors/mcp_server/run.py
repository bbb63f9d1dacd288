"""Run the server: from the settings to clients that are served, and back."""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial

from ferrule.builtin.table import BUILTINS
from ferrule.doors.mcp_server.clients import Client
from ferrule.doors.mcp_server.offer import Opener, ToolsOffer
from ferrule.doors.mcp_server.server import Clients, server_of
from ferrule.doors.mcp_server.stdio import serve_lines
from ferrule.model.profiles import load_profiles, profile_files
from ferrule.protocol.settings import Settings
from ferrule.serving import Bind
from ferrule.stdio import standard_streams
from ferrule.tools.catalogue import matching_names, registered_tools, unknown_tool

PLACE = "They work in {cwd}, confined by the sandbox {mode}."
TOOLS = f"""\
Tools for commands and files. {PLACE} Shells and processes last as long as this connection. What a tool left behind, \
images and outputs that were cut, can be read as a resource."""
AGENT = f"Agents that do whole tasks of programming. {PLACE} Each answer names its thread, by which the task goes on."


def tools_opener(tools: Sequence[str] | None) -> Opener:
    """Return what opens the tools of a profile, or those of these names. Raises `UsageError` for one that is not
    there."""
    for name in tools or ():
        if not matching_names(name, BUILTINS) and not matching_names(name, registered_tools()):
            raise unknown_tool(name, [*BUILTINS, *registered_tools()])
    return partial(ToolsOffer.open, tools=tools)


def check_profile(settings: Settings) -> None:
    """Raise `UsageError` if there is no profile of the name: before a client is there, to whom nobody listens."""
    if settings.profile is not None:
        load_profiles(profile_files(settings.home)).tool_set(settings.profile)


def agent_opener() -> Opener:
    """Return what opens the agent's tools."""
    from ferrule.doors.mcp_server.agent import AgentOffer

    return AgentOffer.open


def instructions(settings: Settings, *, agent: bool) -> str:
    """Return what a client's model is told of the server."""
    mode = str(settings.sandbox_policy.__struct_config__.tag)
    return (AGENT if agent else TOOLS).format(cwd=settings.cwd, mode=mode)


async def serve_pipes(settings: Settings, opener: Opener, about: str) -> None:
    """Serve one client over standard input and output, until it closes them; then end what it left running."""
    clients = Clients(Client(settings, opener), lambda: Client(settings, opener))
    server, options = server_of(clients, about)
    with standard_streams() as (source, sink):
        try:
            await serve_lines(server, options, source, sink)
        finally:
            await clients.aclose()


async def serve_network(
    settings: Settings,
    opener: Opener,
    about: str,
    bind: Bind,
    token: str,
    ready: Callable[[str], None],
    stop: asyncio.Event,
) -> None:
    """Serve clients over HTTP until `stop` is set; then end what they left running. Raises `UsageError`."""
    from ferrule.doors.mcp_server.http import serve_http

    clients = Clients(Client(settings, opener, has_roots=False), lambda: Client(settings, opener))
    server, _ = server_of(clients, about)
    try:
        await serve_http(server, bind, token, ready, stop, clients)
    finally:
        await clients.aclose()
