"""The event stream format, byte by byte."""

import pytest

from ferrule.model import sse
from ferrule.model.sse import SseDecoder
from ferrule.model.stream import ModelError


def decode(*chunks: bytes) -> list[bytes]:
    decoder = SseDecoder()
    return [data for chunk in chunks for data in decoder.feed(chunk)] + decoder.flush()


STREAMS = {
    "lf": (b"event: a\ndata: one\n\ndata: two\n\n", [b"one", b"two"]),
    "crlf": (b"event: a\r\ndata: one\r\n\r\ndata: two\r\n\r\n", [b"one", b"two"]),
    "cr": (b"event: a\rdata: one\r\rdata: two\r\r", [b"one", b"two"]),
    "mixed ends": (b"data: one\r\n\ndata: two\n\r\ndata: three\r\r\n", [b"one", b"two", b"three"]),
    "no space": (b'event:response.created\r\ndata:{"type":"x"}\r\n\r\n', [b'{"type":"x"}']),
    "one space only": (b"data:  one\n\nevent: a\ndata:  two \n\n", [b" one", b" two "]),
    "several lines": (b"data: A\ndata: B\ndata:\ndata: D\n\n", [b"A\nB\n\nD"]),
    "bom": (b"\xef\xbb\xbfdata: one\n\n", [b"one"]),
    "bom inside": (b"data: one\n\n\xef\xbb\xbfdata: two\n\n", [b"one", b"two"]),
    "odd names": (b" data: one\n\nDATA:two\n\n\0data: three\n\n", [b"one", b"two", b"three"]),
    "no blank line": (b'data: {"a":1}\ndata: {"b":2}\ndata: [DONE]\n\n', [b'{"a":1}', b'{"b":2}', b"[DONE]"]),
    "an object in lines": (b'data: {"a":\ndata: {"b":2}\ndata: }\n\n', [b'{"a":\n{"b":2}\n}']),
    "an object beside data": (b'data: one\n{"error":1}\n\n', [b'{"error":1}', b"one"]),
    "objects alone": (b'{"a":1}\n{"b":2}\n', [b'{"a":1}', b'{"b":2}']),
    "words alone": (b"Bad Gateway\n\ndata: one\n\n<p>\n", [b"Bad Gateway", b"one", b"<p>\n"]),
    "type in the name alone": (
        b'event: response.x\ndata: {"item":{"type":"a"}}\n\nevent: response.x\ndata: {}\n\n',
        [b'{"type":"response.x","item":{"type":"a"}}', b'{"type":"response.x"}'],
    ),
    "comments": (b": ping\n\n: OPENROUTER PROCESSING\ndata: one\n: bye\n\n", [b"one"]),
    "other fields": (b"id: 7\nretry: 10\ndatax: no\ndata: one\nxdata: no\n\n", [b"one"]),
    "no data": (b"event: a\n\nid: 1\n\n\n\n\n", []),
    "colon in data": (b'data: {"a":"b: c"}\n\n', [b'{"a":"b: c"}']),
    "unterminated": (b"data: one\n\ndata: two", [b"one", b"two"]),
    "unterminated line end": (b"data: one\n\ndata: two\r\n", [b"one", b"two"]),
    "utf-8": ("data: ü🔧\u2028x\n\n".encode(), ["ü🔧\u2028x".encode()]),
    "leading blank lines": (b"\n\n\ndata: one\n\n", [b"one"]),
}


@pytest.mark.parametrize("name", STREAMS)
def test_b073_every_form_gives_its_events_in_every_split(name: str) -> None:
    stream, events = STREAMS[name]
    assert decode(stream) == events
    assert decode(*[stream[i : i + 1] for i in range(len(stream))]) == events
    for i in range(len(stream) + 1):
        for j in range(i, len(stream) + 1):
            assert decode(stream[:i], stream[i:j], stream[j:]) == events, (stream[:i], stream[i:j], stream[j:])


def test_b074_crlf_split_between_chunks_is_one_line_end() -> None:
    assert decode(b"data: A\r", b"\ndata: B\r\n\r\n") == [b"A\nB"]
    assert decode(b"data: A\r", b"\n", b"\r", b"\n", b"data: B\r\n\r\n") == [b"A", b"B"]


def test_b074_an_event_without_its_blank_line_is_given_out_at_the_end() -> None:
    decoder = SseDecoder()
    assert decoder.feed(b"data: one\ndata: two") == []
    assert decoder.flush() == [b"one\ntwo"]
    assert decoder.flush() == []


def test_an_event_comes_out_with_the_chunk_that_ends_it() -> None:
    decoder = SseDecoder()
    assert decoder.feed(b"data: one\n") == []
    assert decoder.feed(b"\ndata: t") == [b"one"]
    assert decoder.feed(b"wo\r\r") == [b"two"]


def test_an_endless_event_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", 100)
    decoder = SseDecoder()
    for _ in range(10):
        assert decoder.feed(b"data: 7890") == []
    with pytest.raises(ModelError, match="longer than"):
        decoder.feed(b"1")
