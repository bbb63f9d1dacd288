"""JSON-RPC among whatever else a server prints."""

import logging
import tracemalloc

import pytest

from ferrule.mcp.lines import TOO_LONG, UNREADABLE, LineSplitter, MessageReader

GOOD = b'{"jsonrpc":"2.0","id":1,"result":{}}\n'


def test_b107_noise_is_skipped_and_logged_but_not_for_ever(caplog: pytest.LogCaptureFixture) -> None:
    reader = MessageReader("s")
    noise = (
        b'Starting v1.2\n\n{"not":"rpc"}\n' + b"x" * 200_000 + b"\n\xff\xfe\n" + b'[1, 2]\n"text"\n' + b"log\n" * 1000
    )
    with caplog.at_level(logging.WARNING, "ferrule.mcp"):
        messages = list(reader.feed(noise + GOOD))
    assert [message["id"] for message in messages] == [1]
    assert reader.first_bad_line == "Starting v1.2"
    assert len(caplog.records) == 10
    assert max(len(record.getMessage()) for record in caplog.records) < 500


def test_messages_may_come_in_any_pieces() -> None:
    data = GOOD * 3
    for size in (1, 2, 7, 36, 37, 38, 1000):
        reader = MessageReader("s")
        pieces = [data[i : i + size] for i in range(0, len(data), size)]
        assert sum(len(list(reader.feed(piece))) for piece in pieces) == 3


def test_carriage_returns_and_batches_are_taken() -> None:
    reader = MessageReader("s")
    batch = b'[{"jsonrpc":"2.0","id":1,"result":{}},{"jsonrpc":"2.0","method":"x"}]\r\n'
    assert [message.get("id") for message in reader.feed(batch)] == [1, None]


@pytest.mark.parametrize(
    ("head", "tail"), [(b'{"jsonrpc":"2.0","id":7,"result":"', b'"}'), (b'{"result":"', b'","jsonrpc":"2.0","id":7}')]
)
def test_an_answer_without_end_becomes_the_error_of_its_request(head: bytes, tail: bytes) -> None:
    reader = MessageReader("s", limit=10_000)
    chunk = b"x" * 5_000
    found = list(reader.feed(head))
    tracemalloc.start()
    for _ in range(10_000):
        found += reader.feed(chunk)
    grown = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    found += reader.feed(tail + b"\n" + GOOD)
    assert [(message["id"], message.get("error", {}).get("message")) for message in found] == [(7, TOO_LONG), (1, None)]
    assert grown < 200_000  # of 50 MB


def test_a_message_without_end_and_id_ends_the_connection() -> None:
    reader = MessageReader("s", limit=100)
    with pytest.raises(ConnectionError):
        list(reader.feed(b"x" * 1000 + b"\n"))


def test_an_answer_that_is_no_json_is_the_error_of_its_request() -> None:
    deep = b'{"jsonrpc":"2.0","id":3,"result":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n"
    (message,) = MessageReader("s").feed(deep)
    assert (message["id"], message["error"]["message"]) == (3, UNREADABLE)


def test_the_splitter_keeps_whole_lines_whole() -> None:
    assert list(LineSplitter().feed(b"a\n\nb\n")) == [(b"a", True), (b"", True), (b"b", True)]
