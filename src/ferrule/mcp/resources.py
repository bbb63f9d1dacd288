"""`list_mcp_resources`, `list_mcp_resource_templates` and `read_mcp_resource`: what servers offer to read."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field

from ferrule.mcp.client import MAX_PAGES, MCPClient
from ferrule.mcp.content import contents_of
from ferrule.mcp.errors import McpFailure
from ferrule.protocol.content import ContentPart, InputImage, InputText
from ferrule.protocol.errors import RespondToModel
from ferrule.protocol.json_text import JsonValue, encodable
from ferrule.tools.action import Action, Observation
from ferrule.tools.annotations import ToolAnnotations
from ferrule.tools.context import ToolContext
from ferrule.tools.definition import ToolDefinition
from ferrule.tools.executor import ToolExecutor

Clients = Mapping[str, MCPClient]

_READ_ONLY = ToolAnnotations(readOnlyHint=True)


class ListResources(Action):
    """The resources to list."""

    server: str | None = Field(default=None, description="Name of one MCP server. Without it: all of them.")
    cursor: str | None = Field(
        default=None, description="The nextCursor of an earlier call for the same server: lists what comes after it."
    )


class ReadResource(Action):
    """The resource to read."""

    server: str = Field(description="Name of the MCP server, as list_mcp_resources shows it.")
    uri: str = Field(description="URI of the resource, as list_mcp_resources shows it.")


class Answer(Observation):
    """An answer as JSON, and its images."""

    answer: dict[str, Any]
    images: tuple[str, ...] = ()

    @property
    def to_llm_content(self) -> str | Sequence[ContentPart]:
        """The JSON, then the images."""
        text = encodable(json.dumps(self.answer, ensure_ascii=False, separators=(",", ":")))
        if not self.images:
            return text
        return (InputText(text), *(InputImage(image_url=url) for url in self.images))


class _Lister(ToolExecutor[ListResources, Answer]):
    """Lists resources or templates: of one server page by page, or all of all servers."""

    def __init__(self, clients: Clients, method: str, field: str) -> None:
        self._clients = clients
        self._method = method
        self._field = field

    async def __call__(self, action: ListResources, ctx: ToolContext) -> Answer:
        server, cursor = (action.server or "").strip(), (action.cursor or "").strip()
        if server:
            page = await self._page(_client(self._clients, server), cursor or None)
            listed = {"server": server, self._field: _named(server, page.get(self._field))}
            following = page.get("nextCursor")
            return Answer(answer=listed | ({"nextCursor": following} if following else {}))
        if cursor:
            raise RespondToModel("cursor can only be used when a server is specified")
        names = sorted(self._clients)
        everything = await asyncio.gather(*(self._all(name) for name in names), return_exceptions=True)
        found: list[JsonValue] = []
        failed: dict[str, str] = {}
        for name, listed_or_error in zip(names, everything, strict=True):
            if isinstance(listed_or_error, McpFailure | RespondToModel):
                failed[name] = str(listed_or_error)
            elif isinstance(listed_or_error, BaseException):
                raise listed_or_error
            else:
                found += listed_or_error
        return Answer(answer={self._field: found} | ({"errors": failed} if failed else {}))

    async def _all(self, name: str) -> list[JsonValue]:
        client = self._clients[name]
        if not await client.has_resources():
            return []
        found: list[JsonValue] = []
        cursor: str | None = None
        seen: set[str] = set()
        for _ in range(MAX_PAGES):
            page = await self._page(client, cursor)
            found += _named(name, page.get(self._field))
            cursor = page.get("nextCursor")
            if not cursor or cursor in seen:
                break
            seen.add(cursor)
        return found

    async def _page(self, client: MCPClient, cursor: str | None) -> dict[str, JsonValue]:
        try:
            return await client.request(self._method, {"cursor": cursor})
        except (McpFailure, RespondToModel) as error:
            raise RespondToModel(f"{self._method} failed: {error}") from error


class _Reader(ToolExecutor[ReadResource, Answer]):
    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    async def __call__(self, action: ReadResource, ctx: ToolContext) -> Answer:
        server, uri = action.server.strip(), action.uri.strip()
        for field, value in (("server", server), ("uri", uri)):
            if not value:
                raise RespondToModel(f"{field} must be provided")
        try:
            result = await _client(self._clients, server).request("resources/read", {"uri": uri})
        except McpFailure as error:
            raise RespondToModel(f"resources/read failed: {error}") from error
        given = result.get("contents")
        contents = [entry for entry in given if isinstance(entry, dict)] if isinstance(given, list) else []
        shown, images = [], []
        for entry in contents:
            part = contents_of(entry)
            plain = {key: value for key, value in entry.items() if key != "blob"}
            if isinstance(part, InputImage):
                images.append(part.image_url or "")
            elif "text" not in plain:
                plain["text"] = part.text
            shown.append(plain)
        return Answer(answer={"server": server, "uri": uri, "contents": shown}, images=tuple(images))


def resource_tools(clients: Clients) -> tuple[ToolDefinition[Any, Any], ...]:
    """Return the three tools for the servers of one session."""
    return (
        ToolDefinition(
            name="list_mcp_resources",
            description="List the resources (files, records, pages) that MCP servers offer to read. Prefer them to a "
            "web search where one fits.",
            executor=_Lister(clients, "resources/list", "resources"),
            annotations=_READ_ONLY,
        ),
        ToolDefinition(
            name="list_mcp_resource_templates",
            description="List the resource templates of MCP servers: URIs with placeholders to fill in before reading.",
            executor=_Lister(clients, "resources/templates/list", "resourceTemplates"),
            annotations=_READ_ONLY,
        ),
        ToolDefinition(
            name="read_mcp_resource",
            description="Read one resource of an MCP server, by the server's name and the resource's URI.",
            executor=_Reader(clients),
            annotations=_READ_ONLY,
        ),
    )


def _client(clients: Clients, server: str) -> MCPClient:
    client = clients.get(server)
    if client is None:
        known = ", ".join(sorted(clients)) or "none"
        raise RespondToModel(f"unknown MCP server '{server}'; the servers are: {known}")
    return client


def _named(server: str, entries: JsonValue) -> list[JsonValue]:
    return [{"server": server, **entry} for entry in entries or () if isinstance(entry, dict)]
