"""An MCP server that answers what it is told, and a gateway's engine that reaches it by a name."""

import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from ferrule.egress.guard import Guard, Resolve
from ferrule.egress.names import DomainNames
from ferrule.hosted.approvals import Approvals
from ferrule.hosted.mcp.remote import Limits, Remotes
from ferrule.hosted.mcp.tool import HostedMcp
from ferrule.protocol.specs import Wire
from ferrule.store import Store
from ferrule.testing import ScriptedModel
from tests.mcp.web import Asked, Reply, result_of, stub
from tests.responses.serving import Json, Served, served

HOST = "mcp.example.com"
URL = f"http://{HOST}/mcp"
SECRET = "sk-very-secret-token"
SERVER: Json = {"type": "mcp", "server_label": "docs", "server_url": URL, "require_approval": "never"}
ECHO: Json = {
    "name": "echo",
    "description": "Say it again",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
    "annotations": {"readOnlyHint": True},
}
DROP: Json = {"name": "drop", "inputSchema": {"type": "object", "properties": {}}}
FAST = Limits(list_s=5.0, silent_s=5.0, call_s=5.0)


class Remote:
    """A server: `tools` are what it lists, `replies` what it answers to a method instead, `asked` what it was sent."""

    def __init__(self) -> None:
        self.tools: list[Json] = [ECHO, DROP]
        self.replies: dict[str, Callable[[Asked], Reply]] = {}
        self.asked: list[Asked] = []
        self.url = ""

    @property
    def methods(self) -> list[str]:
        """The methods that it was asked for, without those of the connection."""
        named = [str(asked.json.get("method")) for asked in self.asked if asked.method == "POST" and asked.raw]
        return [method for method in named if method.startswith("tools/")]

    def answer(self, asked: Asked) -> Reply:
        self.asked.append(asked)
        if asked.method != "POST":
            return 405, {}, b""
        message = asked.json
        method = message.get("method")
        if "id" not in message:
            return 202, {}, b""
        if method in self.replies:
            return self.replies[method](asked)
        return result_of(asked, self.result(message))

    def result(self, message: Json) -> Any:
        match message["method"]:
            case "initialize":
                info = {"name": "w", "version": "1"}
                return {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": info}
            case "tools/list":
                return {"tools": self.tools}
            case "tools/call":
                text = message["params"]["arguments"].get("text")
                return {"content": [{"type": "text", "text": f"ECHO {text}"}]}
        return {}

    @property
    def hosts(self) -> dict[str, str]:
        """The table by which a gateway reaches it."""
        return {f"{HOST}:80": self.url.removeprefix("http://").removesuffix("/mcp")}


@contextmanager
def remote() -> Iterator[Remote]:
    """Run such a server."""
    found = Remote()
    with stub(found.answer, gets=True) as url:
        found.url = url
        yield found


@asynccontextmanager
async def served_mcp(
    folder: Path,
    model: ScriptedModel,
    hosts: dict[str, str],
    wire: Wire = "chat",
    *,
    limits: Limits = FAST,
    allowed: tuple[str, ...] = ("*.example.com",),
    resolve: Resolve | None = None,
) -> AsyncIterator[Served]:
    """An engine that reaches these servers."""
    store = await Store.open(folder / "gateway.db")
    remotes = Remotes(Guard(DomainNames.read(allowed), hosts=hosts, resolve=resolve), limits=limits)
    tool = HostedMcp(remotes, Approvals(store))
    async with served(folder, model, wire, hosted=(tool,), store=store) as running:
        yield running
        await running.engine.close()
        await tool.aclose()


def name_of(body: Json, tool: str) -> str:
    """The name by which a request to the model knows a tool."""
    named = [one.get("function", one)["name"] for one in body["tools"]]
    return next(str(name) for name in named if name.endswith(tool))


def items_of(body: Json, kind: str) -> list[Json]:
    """The output items of this type."""
    return [item for item in body["output"] if item["type"] == kind]


def text_in(value: object) -> str:
    """A value as JSON."""
    return json.dumps(value)
