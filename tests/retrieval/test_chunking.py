"""Chunks: their size, their overlap, and that nothing of a text is lost."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from ferrule.retrieval.chunking import Chunking, chunks, estimated_tokens


def count(text: str) -> int:
    tokens = at = 0
    while at < len(text):
        at, tokens = estimated_tokens(text, at, 1), tokens + 1
    return tokens


@given(st.text(alphabet="ab1 .\n世é", max_size=300), st.integers(4, 20), st.data())
def test_chunks_hold_the_whole_text_and_are_no_larger_than_asked(text: str, size: int, data: st.DataObject) -> None:
    how = Chunking(size, data.draw(st.integers(0, size // 2)))
    found = chunks(text, how)
    covered: set[int] = set()
    for chunk in found:
        assert text[chunk.start : chunk.start + len(chunk.text)] == chunk.text == chunk.text.strip()
        assert 0 < count(chunk.text) <= size
        covered |= set(range(chunk.start, chunk.start + len(chunk.text)))
    assert {place for place, character in enumerate(text) if not character.isspace()} <= covered
    assert all(one.start < other.start for one, other in pairwise(found))


def test_a_chunk_repeats_as_many_tokens_of_the_one_before_as_asked() -> None:
    text = ",".join(f"w{number:03}" for number in range(100))
    first, second = chunks(text, Chunking(20, 6))[:2]
    repeated = first.text[second.start - first.start :]
    assert second.text.startswith(repeated)
    assert count(repeated) == 6


def test_a_chunk_ends_at_a_line_break_in_its_last_quarter() -> None:
    text = "one two three four five six\nseven eight nine ten eleven twelve"
    assert [chunk.text for chunk in chunks(text, Chunking(8, 0))] == [
        "one two three four five six",
        "seven eight nine ten eleven twelve",
    ]


def test_blanks_at_the_end_make_no_chunk_of_their_own() -> None:
    assert [chunk.text for chunk in chunks("a b c d\n", Chunking(4, 2))] == ["a b c d"]


def test_the_caller_may_count_tokens_its_own_way() -> None:
    found = chunks("abcdef", Chunking(2, 1), lambda text, start, count: min(start + count, len(text)))
    assert [chunk.text for chunk in found] == ["ab", "bc", "cd", "de", "ef"]


def test_blanks_without_end_are_in_no_chunk() -> None:
    assert [chunk.text for chunk in chunks("a" + " " * 10_000 + "b", Chunking(8, 4))] == ["a", "b"]


def test_a_blank_text_has_no_chunks() -> None:
    assert chunks("", Chunking()) == chunks(" \n\t ", Chunking()) == []


def test_the_next_chunk_begins_with_a_line() -> None:
    text = "".join(f"line {number} has some words\n" for number in range(40))
    found = chunks(text, Chunking(40, 16))
    assert len(found) > 5 and all(chunk.text.startswith("line ") for chunk in found)
    assert all(one.start + len(one.text) > other.start for one, other in pairwise(found))
