"""The MCP servers of one session as a source of tools: started together, each joins when it is ready."""

import asyncio
import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from ferrule.lookup import NOWHERE, Places
from ferrule.mcp.callbacks import Ask
from ferrule.mcp.client import MCPClient, McpTool
from ferrule.mcp.errors import McpFailure
from ferrule.mcp.names import qualified_name, slash_name
from ferrule.process.launcher import Launcher
from ferrule.protocol.errors import FerruleError
from ferrule.protocol.events import ElicitationRequest, Event, McpServerStatus, WarningEvent
from ferrule.protocol.mcp_settings import McpServerSettings
from ferrule.protocol.specs import ResponsesApiTool
from ferrule.schemas.sanitize import Sanitized, sanitize
from ferrule.tools.handler import DeferredHandler, ToolHandler
from ferrule.tools.questions import Answer
from ferrule.tools.registry import ToolRegistryBuilder

if TYPE_CHECKING:
    from ferrule.tools.definition import ToolDefinition

log = logging.getLogger("ferrule.mcp")

QUIET = 0.2
"""Seconds to wait for servers before saying so: whoever starts a run sees a line within a second."""
LIST_PATIENCE = 2.0
"""Seconds that a request waits for a list that is being reread."""
LIST_PAUSE = 1.0
"""Seconds between two readings of one list: a server may report a change after each."""
MAX_SCHEMA_BYTES = 64 * 1024
"""Bytes of one tool's schema; a tool with a larger one is left out."""


class OfferedTool(msgspec.Struct, frozen=True):
    """A callable tool: the model's name for it, the schema shown to the model, and its origin."""

    name: str
    tool: McpTool
    told: Sanitized
    parallel: bool

    @property
    def spec(self) -> ResponsesApiTool:
        """The specification for the model."""
        from ferrule.mcp.tools import mcp_tool_to_openai_tool

        return mcp_tool_to_openai_tool(self.name, self.tool, self.told)

    @property
    def titles(self) -> dict[str, str]:
        """Its title for people, by name."""
        title = self.tool.annotations.title
        return {self.name: title} if title else {}


class _Server:
    """A server and its present tools."""

    def __init__(self, client: MCPClient) -> None:
        self.client = client
        self.tools: tuple[OfferedTool, ...] = ()
        self.work: asyncio.Task[None] | None = None
        self.stale = False
        self.read_at = -LIST_PAUSE
        self.started = False
        """Whether the first reading of its list has ended."""


class McpSource:
    """A `ToolSource` whose revision grows whenever a server comes, goes or changes its tools.

    Programs by a bare name never come from `places`, where commands can write.
    Properties whose names `property_names` does not match are shown to the model under others, and given back.
    """

    def __init__(
        self,
        servers: Mapping[str, McpServerSettings],
        *,
        cwd: str,
        home: str | None = None,
        env: Mapping[str, str] = os.environ,
        launcher: Launcher | None = None,
        places: Places = NOWHERE,
        property_names: re.Pattern[str] | None = None,
        emit: Callable[[Event], None] = lambda event: None,
        ask: Ask | None = None,
        propagate: bool = False,
    ) -> None:
        self.revision = 0
        self._emit = emit
        self._ask = ask
        self._property_names = property_names
        self._servers = {
            name: _Server(
                MCPClient(
                    name,
                    settings,
                    cwd=cwd,
                    home=home,
                    env=env,
                    launcher=launcher,
                    places=places,
                    ask=None if ask is None else self._asked,
                    on_tools_changed=partial(self._tools_changed, name),
                    propagate=propagate,
                )
            )
            for name, settings in sorted(servers.items())
            if settings.enabled
        }
        self.clients = {name: server.client for name, server in self._servers.items()}

    @cached_property
    def _resources(self) -> "Sequence[ToolDefinition[Any, Any]]":
        """The tools that read resources. They need pydantic, which is not loaded before the user has seen a line."""
        from ferrule.mcp.resources import resource_tools

        return resource_tools(self.clients) if self.clients else ()

    def start(self) -> None:
        """Begin to start all servers; do not wait for them."""
        for name, server in self._servers.items():
            self._emit(McpServerStatus(server=name, status="starting"))
            if another := server.client.another_program:
                self._emit(WarningEvent(message=f"MCP server {name}: {another}"))
            self._read_list(name, server)

    async def ready(self) -> None:
        """Wait for the required servers, and say so at once: nothing has been shown yet. Raises `McpFailure` if one of
        them cannot be used."""
        required = [server for server in self._servers.values() if server.client.settings.required]
        await self._started(required, quiet=0)
        for server in required:
            assert server.work is not None
            error = server.work.exception()
            if isinstance(error, McpFailure):
                raise error.as_required(server.client.settings) from error
            if error is not None:
                raise error

    async def settled(self) -> None:
        """Prepare for a request: wait for servers that start, each as long as its settings say; reread lists that have
        changed, and wait a short time for those being read."""
        for name, server in self._servers.items():
            if server.stale and server.work is not None and server.work.done():
                self._read_list(name, server)
        await self._started([server for server in self._servers.values() if not server.started])
        working = [server.work for server in self._servers.values() if server.work and not server.work.done()]
        if working:
            await asyncio.wait(working, timeout=LIST_PATIENCE)

    async def _started(self, servers: Iterable[_Server], quiet: float = QUIET) -> None:
        """Wait until these have started or failed, and say after `quiet` seconds which of them are waited for."""
        works = {server.work: server for server in servers if server.work is not None}
        if not works:
            return
        _, pending = await asyncio.wait(works, timeout=quiet)
        for client in (works[work].client for work in pending):
            text = f"waiting for the MCP server {client.name} ({_place(client.settings)})"
            limit = f"at most {client.settings.startup_timeout:g} s (startup_timeout)"
            self._emit(McpServerStatus(server=client.name, status="waiting", message=f"{text}, {limit}"))
        if pending:
            await asyncio.wait(pending)

    def register(self, builder: ToolRegistryBuilder) -> None:
        """Add the present tools; a name that is taken stays with the tool that has it."""
        for resource in self._resources:
            if not builder.has(resource.name):
                builder.push_spec_with_parallel_support(resource.spec, resource.parallel, read_only=True)
                builder.register_handler(resource.name, resource)
        for one in (tool for server in self._servers.values() for tool in server.tools):
            if builder.has(one.name):
                continue
            builder.push_deferrable(
                one.spec, one.parallel, read_only=one.tool.annotations.readOnlyHint, titles=one.titles
            )
            handler = DeferredHandler(self._loader(one))
            builder.register_handler(one.name, handler)
            builder.register_handler(slash_name(one.tool.server, one.tool.name), handler)

    async def _asked(self, question: ElicitationRequest) -> Answer:
        """Ask through the session whose call the server works on: a sub-agent is named then. The protocol does not say
        for which call a server asks; where several sessions wait for it, the question is nobody's."""
        assert self._ask is not None
        callers = {id(ctx.host): ctx for ctx in self.clients[question.server].callers}
        if len(callers) == 1:
            return await next(iter(callers.values())).ask(question)
        return await self._ask(question)

    async def aclose(self) -> None:
        """End all servers, concurrently."""
        for server in self._servers.values():
            if server.work is not None:
                server.work.cancel()
        await asyncio.gather(*(client.close() for client in self.clients.values()))
        works = [server.work for server in self._servers.values() if server.work is not None]
        if works:
            await asyncio.wait(works)
        for name in self._servers:
            self._emit(McpServerStatus(server=name, status="stopped"))

    def _loader(self, offered: OfferedTool) -> Callable[[], ToolHandler]:
        client = self.clients[offered.tool.server]

        def load() -> ToolHandler:
            from ferrule.mcp.tools import MCPToolDefinition

            return MCPToolDefinition(offered.tool, client, name=offered.name, told=offered.told, owner=False)

        return load

    def _tools_changed(self, name: str) -> None:
        """Have the list reread before the next request, once, however often it changes until then."""
        self._servers[name].stale = True

    def _read_list(self, name: str, server: _Server) -> None:
        server.work = asyncio.create_task(self._list(name, server), name=f"ferrule-mcp-list-{name}")
        server.work.add_done_callback(_report)

    async def _list(self, name: str, server: _Server) -> None:
        """Read the list of one server."""
        client = server.client
        try:
            await asyncio.sleep(server.read_at + LIST_PAUSE - time.monotonic())
            server.stale, server.read_at = False, time.monotonic()
            tools = await client.list_tools()
            server.tools = self._offered(tools, client.settings)
            self.revision += 1
        except FerruleError as error:
            server.tools = ()
            self.revision += 1
            self._tell_failure(client, error)
            raise
        finally:
            server.started = True
        self._emit(McpServerStatus(server=name, status="ready", message=f"{len(server.tools)} tools"))

    def _tell_failure(self, client: MCPClient, error: FerruleError) -> None:
        self._emit(McpServerStatus(server=client.name, status="failed", message=str(error)))
        if not client.settings.required:
            step = error.next_step(client.settings) if isinstance(error, McpFailure) else ""
            self._emit(WarningEvent(message=f"{error}; the session goes on without its tools{step and f': {step}'}"))

    def _offered(self, tools: Sequence[McpTool], settings: McpServerSettings) -> tuple[OfferedTool, ...]:
        offered = []
        for tool in tools:
            flaw = _flaw(tool)
            if flaw is not None:
                text = f"the tool {tool.name[:64]!r} of the MCP server {tool.server} is left out: {flaw}"
                self._emit(WarningEvent(message=text))
                continue
            told = sanitize(tool.schema, tool=tool.name, property_names=self._property_names)
            if told.aliases.names:
                log.warning("MCP tool %s/%s: renamed for the model: %s", tool.server, tool.name, told.aliases.names)
            name = qualified_name(tool.server, tool.name)
            offered.append(OfferedTool(name, tool, told, settings.supports_parallel_tool_calls))
        return tuple(sorted(offered, key=lambda one: one.name))


def _place(settings: McpServerSettings) -> str:
    """Name the server's program or host: arguments and addresses may hold secrets."""
    return settings.command or urlsplit(settings.url or "").hostname or ""


def _flaw(tool: McpTool) -> str | None:
    """Explain why the tool cannot be offered; None if it can."""
    try:
        size = len(tool.schema.encoded)
    except (ValueError, RecursionError):
        return "its schema is nested too deeply"
    return f"its schema has {size} bytes" if size > MAX_SCHEMA_BYTES else tool.unusable


def _report(work: "asyncio.Task[None]") -> None:
    """Log an unexpected error; a failure of the server was reported already."""
    error = None if work.cancelled() else work.exception()
    if error is not None and not isinstance(error, FerruleError):
        log.error("reading the list of an MCP server failed", exc_info=error)
