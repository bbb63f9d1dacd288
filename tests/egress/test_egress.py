"""The way out of a container: a proxy, and addresses that stand for hosts."""

import asyncio
import ssl
import struct
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from ferrule.egress.egress import Egress
from ferrule.egress.guard import Guard
from ferrule.egress.hello import BadHello, read_hello
from ferrule.egress.names import DomainNames
from ferrule.protocol.errors import UsageError
from tests.egress.scene import scene


# Who is reached
async def test_plain_http_goes_through_the_proxy_and_through_addresses(folder: Path) -> None:
    async with scene(folder) as it:
        asked = "GET http://OK.example./a?b=c HTTP/1.1\r\nHost: ok.example\r\nProxy-Connection: x\r\nX-Key: 1\r\n"
        told = await it.said(f"{asked}Connection: close\r\n\r\n".encode())
        assert told.startswith("HTTP/1.1 200 OK\r\n") and "X-Seen: 1" in told
        assert it.echo.heads[-1] == b"GET /a?b=c HTTP/1.1\r\nHost: ok.example\r\nX-Key: 1\r\n\r\n"
        told = await it.said(b"GET /direct HTTP/1.0\r\n\r\n", it.inside.http)
        assert told.startswith("HTTP/1.1 200 OK\r\n")
        assert it.echo.heads[-1].startswith(b"GET /direct HTTP/1.1\r\nHost: ok.example\r\n")
        told = await it.said(
            b"GET http://ok.example:8080/ HTTP/1.1\r\nHost: ok.example:8080\r\nConnection: close\r\n\r\n"
        )
        assert told.startswith("HTTP/1.1 200 OK\r\n")
        assert it.way.take_refusals() == []


async def test_a_connection_carries_requests_one_after_the_other(folder: Path) -> None:
    async with scene(folder) as it:
        one = b"POST http://ok.example/ HTTP/1.1\r\nHost: ok.example\r\nTransfer-Encoding: chunked\r\n\r\n"
        one += b"3\r\nabc\r\n0\r\n\r\n"
        two = b"POST http://api.example/ HTTP/1.1\r\nHost: api.example\r\nContent-Length: 2\r\nExpect: 100-continue\r\n"
        two += b"\r\nde"
        end = b"GET http://ok.example/ HTTP/1.1\r\nHost: ok.example\r\nConnection: close\r\n\r\n"
        told = await it.said(one + two + end)
        assert told.count("HTTP/1.1 200 OK") == 3
        assert it.echo.bodies == [b"abc", b"de", b""]
        named = b"POST http://ok.example/ HTTP/1.1\r\nHost: ok.example\r\nConnection: content-length, close\r\n"
        assert (await it.said(named + b"Content-Length: 2\r\n\r\nfg")).startswith("HTTP/1.1 200 OK")
        assert it.echo.bodies[-1] == b"fg"


async def test_tls_goes_through_the_proxy_and_through_addresses_unopened(folder: Path) -> None:
    async with scene(folder, secrets=[]) as it:
        for host in ("ok.example", "a.wild.example"):
            assert (await it.get("x", host=host)).startswith("HTTP/1.1 200 OK")
        reader, writer = await it.to(it.inside.https)
        await writer.start_tls(it.trust, server_hostname="ok.example")
        writer.write(b"GET / HTTP/1.1\r\nHost: ok.example\r\n\r\n")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 OK")
        writer.close()


REFUSED: Sequence[tuple[str, str, str]] = (
    ("CONNECT no.example:443 HTTP/1.1\r\nHost: no.example:443", "403", "no.example is not an allowed domain"),
    ("CONNECT wild.example:443 HTTP/1.1\r\nHost: wild.example:443", "403", "wild.example is not an allowed domain"),
    ("CONNECT ok.example:22 HTTP/1.1\r\nHost: ok.example:22", "403", "Port 22 of ok.example cannot be reached"),
    ("CONNECT ok.example HTTP/1.1\r\nHost: ok.example", "400", "names no host and port"),
    ("CONNECT ok.example:0 HTTP/1.1\r\nHost: ok.example:0", "400", "names no host and port"),
    ("CONNECT 127.0.0.1:443 HTTP/1.1\r\nHost: 127.0.0.1:443", "403", "is an address"),
    ("CONNECT 2130706433:443 HTTP/1.1\r\nHost: 2130706433:443", "403", "is an address"),
    ("CONNECT [::ffff:127.0.0.1]:443 HTTP/1.1\r\nHost: [::ffff:127.0.0.1]:443", "403", "is an address"),
    ("CONNECT user@ok.example:443 HTTP/1.1\r\nHost: ok.example", "403", "has a user name"),
    ("CONNECT https://ok.example:443 HTTP/1.1\r\nHost: ok.example", "403", "is a URL"),
    ("CONNECT ok.example:443 HTTP/1.1\r\nHost: no.example:443", "400", "names another host"),
    ("CONNECT ok.example:443 HTTP/1.1\r\nHost: ok.example\r\nHost: no.example", "400", "malformed"),
    ("GET http://no.example/ HTTP/1.1\r\nHost: no.example", "403", "no.example is not an allowed domain"),
    ("GET http://ok.example/ HTTP/1.1\r\nHost: no.example", "403", "for no.example, but the connection for ok.example"),
    ("GET http://ok.example/ HTTP/1.1\r\nHost: ok.example\r\nHost: ok.example", "400", "malformed"),
    ("GET http://ok.example/ HTTP/1.1", "400", "malformed"),
    ("GET http://user:pw@ok.example/ HTTP/1.1\r\nHost: ok.example", "403", "has a user name"),
    ("GET https://ok.example/ HTTP/1.1\r\nHost: ok.example", "400", "Ask for https by CONNECT"),
    ("GET ftp://ok.example/ HTTP/1.1\r\nHost: ok.example", "400", "ask for a whole URL"),
    ("GET / HTTP/1.1\r\nHost: ok.example", "400", "ask for a whole URL"),
    ("GET http://0x7f.1/ HTTP/1.1\r\nHost: 0x7f.1", "403", "is an address"),
    ("GET http://ok.example:81/ HTTP/1.1\r\nHost: ok.example:81", "403", "Port 81"),
    ("GET http://ok.example/ HTTP/2.0\r\nHost: ok.example", "400", "HTTP"),
    ("PRI * HTTP/2.0\r\n", "400", "HTTP"),
    ("POST http://ok.example/ HTTP/1.1\r\nHost: ok.example\r\nContent-Length: 3\r\nTransfer-Encoding: chunked", "400",
     "twice"),
    ("POST http://ok.example/ HTTP/1.1\r\nHost: ok.example\r\nContent-Length: 3\r\nContent-Length: 3", "400", "twice"),
    ("POST http://ok.example/ HTTP/1.1\r\nHost: ok.example\r\nContent-Length: 3, 3", "400", "twice"),
    ("POST http://ok.example/ HTTP/1.1\r\nHost: ok.example\r\nTransfer-Encoding: gzip, chunked", "400", "malformed"),
    ("POST http://ok.example/ HTTP/1.1\r\nHost: ok.example\r\nTransfer-Encoding : chunked", "400", "malformed"),
    ("POST http://ok.example/ HTTP/1.1\r\nHost: ok.example\r\nContent-Length: +3", "400", "malformed"),
    ("GET http://ok.example/ HTTP/1.1\nHost: ok.example", "400", "CR LF"),
    ("GET http://ok.example/ HTTP/1.1\r\nHost: ok.example\nX: 1", "400", "CR LF"),
    ("GET http://ok.example/ HTTP/1.1\r\nHost: ok.example\rX: 1", "400", "CR LF"),
    ("GET http://ok.example/ HTTP/1.1\r\nHost: ok.example\r\nX: 1\r\n folded", "400", "folded"),
    ("GET http://ok.example/ HTTP/1.1\r\nHost: ok.example\r\nX: 1\0", "400", "CR LF"),
    ("GET http://ok.example/\x01 HTTP/1.1\r\nHost: ok.example", "400", "malformed"),
    ("GET http://ok.example/ HTTP/1.1\r\nHost: ok.ex\xaample", "400", "in ASCII"),
    ("GET http://ok.example/ HTTP/1.1\r\nHost: ok.example" + "\r\nX: 1" * 500, "431", "too many headers"),
    (f"CONNECT {'a.' * 300}example:443 HTTP/1.1\r\nHost: ok.example", "403", "too long for a name"),
    ("\x05\x01\x00", "400", ""),
)  # fmt: skip


async def test_the_proxy_says_what_is_wrong_and_passes_nothing_on(folder: Path) -> None:
    async with scene(folder) as it:
        for head, status, text in REFUSED:
            told = await it.said(f"{head}\r\n\r\n".encode("latin-1"))
            assert told.startswith(f"HTTP/1.1 {status} "), (head, told)
            assert text in told and told.isascii(), (head, told)
        assert it.echo.heads == []


async def test_what_is_said_within_a_connection_is_for_its_host(folder: Path) -> None:
    async with scene(folder) as it:
        for data, text in (
            (b"GET / HTTP/1.1\r\nHost: no.example\r\n\r\n", "for no.example, but the connection for ok.example"),
            (b"GET / HTTP/1.1\r\nHost: api.example\r\n\r\n", "for api.example, but the connection for ok.example"),
            (b"GET http://no.example/ HTTP/1.1\r\nHost: ok.example\r\n\r\n", "but the connection for"),
            (b"GET / HTTP/1.1\r\nHost: ok.example:81\r\n\r\n", "for port 81 of ok.example, the connection for 80"),
            (b"CONNECT ok.example:443 HTTP/1.1\r\nHost: ok.example\r\n\r\n", "whole URL"),
            (b"SSH-2.0-client\r\n\r\n", "malformed"),
        ):
            assert text in await it.said(data, it.inside.http), data
            tunnel = b"CONNECT ok.example:80 HTTP/1.1\r\nHost: ok.example\r\n\r\n"
            assert text in await it.said(tunnel + data), data
        assert "is not TLS" in await it.said(b"GET / HTTP/1.1\r\nHost: ok.example\r\n\r\n", it.inside.https)
        assert it.echo.heads == []
        assert any("for no.example" in told for told in it.way.take_refusals())


async def test_an_address_that_stands_for_no_host_leads_nowhere(folder: Path) -> None:
    async with scene(folder) as it:
        other = it.inside.http.getsockname()[1]
        msgspec.structs.force_setattr(it.way._ways, "names", {})
        told = await it.said(b"GET / HTTP/1.1\r\nHost: ok.example\r\n\r\n", it.inside.http)
        assert told.startswith("HTTP/1.1 403 ") and "No allowed domain has the address 127.64.0.1" in told, other
        assert (await it.said(b"", it.inside.https)).encode("latin-1") == b"\x15\x03\x03\x00\x02\x02\x70"


async def test_tls_for_another_server_is_refused_with_an_alert(folder: Path) -> None:
    async with scene(folder) as it:
        for host, name in (("ok.example", "no.example"), ("ok.example", "api.example"), ("api.example", "ok.example")):
            with pytest.raises(ssl.SSLError, match="UNRECOGNIZED_NAME"):
                await it.tls(host, name)
            assert it.way.take_refusals() == [f"The connection to {host} was refused: its TLS is for {name}."]
        connect = b"CONNECT ok.example:443 HTTP/1.1\r\nHost: ok.example\r\n\r\n"
        for hello, text in (
            (hello_of(None), "names no server"),
            (hello_of("ok.example", hidden=True), "hides the name of its server"),
            (hello_of("127.0.0.1"), "names no server"),
            (hello_of("ok.example\0.no.example"), "names no server"),
            (hello_of("ok.example", "no.example"), "does not name one server"),
            (hello_of("ok.example")[:-3] + b"\xff\xff\xff", "malformed"),
            (b"\x16\x03\x01\x00\x05\x02\x00\x00\x01\x00", "does not begin with a hello"),
            (b"\x16\x03\x01\xff\xff" + b"\0" * 9, "not TLS"),
        ):
            assert (await it.said(connect + hello)).encode("latin-1").endswith(b"\x15\x03\x03\x00\x02\x02\x70")
            (told,) = it.way.take_refusals()
            assert text in told
        assert it.echo.heads == []


def hello_of(*names: str | None, hidden: bool = False) -> bytes:
    """Build a hello of TLS that names these servers."""
    listed = b"".join(struct.pack("!BH", 0, len(name)) + name.encode() for name in names if name is not None)
    extensions = struct.pack("!HHH", 0, len(listed) + 2, len(listed)) + listed if listed else b""
    if hidden:
        extensions += struct.pack("!HH", 0xFE0D, 1) + b"\0"
    body = (
        b"\x03\x03"
        + b"r" * 32
        + b"\0"
        + b"\0\x02\x13\x01"
        + b"\x01\0"
        + struct.pack("!H", len(extensions))
        + extensions
    )
    message = b"\x01" + len(body).to_bytes(3) + body
    return struct.pack("!BHH", 22, 0x0301, len(message)) + message


def test_a_hello_is_read_in_any_pieces() -> None:
    whole = hello_of("ok.example")
    for cut in range(len(whole)):
        assert read_hello(whole[:cut]) is None
    found = read_hello(whole + b"more")
    assert found is not None and (found.name, found.hides_a_name) == ("ok.example", False)
    message = whole[5:]
    few, many = (
        b"".join(
            struct.pack("!BHH", 22, 0x0301, len(message[at : at + size])) + message[at : at + size]
            for at in range(0, len(message), size)
        )
        for size in (len(message) // 10, 1)
    )
    assert read_hello(few) == found
    with pytest.raises(BadHello, match="too many pieces"):  # each would be looked at again with every further one
        read_hello(many)
    with pytest.raises(BadHello):
        read_hello(b"GET / HTTP/1.1\r\n")


async def test_heads_are_bounded_and_a_connection_too_many_waits(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ferrule.egress.egress.MAX_CONNECTIONS", 1)
    async with scene(folder) as it:
        assert (await it.said(b"GET http://ok.example/ HTTP/1.1\r\nX: " + b"x" * 70_000)).startswith("HTTP/1.1 431 ")
        asked = b"GET http://ok.example/ HTTP/1.1\r\nHost: ok.example\r\nConnection: close\r\n\r\n"
        first, writer = await it.to(it.inside.proxy, asked[:9])
        second, other = await it.to(it.inside.proxy, asked)
        waiting = asyncio.create_task(second.read())
        writer.write(asked[9:])
        assert (await first.read()).startswith(b"HTTP/1.1 200 OK")
        assert (await waiting).startswith(b"HTTP/1.1 200 OK")
        writer.close()
        other.close()


async def test_a_silent_connection_makes_place_for_another(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ferrule.egress.egress.MAX_CONNECTIONS", 2)
    monkeypatch.setattr("ferrule.egress.egress.SILENT_S", 0.05)
    monkeypatch.setattr("ferrule.egress.egress.LOOK_S", 0.02)
    async with scene(folder) as it:
        held = [await it.to(it.inside.proxy, b"GET http") for _ in range(2)]
        asked = b"GET http://ok.example/ HTTP/1.1\r\nHost: ok.example\r\nConnection: close\r\n\r\n"
        async with asyncio.timeout(10):
            assert (await it.said(asked)).startswith("HTTP/1.1 200 OK")
            assert await held[0][0].read() == b"", "the one that was silent longest"
        for _, writer in held:
            writer.close()


async def test_a_body_in_small_chunks_leaves_others_their_turn(folder: Path) -> None:
    async def count() -> None:
        while True:
            turns.append(None)
            await asyncio.sleep(0)

    turns: list[None] = []
    chunks = 1000
    async with scene(folder) as it:
        asked = (
            b"POST http://ok.example/ HTTP/1.1\r\nHost: ok.example\r\nConnection: close\r\nTransfer-Encoding: chunked"
        )
        counting = asyncio.create_task(count())
        told = await it.said(asked + b"\r\n\r\n" + b"1\r\nx\r\n" * chunks + b"0\r\n\r\n")
        counting.cancel()
        assert told.endswith("x" * chunks) and len(turns) > chunks


async def test_a_client_that_says_nothing_is_let_go(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("relay.HEAD_S", "relay.KEEP_S", "doors.HELLO_S"):
        monkeypatch.setattr(f"ferrule.egress.{name}", 0.05)
    async with scene(folder) as it:
        for data in (
            b"",
            b"GET http:",
            b"CONNECT ok.example:443 HTTP/1.1\r\nHost: ok.example\r\n\r\n",
            hello_of("api.example"),
        ):
            await it.said(data)
        assert await it.said(b"", it.inside.https) == ""
        assert await it.said(hello_of("ok.example")[:9], it.inside.https) == ""


async def test_a_body_that_is_malformed_is_told_as_the_clients(folder: Path) -> None:
    async with scene(folder) as it:
        asked = b"POST http://ok.example/ HTTP/1.1\r\nHost: ok.example\r\nTransfer-Encoding: chunked\r\n\r\n+1\r\nx\r\n"
        told = await it.said(asked)
        assert told.startswith("HTTP/1.1 400 ") and "The body of the request is malformed." in told


async def test_a_server_that_fails_is_told(folder: Path) -> None:
    async with scene(folder) as it:
        for path, text in (("broken", "gave an answer that is not HTTP"), ("none", "closed the connection")):
            asked = f"GET http://ok.example/{path} HTTP/1.1\r\nHost: ok.example\r\n\r\n"
            told = await it.said(asked.encode())
            assert told.startswith("HTTP/1.1 502 ") and f"ok.example {text}" in told


# What programs find
async def test_what_a_container_is_shown(folder: Path) -> None:
    async with scene(folder) as it:
        shown, variables = dict(it.way.files), it.way.environment
        assert shown["/etc/hosts"].decode().splitlines()[2:] == ["127.64.0.1 ok.example", "127.64.0.2 api.example"]
        assert variables["HTTPS_PROXY"] == variables["http_proxy"] == "http://127.0.0.1:3128"
        assert variables["SSL_CERT_FILE"] == "/etc/ssl/certs/ca-certificates.crt"
        assert variables["API_KEY"] == it.placeholder
    plain = Egress(Guard(DomainNames.read(["*.wild.example"])))
    assert [path for path, _ in plain.files] == ["/etc/hosts"] and "SSL_CERT_FILE" not in plain.environment


def test_a_file_of_roots_that_is_missing_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"ca_file: .* cannot be read"):
        Egress(Guard(None), ca_file=str(tmp_path / "none.pem"))


async def test_closing_ends_what_runs(folder: Path) -> None:
    async with scene(folder) as it:
        reader, writer = await it.tls("ok.example")
        await it.way.aclose()
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        writer.close()
