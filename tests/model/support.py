"""Streams as bytes, replayed through a real model object in any chunking; and a raw server for real sockets."""

import asyncio
import itertools
import json
import subprocess
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TypeVar

from ferrule.model.chat.client import ChatModel
from ferrule.model.http import Endpoint, Server
from ferrule.model.messages.client import MessagesModel
from ferrule.model.profiles import ProviderProfile, load_profiles
from ferrule.model.responses.client import ResponsesModel
from ferrule.model.sse import SseDecoder
from ferrule.model.stream import ItemDone, ModelError, ModelRequest, ResponseEvent
from ferrule.model.wire import WireModel
from ferrule.protocol.content import text_of
from ferrule.protocol.items import ItemView, Message, ResponseItem, make_item
from ferrule.protocol.json_schema import JsonSchema
from ferrule.protocol.specs import FreeformTool, FreeformToolFormat, ResponsesApiTool, ToolSpec, Wire

T = TypeVar("T")
CAPTURES = Path(__file__).parent / "captures"


KINDS: dict[Wire, Callable[..., WireModel]] = {
    "responses": ResponsesModel, "chat": ChatModel, "messages": MessagesModel,
}  # fmt: skip


def capture(name: str) -> bytes:
    return (CAPTURES / f"{name}.sse").read_bytes()


def sse(*payloads: object) -> bytes:
    """A stream of JSON payloads; a string goes out as it stands."""
    texts = [payload if isinstance(payload, str) else json.dumps(payload) for payload in payloads]
    return "".join(f"data: {text}\n\n" for text in texts).encode()


def function(name: str, *, strict: bool = False) -> ResponsesApiTool:
    schema = JsonSchema({"type": "object", "properties": {}, "required": [], "additionalProperties": False})
    return ResponsesApiTool(name=name, description=f"{name} does it", parameters=schema, strict=strict)


def freeform(name: str) -> FreeformTool:
    return FreeformTool(name=name, description="text", format=FreeformToolFormat("grammar", "lark", "start: /.+/"))


TOOLS: tuple[ToolSpec, ...] = (
    *map(function, ("exec_command", "shell", "read_file", "get_weather", "write_file")), freeform("apply_patch"),
)  # fmt: skip


def user(text: str) -> ResponseItem:
    return make_item(Message(role="user", content=text))


def request(*items: ResponseItem, tools: tuple[ToolSpec, ...] = TOOLS, **fields: object) -> ModelRequest:
    values: dict[str, object] = {"model": "gpt-5.5", "instructions": "Be brief."} | fields
    return ModelRequest(items=items or (user("hi"),), tools=tools, **values)  # type: ignore[arg-type]


class Replay(Server):
    """A server whose answers are chunks of bytes that stand ready."""

    def __init__(self, chunks: Sequence[bytes]) -> None:
        super().__init__(Endpoint(name="Test", base_url="http://test", params={}, headers=dict, idle_timeout_ms=1000))
        self._chunks = chunks

    async def events(
        self, path: str, body: bytes, on_sent: Callable[[], None] | None = None, more: Mapping[str, str] = {}
    ) -> AsyncGenerator[list[bytes], None]:
        decoder = SseDecoder()
        for chunk in self._chunks:
            if payloads := decoder.feed(chunk):
                yield payloads
        if payloads := decoder.flush():
            yield payloads


def wire_model(wire: Wire, server: Server, accepts: ProviderProfile | str | None = None, retries: int = 0) -> WireModel:
    profiles = load_profiles()
    usual = "generic" if wire == "chat" else wire
    accepted = accepts if isinstance(accepts, ProviderProfile) else profiles.providers[accepts or usual]
    numbers = itertools.count(1)
    return KINDS[wire](server, accepted, profiles, max_retries=retries, new_id=lambda: f"new{next(numbers)}")


class Outcome:
    """Everything that a stream led to."""

    def __init__(self) -> None:
        self.events: list[ResponseEvent] = []
        self.error: ModelError | None = None

    @property
    def items(self) -> list[ResponseItem]:
        return [event.item for event in self.events if isinstance(event, ItemDone)]

    @property
    def views(self) -> list[ItemView]:
        return [item.view for item in self.items]

    def of(self, kind: type[T]) -> list[T]:
        return [event for event in self.events if isinstance(event, kind)]

    def facts(self) -> tuple[object, ...]:
        partial = self.error.partial if self.error else None
        return (self.events, type(self.error), str(self.error), partial)


def words(found: Outcome) -> list[str]:
    """The texts of its messages."""
    return [text_of(view.content) for view in found.views if isinstance(view, Message)]


async def outcome(model: WireModel, asked: ModelRequest, *, keep: bool = False) -> Outcome:
    """Ask once; `keep` leaves the connections open."""
    found = Outcome()
    try:
        async for event in model.stream(asked):
            found.events.append(event)
    except ModelError as error:
        found.error = error
    finally:
        if not keep:
            await model.aclose()
    return found


async def replay(wire: Wire, data: bytes | Sequence[bytes], asked: ModelRequest | None = None) -> Outcome:
    chunks = [data] if isinstance(data, bytes) else data
    return await outcome(wire_model(wire, Replay(chunks)), asked or request())


HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"


class RawServer:
    """Answers the n-th request with the n-th script: bytes to write, seconds to wait, None to reset.

    A connection is kept where the answer does not say `connection: close`. `closed` is set once a client hung up
    during a wait.
    """

    def __init__(self, scripts: Iterable[Sequence[bytes | float | None]]) -> None:
        self._scripts = iter(scripts)
        self.requests: list[tuple[str, bytes]] = []
        self.connections = 0
        self.asked = asyncio.Event()
        self.closed = asyncio.Event()
        self.base_url = ""
        self.handlers: list[asyncio.Task[object] | None] = []

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.handlers.append(asyncio.current_task())
        try:
            while await self._answer(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next((int(line[15:]) for line in head.lower().splitlines() if line.startswith("content-length")), 0)
        self.requests.append((head, await reader.readexactly(length)))
        self.asked.set()
        script = next(self._scripts, ())
        for step in script:
            if step is None:
                writer.transport.abort()
                return False
            if isinstance(step, bytes):
                writer.write(step)
                await writer.drain()
            elif await self._gone(reader, step):
                return False
        return bool(script) and not any(isinstance(step, bytes) and b"connection: close" in step for step in script)

    async def _gone(self, reader: asyncio.StreamReader, seconds: float) -> bool:
        """Wait, but not longer than the client is there."""
        try:
            await asyncio.wait_for(reader.read(), seconds)
        except TimeoutError:
            return False
        self.closed.set()
        return True


@asynccontextmanager
async def raw_server(*scripts: Sequence[bytes | float | None]) -> AsyncGenerator[RawServer, None]:
    served = RawServer(scripts)
    server = await asyncio.start_server(served._serve, "127.0.0.1", 0)
    served.base_url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    async with server:
        try:
            yield served
        finally:
            running = [handler for handler in served.handlers if handler is not None]
            for handler in running:
                handler.cancel()
            await asyncio.gather(*running, return_exceptions=True)


def reply(status: str, body: bytes = b"", headers: str = "", kind: str = "application/json") -> bytes:
    """A whole HTTP answer."""
    lines = (
        f"HTTP/1.1 {status}",
        f"content-type: {kind}",
        f"content-length: {len(body)}",
        "connection: close",
        headers,
    )
    return "\r\n".join(line for line in lines if line).encode() + b"\r\n\r\n" + body


def certified(folder: Path, host: str) -> tuple[Path, Path]:
    """A certificate for a host, and its key."""
    key, certificate = folder / "key.pem", folder / "cert.pem"
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    made += ["-keyout", str(key), "-out", str(certificate), "-days", "2", "-subj", f"/CN={host}"]
    subprocess.run([*made, "-addext", f"subjectAltName=DNS:{host}"], check=True, capture_output=True)
    return certificate, key
