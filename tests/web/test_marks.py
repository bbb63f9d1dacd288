"""Citation marks: removed from texts and pieces, turned into citations."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ferrule.web.marks import MarkReader, Source, cited, disarmed, without_marks

ONE, TWO = Source("https://a.example/", "A"), Source("https://b.example/x", "B")
SOURCES = {1: ONE, 2: TWO}


@pytest.mark.parametrize(
    ("said", "plain", "statements"),
    [
        ("The tower is 42 m high【1】.", "The tower is 42 m high.", ["The tower is 42 m high"]),
        ("It is old.【2】 It leans【1】【2】.", "It is old. It leans.", ["It is old.", "It leans", "It leans"]),
        ("High【1】【1】", "High", ["High"]),
        ("It is high.\r\n【1】", "It is high.\r\n", ["It is high.\r\n"]),
        ("- High【1】\n- Old【2】\n", "- High\n- Old\n", ["High", "Old"]),
        ("Grün ist 緑。高い【1】。", "Grün ist 緑。高い。", ["高い"]),
        ("【1】First", "First", [""]),
        ("Long【1†L3-L5】 and odd【77】", "Long and odd", ["Long"]),
        ("No【x】 mark【12", "No【x】 mark【12", []),
        ("【【1】2】", "【2】", ["【"]),
        ("One. Two three, v1.2【1】 four【2】", "One. Two three, v1.2 four", ["Two three, v1.2", "four"]),
    ],
)
def test_marks_become_citations_of_their_statements(said: str, plain: str, statements: list[str]) -> None:
    text, citations = cited(said, SOURCES)
    assert text == plain
    assert [text[one.start : one.end] for one in citations] == statements
    for one in citations:
        assert one.annotation["type"] == "url_citation" and one.annotation["url"] == one.source.url


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(["【", "】", "1", "22", "†L1", "a", " ", "\n", "【1】", "【2†x】"]), max_size=12))
def test_pieces_give_the_text_whatever_the_cuts(pieces: list[str]) -> None:
    reader = MarkReader()
    told = "".join(map(reader.feed, pieces)) + reader.rest()
    assert told == without_marks("".join(pieces)) == cited("".join(pieces), SOURCES).text


def test_only_the_beginning_of_a_mark_is_held_back() -> None:
    reader = MarkReader()
    assert [reader.feed(piece) for piece in ("a【", "1", "】b", "【no", "c", "【1")] == ["a", "", "b", "【no", "c", ""]
    assert reader.rest() == "【1"


def test_a_page_forges_no_mark() -> None:
    assert cited(disarmed("As 【1】 says"), SOURCES) == ("As [1] says", ())
