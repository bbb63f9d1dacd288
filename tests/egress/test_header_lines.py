"""Header lines that h11 alone reads in quadratic time, in heads and trailers, from both sides."""

import re
import time

import h11
import pytest

from ferrule.egress.header_lines import LINEAR, QUADRATIC, read_in_linear_time

BLANKS = b" \t" * 15_000
"""h11 alone takes ten seconds for these."""
HOSTILE = b"X:" + BLANKS + b"\x0b\r\n\r\n"
CHUNKED = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"


@pytest.mark.parametrize(
    ("ours", "data"),
    [
        (h11.SERVER, b"GET / HTTP/1.1\r\nHost: a\r\n" + HOSTILE),
        (h11.SERVER, CHUNKED + HOSTILE),
        (h11.CLIENT, b"HTTP/1.1 200 OK\r\n" + HOSTILE),
    ],
    ids=["head", "trailer", "answer"],
)
def test_a_line_of_blanks_takes_no_time(ours: type[h11.SERVER | h11.CLIENT], data: bytes) -> None:
    read_in_linear_time()
    connection = h11.Connection(ours)
    if ours is h11.CLIENT:
        connection.send(h11.Request(method="GET", target="/", headers=[("Host", "a")]))
    connection.receive_data(data)
    begun = time.process_time()
    with pytest.raises(h11.RemoteProtocolError, match="illegal header line"):
        list(iter(connection.next_event, None))
    assert time.process_time() - begun < 1.0


@pytest.mark.parametrize(
    "line", [b"X:", b"X: \t ", b"X:a", b"X: a \t b ", b"X : a", b": a", b"X: a\x00", b"X: \xff\x01"]
)
def test_the_same_lines_match(line: bytes) -> None:
    theirs, ours = re.compile(QUADRATIC).fullmatch(line), LINEAR.fullmatch(line)
    assert (ours and ours.groups()) == (theirs and theirs.groups())
