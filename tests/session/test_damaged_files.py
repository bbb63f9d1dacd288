"""Session files that an editor, a crash or another program damaged: all that can be read is read, and the rest told."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from ferrule.history.pairs import settled
from ferrule.protocol.errors import UsageError
from ferrule.session.rollout import find_rollout, read_rollout
from ferrule.testing import ScriptedModel
from tests.session.conversations import Place, call, chunks, function_call, items, said, sent

TORN = b'{"timestamp":"2026-01-01T00:00:00.000Z","type":"response_item","payload":{"type":"mess'


@pytest.fixture
async def place(tmp_path: Path) -> Place:
    """A home with a session of two turns, the first with a call."""
    place = Place(tmp_path)
    with ScriptedModel([items(function_call()), items(said("One.")), items(said("Two."))]) as server:
        await place.talk(server, "responses", "first", "second")
    return place


def session_file(place: Place) -> Path:
    return find_rollout(str(place.folder / "home"), None)


def texts(path: Path) -> list[str]:
    """What is in the history that a session goes on from."""
    return [item.raw.decode() for item in settled(read_rollout(path).responses)]


Damage = Callable[[bytes], bytes]


def line(data: bytes, number: int) -> bytes:
    return data.splitlines()[number]


def pretty(data: bytes) -> bytes:
    return b"\n".join(json.dumps(json.loads(text), indent=2).encode() for text in data.splitlines())


LOSSLESS: dict[str, Damage] = {
    "no head": lambda data: data.split(b"\n", 1)[1],
    "a broken head": lambda data: data[40:],
    "a head of another shape": lambda data: data.replace(b'"payload":{"id"', b'"payload":{"nr"', 1),
    "a torn write, and a good one in its line": lambda data: data.replace(
        line(data, 5) + b"\n", TORN + line(data, 5) + b"\n"
    ),
    "a torn write of its own": lambda data: data.replace(line(data, 5), TORN + b"\n" + line(data, 5)),
    "rubbish in the middle": lambda data: data.replace(line(data, 5), b"\x80\xff[[[\n" + line(data, 5)),
    "zeros where the crash was": lambda data: data + b"\0" * 400 + TORN,
    "a torn end": lambda data: data + TORN,
    "a conflict of a merge": lambda data: data.replace(line(data, 4), b"<<<<<<< ours\n" + line(data, 4), 1),
}
LESS: dict[str, tuple[Damage, str]] = {
    "bytes that are no text": (lambda data: data.replace(b"second", b"sec\xffnd"), "sec\N{REPLACEMENT CHARACTER}nd"),
    "items that are none": (
        lambda data: data.replace(
            line(data, 4), b'{"timestamp":"","type":"response_item","payload":null}\n' + line(data, 4)
        ),
        "second",
    ),
}
SILENT: dict[str, Damage] = {
    "a byte order mark": lambda data: b"\xef\xbb\xbf" + data,
    "other ends of lines": lambda data: data.replace(b"\n", b"\r\n"),
    "UTF-16": lambda data: data.decode().encode("utf-16"),
    "laid out over many lines": pretty,
    "two records in a line": lambda data: data.replace(b"\n", b"", 6).replace(b"}{", b"} {"),
    "blank lines": lambda data: data.replace(b"\n", b"\n\n \n"),
    "zeros at the end": lambda data: data + b"\0" * 400,
}


@pytest.mark.parametrize("name", LESS)
async def test_what_cannot_be_sent_is_replaced_or_left_out_and_told(place: Place, name: str) -> None:
    path = session_file(place)
    damage, kept = LESS[name]
    count = len(texts(path))
    path.write_bytes(damage(path.read_bytes()))
    assert len(texts(path)) == count and read_rollout(path).skipped_lines == 1
    with ScriptedModel([items(said("Three."))]) as server:
        await place.talk(server, "responses", "third", resume=True)
        assert kept in server.last_request.raw.decode()


@pytest.mark.parametrize("name", LOSSLESS)
async def test_f06_all_that_can_be_read_is_read_and_the_damage_told(place: Place, name: str) -> None:
    path = session_file(place)
    before = texts(path)
    path.write_bytes(LOSSLESS[name](path.read_bytes()))
    assert texts(path) == before
    assert read_rollout(path).skipped_lines >= 1
    with ScriptedModel([items(said("Three.")), items(said("Four."))]) as server:
        await place.talk(server, "responses", "third", "fourth", resume=True)
        assert sent(server, 0)[-1]["content"][0]["text"] == "third"
        assert "first" in server.requests[0].raw.decode()
    assert len([warning for warning in place.warnings if "is damaged: 1 line could" in warning]) == 1


@pytest.mark.parametrize("name", SILENT)
async def test_f06_what_loses_nothing_is_not_told(place: Place, name: str) -> None:
    path = session_file(place)
    before = texts(path)
    path.write_bytes(SILENT[name](path.read_bytes()))
    assert [json.loads(text) for text in texts(path)] == [json.loads(text) for text in before]
    assert not any("\n" in text for text in texts(path))
    assert read_rollout(path).damage == ""


async def test_f06_every_line_may_be_lost(place: Place) -> None:
    path = session_file(place)
    data = path.read_bytes()
    lines = data.splitlines(keepends=True)
    for number in range(len(lines)):
        path.write_bytes(b"".join([*lines[:number], b'{"damaged\n', *lines[number + 1 :]]))
        stored = read_rollout(path)
        assert stored.skipped_lines == 1
        lost = json.loads(lines[number])
        kept = texts(path)
        assert sum(text in data.decode() or '"aborted"' in text for text in kept) == len(kept)
        assert len(kept) >= len(texts_of(data)) - (2 if lost["type"] == "response_item" else 0)


def texts_of(data: bytes) -> list[object]:
    return [record for text in data.splitlines() if (record := json.loads(text))["type"] == "response_item"]


async def test_f06_a_call_whose_answer_was_lost_is_answered(place: Place) -> None:
    path = session_file(place)
    kept = [text for text in path.read_bytes().splitlines(keepends=True) if b"function_call_output" not in text]
    path.write_bytes(b"".join(kept))
    with ScriptedModel([chunks({"content": "Ok."})]) as server:
        await place.talk(server, "chat", "third", resume=True)
        assert [message["content"] for message in sent(server) if message["role"] == "tool"] == ["aborted"]


async def test_f06_responses_stay_apart_where_the_line_between_them_is_lost(tmp_path: Path) -> None:
    place = Place(tmp_path)
    with ScriptedModel([chunks(call("a")), chunks(call("b")), chunks({"content": "Ok."})]) as server:
        await place.talk(server, "chat", "go")
    path = session_file(place)
    path.write_bytes(b"".join(t for t in path.read_bytes().splitlines(keepends=True) if b"token_count" not in t))
    with ScriptedModel([chunks({"content": "Ok."})]) as server:
        await place.talk(server, "chat", "more", resume=True)
        roles = [message["role"] for message in sent(server)]
        assert roles[-6:] == ["assistant", "tool", "assistant", "tool", "assistant", "user"]


async def test_f06_what_is_no_session_is_refused(place: Place) -> None:
    path = session_file(place)
    for data in (b"", b"hello\n", b"\0" * 100, b'{"a":1}\n'):
        path.write_bytes(data)
        with pytest.raises(UsageError, match="not a session"):
            read_rollout(path)
