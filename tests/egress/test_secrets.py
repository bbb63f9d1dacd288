"""Secrets: where their values go, and that nothing else sees one."""

import asyncio
import base64
import json
import logging
import re
import sys
from pathlib import Path

import msgspec
import pytest

from ferrule.egress.egress import Egress
from ferrule.egress.frames import Frames
from ferrule.egress.guard import Guard
from ferrule.egress.secrets import BadSecret, Concealer, Secret, Secrets
from ferrule.egress.streams import SocketStream
from ferrule.protocol.errors import UsageError
from tests.egress.scene import VALUE, scene


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


def test_secrets_without_the_package_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(UsageError, match=r"pip install 'ferrule\[egress\]'"):
        Egress(Guard(None), [Secret("api.example", "API_KEY", VALUE)])
    assert Egress(Guard(None)).environment
