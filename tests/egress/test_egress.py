"""The way out of a container: a proxy, addresses that stand for hosts, and secrets."""

import asyncio
import base64
import json
import logging
import re
import ssl
import struct
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from ferrule.egress.egress import Egress
from ferrule.egress.frames import Frames
from ferrule.egress.guard import Guard
from ferrule.egress.hello import BadHello, read_hello
from ferrule.egress.names import DomainNames
from ferrule.egress.secrets import BadSecret, Concealer, Secret, Secrets
from ferrule.egress.streams import SocketStream
from ferrule.protocol.errors import UsageError
from tests.egress.scene import VALUE, scene


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("egress")


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


# Secrets


async def test_the_value_goes_only_into_headers_to_its_domain(folder: Path) -> None:
    async with scene(folder) as it:
        mark = it.placeholder
        assert len(mark) == len(VALUE) and mark != VALUE and mark.isalnum()
        basic = base64.b64encode(f"user:{mark}".encode()).decode()
        told = await it.get(
            f"{mark}/x", f"X-Key: {mark}", f"Authorization: bAsIc {basic}", f"Cookie: a={mark}; b={mark}"
        )
        head = it.echo.heads[-1].decode()
        wanted = base64.b64encode(f"user:{VALUE}".encode()).decode()
        assert f"X-Key: {VALUE}\r\n" in head and f"bAsIc {wanted}\r\n" in head and f"a={VALUE}; b={VALUE}" in head
        assert head.startswith(f"GET /{mark}/x ")
        assert VALUE not in told and wanted not in told and f"X-Key: {mark}" in told and basic in told
        reader, writer = await it.tls()
        body = f"key={mark}".encode()
        writer.write(
            b"POST / HTTP/1.1\r\nHost: api.example\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body)
            + body
        )
        await reader.read()
        writer.close()
        assert it.echo.bodies[-1] == body


async def test_the_placeholder_stays_one_elsewhere(folder: Path) -> None:
    async with scene(folder) as it:
        line = f"X-Key: {it.placeholder}"
        assert line in await it.get("", line, host="ok.example")
        for host in ("ok.example", "api.example"):
            asked = f"GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n{line}\r\nConnection: close\r\n\r\n"
            assert line in await it.said(asked.encode())
        assert VALUE.encode() not in b"".join(it.echo.heads)


@pytest.mark.parametrize("kind", ["", "split", "chunked", "gzip", "deflate", "named"])
async def test_a_reflected_value_comes_back_as_placeholder(folder: Path, kind: str) -> None:
    async with scene(folder) as it:
        told = await it.get(kind, f"X-Key: {it.placeholder}", "Accept-Encoding: gzip, br", "Range: bytes=0-9")
        head = it.echo.heads[-1].decode()
        assert f"X-Key: {VALUE}" in head and "Accept-Encoding: identity" in head and "Range" not in head
        assert VALUE not in told and f"X-Seen: {it.placeholder}" in told
        plain = re.sub(r"\r\n[0-9a-f]+\r\n", "", told.partition("\r\n\r\n")[2])
        assert it.placeholder in plain


async def test_an_answer_without_tls_does_not_tell_the_value_either(folder: Path) -> None:
    async with scene(folder) as it:
        for host, shown in (("api.example", it.placeholder), ("ok.example", VALUE)):
            asked = f"/split HTTP/1.1\r\nHost: {host}\r\nX-Key: {VALUE}\r\nConnection: close\r\n\r\n"
            within = f"CONNECT {host}:80 HTTP/1.1\r\nHost: {host}\r\n\r\nGET {asked}"
            for data in (f"GET http://{host}{asked}", within):
                told = await it.said(data.encode())
                assert f"X-Seen: {shown}\r\n" in told
                assert f"X-Key: {shown}" in re.sub(r"\r\n[0-9a-f]+\r\n", "", told.partition("\r\n\r\n")[2])


async def test_a_connection_sends_so_many_basic_credentials_that_they_can_be_hidden(folder: Path) -> None:
    async with scene(folder) as it:
        sent = [base64.b64encode(f"{number}:{it.placeholder}".encode()).decode() for number in range(17)]
        told = await it.get("", *(f"X-{number}: Basic {one}" for number, one in enumerate(sent[:16])))
        assert told.count("Basic ") == 16 and all(one in told for one in sent[:16])
        told = await it.get("", *(f"X-{number}: Basic {one}" for number, one in enumerate(sent)))
        assert told.startswith("HTTP/1.1 400 ") and "at most 16 basic credentials" in told
        assert len(it.echo.heads) == 1


async def test_an_answer_that_cannot_be_searched_is_refused(folder: Path) -> None:
    async with scene(folder) as it:
        told = await it.get("br", f"X-Key: {it.placeholder}")
        assert told.startswith("HTTP/1.1 502 ") and "compressed in a way" in told


async def test_a_compressed_answer_is_unpacked_block_by_block(folder: Path) -> None:
    async with scene(folder) as it:
        assert (await it.get("bomb")).count("\0") == 8 << 20


async def test_a_websocket_passes_within_a_tunnel_and_without_values(folder: Path) -> None:
    async with scene(folder) as it:
        for host in ("ok.example", "api.example"):
            reader, writer = await it.tls(host)
            lines = [f"GET /websocket HTTP/1.1\r\nHost: {host}", "Connection: Upgrade", "Upgrade: websocket"]
            writer.write("\r\n".join([*lines, "Sec-WebSocket-Extensions: permessage-deflate", "", ""]).encode())
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
            writer.write(VALUE.encode())
            told = await reader.readuntil(b">")
            assert told.decode() == f"<{VALUE if host == 'ok.example' else it.placeholder}>"
            writer.close()
        assert b"permessage-deflate" not in it.echo.heads[-1]


async def test_a_frame_does_not_show_how_a_value_begins_by_its_time(folder: Path) -> None:
    async with scene(folder) as it:
        reader, writer = await it.tls()
        head = "GET /frames HTTP/1.1\r\nHost: api.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
        writer.write(head.encode())
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101 ")
        for text, told in ((VALUE[:9], VALUE[:9]), (VALUE[9:], VALUE[9:]), (f"a{VALUE}", f"a{it.placeholder}")):
            writer.write(text.encode())
            assert (
                await asyncio.wait_for(reader.readexactly(2 + len(text)), 10)
                == bytes([0x81, len(text)]) + told.encode()
            )
        writer.close()


async def test_neither_side_of_a_websocket_has_to_speak_while_the_other_does(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, wait = [], SocketStream._readable

    async def noted(stream: SocketStream) -> None:
        waits.append(stream.patience)
        await wait(stream)

    monkeypatch.setattr(SocketStream, "_readable", noted)
    async with scene(folder) as it:
        for host in ("ok.example", "api.example"):
            head = f"GET /frames HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
            reader, writer = await (it.tls() if host == "api.example" else it.to(it.inside.http))
            writer.write(head.encode())
            await reader.readuntil(b"\r\n\r\n")
            waits.clear()
            writer.write(b"x")
            assert await reader.readexactly(3) == b"\x81\x01x"
            assert set(waits) == {None}
            writer.close()


@pytest.mark.parametrize("size", [7, 100_000])
def test_frames_of_any_length_end_where_they_end(size: int) -> None:
    sizes = (0, 1, 125, 126, 65_535, 65_536)
    heads = (
        b"\x81\0",
        b"\x81\x01",
        b"\x89\x7d",
        b"\x82\x7e\0\x7e",
        b"\x82\x7e\xff\xff",
        b"\x82\x7f" + (65_536).to_bytes(8),
    )
    made = [head + b"x" * length for head, length in zip(heads, sizes, strict=True)]
    made.append(b"\x81\x83mask" + b"abc")
    sent, frames, told = b"".join(made), Frames(), [b""]
    for at in range(0, len(sent), size):
        for part, end in frames.cut(sent[at : at + size]):
            told[-1] += part
            told += [b""] if end else []
    assert told == [*made, b""]


async def test_a_server_whose_certificate_is_unknown_gets_no_secret(folder: Path) -> None:
    async with scene(folder) as it:
        msgspec.structs.force_setattr(it.way._ways, "ca_file", None)
        told = await it.get("", f"X-Key: {it.placeholder}")
        assert told.startswith("HTTP/1.1 502 ") and "TLS with api.example failed" in told
        assert it.echo.heads == []


async def test_within_tls_that_is_ended_here_the_host_is_checked_too(folder: Path) -> None:
    async with scene(folder) as it:
        reader, writer = await it.tls()
        writer.write(b"GET / HTTP/1.1\r\nHost: ok.example\r\n\r\n")
        told = (await reader.read()).decode()
        assert told.startswith("HTTP/1.1 403 ") and "for ok.example, but the connection for api.example" in told
        writer.close()
        assert it.echo.heads == []


def test_a_value_is_in_no_text() -> None:
    secret = Secret("api.example", "API_KEY", VALUE)
    secrets = Secrets([secret])
    exchange = secrets.exchange("api.example")
    for shown in (repr(secret), repr(secrets), repr(exchange), str(secret), f"{secrets}", repr(secrets.environment)):
        assert VALUE not in shown
    for write in (json.dumps, msgspec.json.encode):
        with pytest.raises(TypeError):
            write(secret)
    with pytest.raises(BadSecret) as caught:
        Secrets([secret, Secret("ok.example", "API_KEY", "other")])
    assert VALUE not in str(caught.value) and "other" not in str(caught.value)


@pytest.mark.parametrize("name", ["", "1A", "A-B", "A B", "A=B", "É", "A\n", "A\0", "x" * 300])
def test_a_secret_has_the_name_of_a_variable(name: str) -> None:
    with pytest.raises(BadSecret) as caught:
        Secret("api.example", name, VALUE)
    assert caught.value.field == "name"


@pytest.mark.parametrize("value", ["", " x", "x ", "a\nb", "a\r\nX: b", "a\0b", "é", "a\tb", "x" * 8193])
def test_a_secret_has_a_value_that_a_header_can_hold(value: str) -> None:
    with pytest.raises(BadSecret) as caught:
        Secret("api.example", "API_KEY", value)
    assert caught.value.field == "value"
    assert not value.strip() or value not in str(caught.value)


def test_one_value_may_be_for_several_domains_and_a_domain_may_have_several() -> None:
    secrets = Secrets(
        [
            Secret("a.example", "KEY", "one-value"),
            Secret("*.b.example", "KEY", "one-value"),
            Secret("a.example", "TWO", "2nd-value"),
        ]
    )
    assert set(secrets.environment) == {"KEY", "TWO"}
    key, two = (secrets.environment[name].encode() for name in ("KEY", "TWO"))
    a, b = secrets.exchange("a.example"), secrets.exchange("x.b.example")
    assert a is not None and b is not None and secrets.exchange("b.example") is None
    assert a.reveal([(b"k", key + b" " + two)]) == [(b"k", b"one-value 2nd-value")]
    assert b.reveal([(b"k", key + b" " + two)]) == [(b"k", b"one-value " + two)]
    assert b.conceal(b"2nd-value one-value") == two + b" " + key


def test_short_values_that_leave_no_placeholder_are_refused() -> None:
    with pytest.raises(BadSecret, match="too short"):
        Secrets([Secret("a.example", f"K{number}", chr(33 + number)) for number in range(90)])


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
def test_a_value_is_concealed_however_it_is_split(size: int) -> None:
    text = b"aab aaab abab aaaab a" * 3
    concealer = Concealer([(b"XXXX", b"aaab"), (b"YYYYY", b"b aba")])
    told = b"".join(concealer.feed(text[at : at + size]) for at in range(0, len(text), size)) + concealer.flush()
    assert len(told) == len(text) and b"aaab" not in told
    assert Concealer([(b"XXXX", b"aaab")]).feed(b"nothing of it") == b"nothing of it"


async def test_no_log_holds_a_value(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with scene(folder) as it:
        for path in ("", "br", "broken", "none"):
            await it.get(path, f"X-Key: {it.placeholder}")
    assert VALUE not in caplog.text


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


def test_secrets_without_the_package_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(UsageError, match=r"pip install 'ferrule\[egress\]'"):
        Egress(Guard(None), [Secret("api.example", "API_KEY", VALUE)])
    assert Egress(Guard(None)).environment


async def test_closing_ends_what_runs(folder: Path) -> None:
    async with scene(folder) as it:
        reader, writer = await it.tls("ok.example")
        await it.way.aclose()
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        writer.close()
