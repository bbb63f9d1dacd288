"""The doors of a way out: an HTTP proxy, and for programs that know none, what looks like the servers themselves.

Each decides whom a connection is for and that what is said on it is for the same host; the guard decides who may be
reached, and connects.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import h11
import msgspec

from ferrule.egress.addresses import is_address
from ferrule.egress.guard import Guard, Refused, Unreachable
from ferrule.egress.hello import BadHello, Hello, read_hello
from ferrule.egress.http import client_context
from ferrule.egress.messages import BadRequest, Place, own_target, read_authority, read_request, target_of, values
from ferrule.egress.names import BadDomain, read_host
from ferrule.egress.pump import Pump
from ferrule.egress.relay import AnyStream, Client, Dial, Exchanges, Route, refuse, relay, telling
from ferrule.egress.secrets import Exchange, Secrets
from ferrule.egress.streams import SocketStream, TlsStream

if TYPE_CHECKING:
    from ferrule.egress.authority import Authority

HELLO_S = 30.0
"""For the first bytes within a tunnel, and for the keys of TLS: a program sends them at once."""
UNKNOWN_NAME = b"\x15\x03\x03\x00\x02\x02\x70"
"""The alert of TLS for a server that is not here: what a program can be told before keys are agreed on."""
TUNNEL = b"HTTP/1.1 200 Connection established\r\n\r\n"


class Ways(msgspec.Struct, frozen=True):
    """What the doors share. `names` are the hosts of this machine's addresses, as the container sees them."""

    guard: Guard
    names: Mapping[str, str]
    secrets: Secrets
    pump: Pump
    authority: "Authority | None" = None
    ca_file: str | None = None


async def serve_proxy(ways: Ways, connection: socket.socket) -> None:
    """Serve one connection to the proxy. Raises `OSError`."""
    stream = SocketStream(connection)
    async with telling(stream), _noting(ways.guard):
        client = Client(stream)
        if (head := await client.head()) is None:
            return
        _, request = read_request(head)
        if request.method != b"CONNECT":
            client.early = head + client.early
            await relay(client, target_of, lambda place: _plain(ways, place), _hiding(ways))
            return
        place = _connect_target(request)
        with await ways.guard.connect(place.host, place.port) as upstream:
            await stream.write(TUNNEL)
            stream.unread(client.early)
            await _inside(ways, stream, place, SocketStream(upstream))


@asynccontextmanager
async def _noting(guard: Guard) -> AsyncIterator[None]:
    """Tell the guard of a request for what is no name, such as an address. Raises `Refused` then."""
    try:
        yield
    except BadRequest as error:
        if error.place is None:
            raise
        raise guard.refused(error.place.host, error.place.port, str(error)) from error


def _connect_target(request: h11.Request) -> Place:
    place = read_authority(request.target, None)
    for host in values(request.headers, b"host"):
        if read_authority(host, place.port).host != place.host:
            raise BadRequest(f"The header Host names another host than the tunnel to {place.host}.")
    return place


async def serve_https(ways: Ways, connection: socket.socket) -> None:
    """Serve one connection to an address that stands for a host, for TLS. Raises `OSError`."""
    await _serve_address(ways, connection, 443)


async def serve_http(ways: Ways, connection: socket.socket) -> None:
    """Serve one connection to an address that stands for a host, without TLS. Raises `OSError`."""
    await _serve_address(ways, connection, 80)


async def _serve_address(ways: Ways, connection: socket.socket, port: int) -> None:
    address = connection.getsockname()[0]
    stream = SocketStream(connection)
    if name := ways.names.get(address):
        await _inside(ways, stream, Place(name, port))
        return
    text = f"No allowed domain has the address {address}: ask by name, or through the proxy at 127.0.0.1:3128."
    refused = ways.guard.refused(address, port, text)
    if port == 80:
        await refuse(stream, 403, str(refused))
    else:
        await stream.write(UNKNOWN_NAME)


async def _inside(ways: Ways, stream: SocketStream, place: Place, upstream: SocketStream | None = None) -> None:
    """Serve a connection for one host. `upstream` leads there already."""
    async with asyncio.timeout(HELLO_S):
        early = await stream.read()
    if early[:1] == b"\x16":
        await _inside_tls(ways, stream, place, upstream, early)
    elif early:
        async with telling(stream):
            if place.port == 443:
                text = f"What was sent to {place.host} on port 443 is not TLS."
                raise ways.guard.refused(place.host, place.port, text)
            await relay(Client(stream, early), _own_route(ways.guard, place), _once(ways, upstream), _hiding(ways))


async def _inside_tls(
    ways: Ways, stream: SocketStream, place: Place, upstream: SocketStream | None, early: bytes
) -> None:
    try:
        stream.unread(await _checked_hello(ways.guard, stream, place, early))
        if (exchange := ways.secrets.exchange(place.host)) is not None:
            await _with_secrets(ways, stream, place, upstream, exchange)
            return
        reached = upstream or SocketStream(await ways.guard.connect(place.host, place.port))
    except (Refused, Unreachable):
        await stream.write(UNKNOWN_NAME)
        return
    try:
        await ways.pump.tunnel(stream, reached)
    finally:
        reached.close()


def _own_route(guard: Guard, place: Place) -> Route:
    def route(request: h11.Request) -> tuple[Place, bytes]:
        try:
            return place, own_target(request, place)
        except BadRequest as error:
            if error.status == 403:
                guard.refused(place.host, place.port, str(error))
            raise

    return route


def _once(ways: Ways, upstream: SocketStream | None) -> Dial:
    """Return how to connect: the first time, by the connection that is open."""
    opened = [upstream] if upstream is not None else []

    async def dial(place: Place) -> AnyStream:
        return opened.pop() if opened else await _plain(ways, place)

    return dial


def _hiding(ways: Ways) -> Exchanges:
    """Return what hides values in answers without TLS: their host was told them with it."""
    return lambda place: ways.secrets.exchange(place.host, reveals=False)


async def _plain(ways: Ways, place: Place) -> AnyStream:
    return SocketStream(await ways.guard.connect(place.host, place.port))


async def _checked_hello(guard: Guard, stream: SocketStream, place: Place, early: bytes) -> bytes:
    """Read until the server's name is known, and return what was read. Raises `Refused` if it is another one."""
    try:
        async with asyncio.timeout(HELLO_S):
            while (hello := read_hello(early)) is None:
                if not (block := await stream.read()):
                    raise ConnectionError("the client ended within its hello")
                early += block
    except BadHello as error:
        raise guard.refused(place.host, place.port, f"The connection to {place.host} was refused: {error}.") from error
    if (fault := _fault(hello, place)) is not None:
        raise guard.refused(place.host, place.port, f"The connection to {place.host} was refused: {fault}.")
    return early


def _fault(hello: Hello, place: Place) -> str | None:
    if hello.hides_a_name:
        return "it hides the name of its server (ECH)"
    if hello.name is None:
        return None if is_address(place.host) else "its TLS names no server"
    try:
        name = read_host(hello.name)
    except BadDomain as error:
        return f"its TLS names no server: {error}"
    return None if name == place.host else f"its TLS is for {name}"


async def _with_secrets(
    ways: Ways, stream: SocketStream, place: Place, upstream: SocketStream | None, exchange: Exchange
) -> None:
    """End TLS here, and pass on the requests within it."""
    assert ways.authority is not None
    inner = TlsStream(stream, ways.authority.context(place.host), host=place.host, server_side=True)
    opened = [upstream] if upstream is not None else []

    async def dial(place: Place) -> AnyStream:
        connection = opened.pop() if opened else SocketStream(await ways.guard.connect(place.host, place.port))
        outer = TlsStream(connection, client_context(ways.ca_file), host=place.host)
        try:
            async with asyncio.timeout(HELLO_S):
                await outer.handshake()
        except BaseException as error:
            outer.close()
            if isinstance(error, ssl.SSLError):
                reason = getattr(error, "verify_message", None) or error.reason
                raise Unreachable(f"TLS with {place.host} failed: {reason}.") from error
            raise
        return outer

    async with asyncio.timeout(HELLO_S):
        await inner.handshake()
    async with telling(inner):
        await relay(Client(inner), _own_route(ways.guard, place), dial, lambda _: exchange)
    await inner.end()
