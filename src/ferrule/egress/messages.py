"""Heads of HTTP/1.1 requests and answers, read strictly: what two servers could read in two ways is refused."""

import re
from collections.abc import Iterable, Sequence

import h11
import msgspec

from ferrule.egress.addresses import read_address
from ferrule.egress.names import BadDomain, read_host
from ferrule.protocol.errors import FerruleError

MAX_HEAD = 1 << 16
"""Bytes of a head: several times what servers take."""
MAX_LINES = 1 << 14
"""Bytes of what stands between the parts of a body, and after it."""
MAX_HEADERS = 500
"""Of one head: several times what servers take. Reading ten times as many takes a tenth of a second."""
END = b"\r\n\r\n"
HOP_BY_HOP = frozenset(
    {
        b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection", b"te",
        b"trailer", b"transfer-encoding", b"upgrade", b"expect",
    }
)  # fmt: skip
"""Headers about one connection, which are not passed on."""
_BAD_LINE = re.compile(rb"(?<!\r)\n|\r(?!\n|$)|\0")
_TARGET = re.compile(rb"(https?)://([^/?#]*)([/?].*)?", re.IGNORECASE)
_PORTS = {b"http": 80, b"https": 443}


class BadRequest(FerruleError):
    """A request that is not passed on: one sentence. `place` is what it asks for, if that is why."""

    def __init__(self, message: str, status: int = 400, place: "Place | None" = None) -> None:
        super().__init__(message)
        self.status = status
        self.place = place


class Place(msgspec.Struct, frozen=True):
    """A host and a port."""

    host: str
    port: int


def read_request(head: bytes) -> tuple[h11.Connection, h11.Request]:
    """Read the head of a request, with its empty line. The connection reads the body. Raises `BadRequest`."""
    check_lines(head)
    if head.count(b"\n") > MAX_HEADERS:
        raise BadRequest("The request has too many headers.", 431)
    if re.search(rb"\n[ \t]", head):
        raise BadRequest("A header is folded over two lines.")
    connection = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_LINES)
    connection.receive_data(head)
    try:
        request = connection.next_event()
    except h11.RemoteProtocolError as error:
        raise BadRequest(f"The request is malformed: {error}.") from error
    assert isinstance(request, h11.Request)
    if request.http_version not in (b"1.0", b"1.1"):
        raise BadRequest("Only HTTP/1.0 and HTTP/1.1 are spoken here.")
    # Not of `request.headers`: equal lengths are one there.
    lengths = re.findall(rb"\n(?:content-length|transfer-encoding):([^\r]*)", head.lower())
    if len(lengths) > 1 or any(b"," in value for value in lengths):
        raise BadRequest("The length of the body is said twice.")
    return connection, request


def check_lines(head: bytes, start: int = 0) -> None:
    """Check what is there of a head; up to `start` it was checked before. Raises `BadRequest`."""
    if _BAD_LINE.search(head, max(start - 1, 0)):
        raise BadRequest("Lines of a request end with CR LF.")


def values(headers: Iterable[tuple[bytes, bytes]], wanted: bytes) -> list[bytes]:
    """Return all values of a header, whose name is in lower case."""
    return [value for name, value in headers if name.lower() == wanted]


def read_authority(text: bytes, port: int | None) -> Place:
    """Read `host:port`; without a port it is `port`, where that is given. The host may be an address, which a guard
    judges as it does names. Raises `BadRequest`."""
    if not text.isascii():  # what is no ASCII here is read in as many ways as there are servers
        raise BadRequest("A host is named in ASCII, an international one as xn--...")
    found = re.fullmatch(r"(.*?)(?::([0-9]{1,5}))?", text.decode("ascii"))
    number = port if found is None or found[2] is None else int(found[2])
    if found is None or number is None or not 0 < number < 1 << 16:
        raise BadRequest("The request names no host and port.")
    if (address := read_address(found[1])) is not None:
        return Place(address, number)
    try:
        return Place(read_host(found[1]), number)
    except BadDomain as error:
        raise BadRequest(f"{error}.", 403, Place(found[1], number)) from error


def target_of(request: h11.Request) -> tuple[Place, bytes]:
    """Return the host of a proxied request, and the path to ask it for. Raises `BadRequest`."""
    if not (parts := _TARGET.fullmatch(request.target)):
        raise BadRequest("This is a proxy: ask for a whole URL, as http://HOST/PATH.")
    scheme, authority, path = parts[1].lower(), parts[2], parts[3] or b"/"
    if scheme == b"https":
        raise BadRequest("Ask for https by CONNECT.")
    place = read_authority(authority, _PORTS[scheme])
    check_host(request, place)
    return place, path if path[:1] == b"/" else b"/" + path


def own_target(request: h11.Request, place: Place) -> bytes:
    """Return the path that a request asks its server for. Raises `BadRequest` if it is for another host."""
    check_host(request, place)
    if request.target[:1] == b"/" or (request.target == b"*" and request.method == b"OPTIONS"):
        return request.target
    asked, path = target_of(request)
    _check_same(asked, place)
    return path


def check_host(request: h11.Request, place: Place) -> None:
    """Check that a request asks for this host. Raises `BadRequest`."""
    hosts = values(request.headers, b"host")
    if not hosts and request.http_version == b"1.0":
        return
    _check_same(read_authority(hosts[0], place.port), place)


def _check_same(asked: Place, place: Place) -> None:
    if asked.host != place.host:
        raise BadRequest(f"The request is for {asked.host}, but the connection for {place.host}.", 403)
    if asked != place:
        raise BadRequest(f"The request is for port {asked.port} of {asked.host}, the connection for {place.port}.", 403)


def passed_on(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the headers that are not about this connection alone. A length is about the message, whoever names it."""
    headers = list(headers)
    named = {name.strip().lower() for value in values(headers, b"connection") for name in value.split(b",")}
    left_out = HOP_BY_HOP | named - {b"content-length"}
    return [(name, value) for name, value in headers if name.lower() not in left_out]


def asks_for_websocket(request: h11.Request) -> bool:
    """Return whether a request would go on as a WebSocket."""
    upgrades = [value.strip().lower() for value in values(request.headers, b"upgrade")]
    return request.method == b"GET" and upgrades == [b"websocket"]


def answer(status: int, text: str, headers: Sequence[tuple[str, str]] = ()) -> bytes:
    """Return a whole answer of ours with a sentence."""
    body = f"{text}\n".encode()
    lines = [
        f"HTTP/1.1 {status} {_REASONS[status]}",
        "Content-Type: text/plain; charset=utf-8",
        f"Content-Length: {len(body)}",
        "Connection: close",
        *(f"{name}: {value}" for name, value in headers),
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


_REASONS = {
    400: "Bad Request",
    403: "Forbidden",
    408: "Request Timeout",
    431: "Request Header Fields Too Large",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
}
