"""Merged chunks: the parser reads the same bytes in every split, and what is not plainly chunked is passed on."""

import asyncio
import itertools
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import h11
import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.model.chunks import ChunkMerger
from ferrule.model.transport import MergingTransport
from tests.model.support import certified

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"
Read = tuple[list[object], bytes, int]


def chunk(data: bytes, extension: bytes = b"") -> bytes:
    return b"%x%b\r\n%b\r\n" % (len(data), extension, data)


def split(data: bytes, cuts: Sequence[int]) -> list[bytes]:
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(places) if a < b]


def parsed(pieces: Sequence[bytes]) -> Read:
    """The events but data, the data, and how many events brought it, as the parser gives them until the end."""
    client = h11.Connection(h11.CLIENT)
    client.send(h11.Request(method="GET", target="/", headers=[("host", "x")]))
    client.send(h11.EndOfMessage())
    events: list[object] = []
    body, count = b"", 0
    try:
        for piece in [*pieces, b""]:
            client.receive_data(piece)
            while (event := client.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
                if isinstance(event, h11.Data):
                    body, count = body + bytes(event.data), count + 1
                else:
                    events.append(event)
                if isinstance(event, h11.ConnectionClosed):
                    return events, body, count
    except h11.RemoteProtocolError as error:
        events.append(str(error).partition(":")[0])  # what follows quotes as much as had come
    return events, body, count


def merged(pieces: Sequence[bytes]) -> list[bytes]:
    merger = ChunkMerger()
    return [out for piece in pieces if (out := merger.feed(piece))]


bodies = st.lists(
    st.tuples(st.binary(min_size=1, max_size=40), st.sampled_from([b"", b"", b"", b";a=b", b" "])), max_size=8
)
heads = st.sampled_from([HEAD, b"HTTP/1.1 100 Continue\r\n\r\n" + HEAD, HEAD.replace(b"200", b"500")])
ends = st.sampled_from([END, b"0\r\nsum: 1\r\n\r\n", b"000\r\n\r\n", b"", b"0\r\n"])
cuts = st.lists(st.integers(0, 2000), max_size=30)


@given(heads, bodies, ends, cuts)
def test_any_split_of_a_chunked_answer_is_read_as_the_parser_alone_reads_it(
    head: bytes, body: list[tuple[bytes, bytes]], end: bytes, places: list[int]
) -> None:
    answer = head + b"".join(chunk(*one) for one in body) + end
    alone, data, _ = parsed([answer])
    assert parsed(merged(split(answer, places)))[:2] == (alone, data)


@given(bodies, st.integers(0, 400), st.binary(max_size=3), cuts)
def test_a_damaged_body_is_the_same_error(
    body: list[tuple[bytes, bytes]], at: int, wrong: bytes, places: list[int]
) -> None:
    framed = b"".join(chunk(*one) for one in body) + END
    at %= len(framed)
    pieces = split(HEAD + framed[:at] + wrong + framed[at + len(wrong) :], places)
    assert parsed(merged(pieces))[:2] == parsed(pieces)[:2]


@given(st.binary(max_size=200), cuts)
def test_garbage_is_passed_on(garbage: bytes, places: list[int]) -> None:
    assert b"".join(merged(split(garbage, places))) == garbage


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\ncontent-length: 12\r\n\r\n5\r\nhello\r\n\r\n",
        b"HTTP/1.1 200 OK\ntransfer-encoding: chunked\n\n1\r\na\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nx: y\n\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
        b"HTTP/1.0 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
        b"HTTP/1.1 101 Go\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n",
        HEAD.replace(b"200", b"404") + b"1\r\na\r\n1\r\nb\r\n0\r\n\r\n",
        HEAD + b"1;x\r\na\r\n1\r\nb\r\n0\r\n\r\n",
        HEAD + b"+1\r\na\r\n0\r\n\r\n",
        HEAD + b"1_0\r\n" + b"a" * 16 + b"\r\n" + END,
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 200_000,
    ],
)
def test_what_is_not_plainly_a_chunked_200_goes_on_byte_for_byte(answer: bytes) -> None:
    assert b"".join(merged([answer])) == answer
    assert b"".join(merged([answer[at : at + 1] for at in range(len(answer))][:2000])) == answer[:2000]


def test_what_arrived_together_is_one_chunk_and_a_part_is_not_held_back() -> None:
    whole = HEAD + b"".join(chunk(b"%d" % n) for n in range(1000))
    _, body, count = parsed(merged([whole, b"5\r\nhe", b"llo\r\n" + END]))
    assert body == b"".join(b"%d" % n for n in range(1000)) + b"hello"
    assert count == 3


class Answering:
    """A server that sends one answer a request, and counts its connections."""

    def __init__(self, answers: Sequence[Sequence[bytes]]) -> None:
        self.answers = iter(answers)
        self.connections = 0
        self.port = 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                for piece in next(self.answers):
                    if not piece:
                        return
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0)
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()


@asynccontextmanager
async def serving(
    *answers: Sequence[bytes], server_tls: ssl.SSLContext | None = None, client_tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[Answering, httpx2.AsyncClient]]:
    answering = Answering(answers)
    server = await asyncio.start_server(answering, "127.0.0.1", 0, ssl=server_tls)
    context = client_tls or ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    transport = MergingTransport(context, idle=4, idle_s=60)
    scheme = "https" if client_tls else "http"
    url = f"{scheme}://localhost:{server.sockets[0].getsockname()[1]}"
    async with server, httpx2.AsyncClient(transport=transport, base_url=url, trust_env=False) as client:
        yield answering, client


MANY = [HEAD, *(chunk(b"x%d" % n) for n in range(500)), END]
AT_ONCE = [b"".join(MANY)]
BIG = [HEAD, chunk(b"y" * 3_000_000), b"0\r\nsum: 1\r\n\r\n"]


async def all_on_one_connection(answering: Answering, client: httpx2.AsyncClient) -> None:
    first, second, third = [await client.get("/") for _ in range(3)]
    assert first.content == b"".join(b"x%d" % n for n in range(500))
    assert second.content == b"y" * 3_000_000
    assert third.content == b"hello"
    for _ in range(2):
        async with client.stream("GET", "/") as answer:
            pieces = [piece async for piece in answer.aiter_raw()]
        assert b"".join(pieces) == first.content
        assert len(pieces) < 20
    assert answering.connections == 1


PLAIN = [b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"]


async def test_one_connection_serves_tiny_chunks_a_big_one_with_trailers_and_a_plain_body() -> None:
    async with serving(MANY, BIG, PLAIN, AT_ONCE, AT_ONCE) as (answering, client):
        await all_on_one_connection(answering, client)


@pytest.fixture
def pair(tmp_path: Path) -> tuple[Path, Path]:
    return certified(tmp_path, "localhost")


async def test_tls_streams_are_merged_and_kept_too(pair: tuple[Path, Path]) -> None:
    certificate, key = pair
    server_tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server_tls.load_cert_chain(certificate, key)
    client_tls = ssl.create_default_context(cafile=str(certificate))
    async with serving(MANY, BIG, PLAIN, AT_ONCE, AT_ONCE, server_tls=server_tls, client_tls=client_tls) as (
        answering,
        client,
    ):
        await all_on_one_connection(answering, client)


@pytest.mark.parametrize(
    "cut", [b"9\r\nhalf", b"4\r\nhalf", b"4\r\nhalf\r\n", b"4\r\nhalf\r\n1", b"4\r\nhalf\r\n0\r\n"]
)
async def test_a_connection_that_is_cut_inside_the_body_is_an_error(cut: bytes) -> None:
    async with serving([HEAD, cut, b""]) as (_, client):
        with pytest.raises(httpx2.RemoteProtocolError, match="incomplete chunked read"):
            await client.get("/")


async def test_a_bad_size_is_the_parsers_error() -> None:
    async with serving([HEAD, chunk(b"good"), b"zz\r\nbad\r\n"]) as (_, client):
        with pytest.raises(httpx2.RemoteProtocolError, match="illegal chunk header"):
            await client.get("/")
