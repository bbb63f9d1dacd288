"""A way out on loopback, a server beyond it, and clients that write what they like."""

import asyncio
import gzip
import socket
import ssl
import threading
import zlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import msgspec

from ferrule.egress.authority import Authority
from ferrule.egress.egress import Egress
from ferrule.egress.guard import Guard
from ferrule.egress.names import DomainNames
from ferrule.egress.secrets import Secret

VALUE = "sk-live-0123456789abcdef"
NAMES = ("ok.example", "api.example", "*.wild.example")
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Echo:
    """A server that answers with the head of each request, in a way that its path names."""

    def __init__(self) -> None:
        self.heads: list[bytes] = []
        self.bodies: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                self.heads.append(head)
                self.bodies.append(await _body(reader, head))
                await self._answer(head, reader, writer)
                if b"connection: close" in head.lower():
                    break
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            pass
        finally:
            writer.close()

    async def _answer(self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        kind = head.split(b" ")[1].rpartition(b"/")[2].decode()
        body = head if head.startswith(b"GET") else self.bodies[-1]
        headers, parts = ["X-Server: echo", f"X-Seen: {_value_of(head, b'x-key')}"], [body]
        match kind:
            case "split":
                parts = [body[at : at + 7] for at in range(0, len(body), 7)]
            case "gzip":
                headers, parts = (
                    [*headers, "Content-Encoding: gzip"],
                    [gzip.compress(body[:9]) + gzip.compress(body[9:])],
                )
            case "deflate":
                headers, parts = [*headers, "Content-Encoding: deflate"], [zlib.compress(body)]
            case "br":
                headers, parts = [*headers, "Content-Encoding: br"], [b"\x0b\x02\x80hello\x03"]
            case "bomb":
                headers, parts = [*headers, "Content-Encoding: gzip"], [gzip.compress(b"\0" * (8 << 20))]
            case "websocket" | "frames":
                writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
                while block := await reader.read(4096):
                    writer.write(b"<" + block + b">" if kind == "websocket" else bytes([0x81, len(block)]) + block)
                return
            case "broken":
                writer.write(b"nonsense\r\n\r\n")
                return
            case "named":
                headers = [*headers, f"X-{_value_of(head, b'x-key')}: 1"]
            case "none":
                writer.close()
                return
        if kind in ("split", "chunked"):
            writer.write(_head([*headers, "Transfer-Encoding: chunked"]))
            for part in parts:
                writer.write(b"%x\r\n%s\r\n" % (len(part), part))
                await writer.drain()
                await asyncio.sleep(0)
            writer.write(b"0\r\n\r\n")
        else:
            writer.write(_head([*headers, f"Content-Length: {sum(map(len, parts))}"]) + b"".join(parts))
        await writer.drain()


def _head(headers: Sequence[str]) -> bytes:
    return "\r\n".join(["HTTP/1.1 200 OK", *headers, "", ""]).encode()


def _value_of(head: bytes, name: bytes) -> str:
    return next((line[len(name) + 2 :].decode() for line in head.split(b"\r\n") if line.lower().startswith(name)), "")


async def _body(reader: asyncio.StreamReader, head: bytes) -> bytes:
    if length := _value_of(head, b"content-length"):
        return await reader.readexactly(int(length))
    body = b""
    if _value_of(head, b"transfer-encoding"):
        while size := int(await reader.readline(), 16):
            body += await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
    return body


@contextmanager
def servers(folder: Path) -> Iterator["Beyond"]:
    """Serve in a thread, with and without TLS, under any name."""
    loop, echo = asyncio.new_event_loop(), Echo()

    async def start() -> Sequence[asyncio.Server]:
        context = _any_host(AUTHORITY.context)
        return [await asyncio.start_server(echo.serve, "127.0.0.1", 0, ssl=tls) for tls in (None, context)]

    async def stop(started: Sequence[asyncio.Server]) -> None:
        for server in started:
            server.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    ca_file = folder / "beyond.pem"
    ca_file.write_bytes(AUTHORITY.pem)
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    started = asyncio.run_coroutine_threadsafe(start(), loop).result()
    plain, secure = ("127.0.0.1:{1}".format(*server.sockets[0].getsockname()) for server in started)
    try:
        yield Beyond(echo, str(ca_file), plain, secure)
    finally:
        asyncio.run_coroutine_threadsafe(stop(started), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


class Beyond(msgspec.Struct, frozen=True):
    """Servers that are reached by the way out, and their authority's certificate."""

    echo: Echo
    ca_file: str
    plain: str
    secure: str


class Inside(msgspec.Struct, frozen=True):
    """The sockets that a container's programs reach."""

    proxy: socket.socket
    https: socket.socket
    http: socket.socket

    def close(self) -> None:
        for one in (self.proxy, self.https, self.http):
            one.close()


class Scene(msgspec.Struct, frozen=True):
    way: Egress
    inside: Inside
    echo: Echo
    trust: ssl.SSLContext

    @property
    def placeholder(self) -> str:
        return self.way.environment["API_KEY"]

    async def to(self, listening: socket.socket, data: bytes = b"") -> Streams:
        reader, writer = await asyncio.open_connection(*listening.getsockname())
        writer.write(data)
        return reader, writer

    async def said(self, data: bytes, listening: socket.socket | None = None) -> str:
        """Return all that is answered to what is written, up to the end of the connection."""
        reader, writer = await self.to(listening or self.inside.proxy, data)
        told = (await reader.read()).decode("latin-1")
        writer.close()
        return told

    async def tls(self, host: str = "api.example", name: str | None = None) -> Streams:
        """Return a connection to a host, through the proxy, within TLS."""
        reader, writer = await self.to(
            self.inside.proxy, f"CONNECT {host}:443 HTTP/1.1\r\nHost: {host}:443\r\n\r\n".encode()
        )
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 ")
        await writer.start_tls(self.trust, server_hostname=name or host)
        return reader, writer

    async def get(self, path: str, *headers: str, host: str = "api.example") -> str:
        """Return the answer of a host, through the proxy, within TLS."""
        reader, writer = await self.tls(host)
        lines = [f"GET /{path} HTTP/1.1", f"Host: {host}", *headers, "Connection: close", "", ""]
        writer.write("\r\n".join(lines).encode())
        told = (await reader.read()).decode("latin-1")
        writer.close()
        return told


@asynccontextmanager
async def scene(
    folder: Path, secrets: Sequence[Secret] | None = None, guard: Guard | None = None
) -> AsyncIterator[Scene]:
    """Open a way out to a server with and without TLS, under all names, or whom the guard lets be reached."""
    beyond, echo = AUTHORITY, Echo()
    ca_file = folder / "ca.pem"
    if not ca_file.exists():
        ca_file.write_bytes(beyond.pem)
    own = [Secret("api.example", "API_KEY", VALUE)] if secrets is None else secrets
    async with (
        await asyncio.start_server(echo.serve, "127.0.0.1", 0) as plain,
        await asyncio.start_server(echo.serve, "127.0.0.1", 0, ssl=_any_host(beyond.context)) as secure,
    ):
        at = ["127.0.0.1:{1}".format(*server.sockets[0].getsockname()) for server in (plain, secure)]
        names = ("ok.example", "api.example", "a.wild.example", "no.example")
        hosts = {f"{name}:{port}": address for name in names for port, address in zip((80, 443), at, strict=True)}
        hosts |= {"ok.example:8080": at[0], "ok.example:8443": at[1]}
        guard = guard or Guard(DomainNames.read(NAMES), hosts=hosts)
        inside = Inside(*(socket.create_server(place) for place in (("127.0.0.1", 0), *[("127.64.0.1", 0)] * 2)))
        async with Egress(guard, own, ca_file=str(ca_file)) as way:
            way.serve(inside)
            bundle = dict(way.files)["/etc/ssl/certs/ca-certificates.crt"].decode()
            trust = ssl.create_default_context(cadata=beyond.pem.decode() + bundle[bundle.rindex("-----BEGIN") :])
            try:
                yield Scene(way, inside, echo, trust)
            finally:
                way.stop(inside)


AUTHORITY = Authority()


def _any_host(context: Callable[[str], ssl.SSLContext]) -> ssl.SSLContext:
    def choose(connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
        connection.context = context(name or "none.example")

    first = context("none.example")
    first.sni_callback = choose
    return first
