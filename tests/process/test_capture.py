import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ferrule.process.capture import CAPTURE_BYTES, Captured, HeadTail, unfinished


@given(st.lists(st.binary(max_size=40)), st.integers(0, 30))
def test_any_pieces_keep_both_ends_and_an_exact_count(pieces: list[bytes], limit: int) -> None:
    buffer = HeadTail(limit)
    for piece in pieces:
        buffer.write(piece)
    whole, kept = b"".join(pieces), buffer.captured()
    assert whole.startswith(kept.head) and whole.endswith(kept.tail)
    assert kept.total == len(whole)
    assert len(kept.head) + len(kept.tail) == min(len(whole), limit)
    if not kept.omitted:
        assert kept.render() == whole


def test_halves_of_a_mebibyte() -> None:
    buffer = HeadTail()
    buffer.write(b"a" * CAPTURE_BYTES + b"b" * CAPTURE_BYTES)
    kept = buffer.captured()
    assert (kept.head, kept.tail) == (b"a" * 524_288, b"b" * 524_288)
    assert kept.render() == b"a" * 524_288 + b"\n... 1048576 bytes omitted ...\n" + b"b" * 524_288


def test_memory_stays_bounded_for_tiny_pieces() -> None:
    buffer = HeadTail()
    tracemalloc.start()
    for _ in range(150):
        for _ in range(1000):
            buffer.write(b"0123456789")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * CAPTURE_BYTES


def test_drain_gives_what_came_since_the_last_one() -> None:
    buffer = HeadTail(10)
    buffer.write(b"one")
    assert buffer.drain() == Captured(b"one")
    assert buffer.drain() == Captured(b"")
    buffer.write(b"x" * 12)
    assert buffer.drain() == Captured(b"xxxxx", 2, b"xxxxx")


def test_a_parted_character_waits_for_its_rest() -> None:
    buffer = HeadTail()
    buffer.write("né".encode()[:2])
    assert buffer.drain(final=False).text() == "n"
    buffer.write("né".encode()[2:])
    assert buffer.drain(final=False).text() == "é"
    buffer.write(b"\xe2\x82")
    assert buffer.drain(final=True).text() == "\ufffd"


def test_text_is_cut_between_characters_and_counts_what_it_does_not_show() -> None:
    buffer = HeadTail(10)
    buffer.write("ééééé".encode() + "日本語".encode())
    assert buffer.captured().text() == "éé\n... 12 bytes omitted ...\n語"


@pytest.mark.parametrize(
    ("data", "count"),
    [
        (b"", 0),
        (b"a", 0),
        ("é".encode(), 0),
        ("é".encode()[:1], 1),
        ("語".encode()[:2], 2),
        ("😀".encode()[:3], 3),
        ("😀".encode(), 0),
        (b"\x80\x80\x80\x80", 0),
    ],
)
def test_unfinished_characters(data: bytes, count: int) -> None:
    assert unfinished(data) == count
