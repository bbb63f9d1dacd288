"""Remote servers for tests: a real one of the SDK, and a stub that answers what it is told."""

import json
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qs

import anyio
import uvicorn
from mcp.server import MCPServer

from tests.http_servers import HttpServer, Silent, listening

Reply = tuple[int, dict[str, str], bytes]


@asynccontextmanager
async def served(server: MCPServer, **options: Any) -> AsyncIterator[str]:
    """The SDK's server on loopback; gives its address."""
    with socket.create_server(("127.0.0.1", 0)) as place:
        async with run_app(server.streamable_http_app(**options), place):
            yield f"http://127.0.0.1:{place.getsockname()[1]}/mcp"


@asynccontextmanager
async def run_app(app: Any, place: socket.socket) -> AsyncIterator[None]:
    """An ASGI application behind a socket that listens."""
    running = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="on"))
    async with anyio.create_task_group() as group:
        group.start_soon(running.serve, [place])
        while not running.started:  # noqa: ASYNC110 - it has no event for it
            await anyio.sleep(0.01)
        yield
        running.should_exit = True
        running.force_exit = True


class Asked:
    """One request as the stub got it."""

    def __init__(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        self.method = handler.command
        self.path = handler.path
        self.headers = {name.lower(): value for name, value in handler.headers.items()}
        self.raw = body.decode()

    @property
    def json(self) -> dict[str, Any]:
        value = json.loads(self.raw)
        assert isinstance(value, dict)
        return value

    @property
    def form(self) -> dict[str, str]:
        return {name: values[0] for name, values in parse_qs(self.raw).items()}

    @property
    def session(self) -> str | None:
        return self.headers.get("mcp-session-id")


@contextmanager
def stub(answer: Callable[[Asked], Reply], *, gets: bool = False) -> Iterator[str]:
    """An HTTP server whose POSTs, and with `gets` GETs and DELETEs, `answer` answers; gives its address. There is no
    stream to listen to. A status of 0 resets the connection after the body."""

    class Handler(Silent):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            asked = Asked(self, self.rfile.read(int(self.headers.get("content-length", 0))))
            status, headers, body = answer(asked)
            self.send_response(status or 200)
            for name, value in {"content-type": "application/json", **headers}.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(body) + (not status)))
            self.end_headers()
            self.wfile.write(body)
            if not status:
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.close_connection = True

        def do_GET(self) -> None:
            if gets:
                self.do_POST()
            else:
                self.send_error(405)

        def do_DELETE(self) -> None:
            self.do_GET()

    with listening(HttpServer(Handler)) as server:
        yield f"http://127.0.0.1:{server.server_port}/mcp"


def result_of(asked: Asked, result: Any, **headers: str) -> Reply:
    """A JSON-RPC result."""
    return 200, headers, json.dumps({"jsonrpc": "2.0", "id": asked.json["id"], "result": result}).encode()


def mcp_result(asked: Asked, **headers: str) -> Reply:
    """What a small server answers: one tool that echoes."""
    message = asked.json
    if "id" not in message:
        return 202, {}, b""
    if message["method"] == "ping":
        return result_of(asked, {})
    if message["method"] == "initialize":
        info = {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "w", "version": "1"},
        }
        return result_of(asked, info, **headers)
    if message["method"] == "tools/list":
        tool = {"name": "echo", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}
        return result_of(asked, {"tools": [tool]})
    text = message["params"]["arguments"].get("text")
    return result_of(asked, {"content": [{"type": "text", "text": f"ECHO: {text}"}]})
