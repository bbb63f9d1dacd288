"""Session files that are long: read from their newest compaction, and in bounded memory."""

import random
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from ferrule.history.pairs import settled
from ferrule.model.lessons import Lesson
from ferrule.protocol.content import InputImage, InputText
from ferrule.protocol.items import FunctionCall, FunctionCallOutput, Message, Reasoning, ResponseItem, make_item
from ferrule.protocol.permissions import AskForApproval, ReadOnly
from ferrule.session import replay, salvage
from ferrule.session.images import bounded
from ferrule.session.index import SessionIndex
from ferrule.session.lines import ImagesRefused, SessionMeta, TurnContext
from ferrule.session.rollout import Rollout, StoredSession, new_session_id, read_rollout
from tests.session.models import says

TORN = b'{"timestamp":"2026-01-01T00:00:00.000Z","type":"response_item","payload":{"type":"mess'


def user(text: str) -> ResponseItem:
    return make_item(Message(role="user", content=(InputText(text),)))


class LongFile:
    """Writes a session as the runtime does."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.id = new_session_id()
        self.rollout = Rollout.create(str(home), self.id)
        self.rollout.meta(SessionMeta(self.id, "2026-01-01T00:00:00.000Z", "/a"))
        self.path = self.rollout.path

    def turn(self, name: str, output: str = "ok", calls: int = 1) -> None:
        self.rollout.turn_context(TurnContext("/a", AskForApproval.NEVER, ReadOnly(), f"model of {name}"))
        self.rollout.item(user(name))
        for number in range(calls):
            call_id = f"{name}-{number}"
            self.rollout.item(make_item(FunctionCall(call_id=call_id, name="noop", arguments="{}")))
            self.rollout.item(make_item(FunctionCallOutput(call_id=call_id, output=output)))
            self.rollout.response_end(None)
        self.rollout.item(make_item(says(f"done {name}")))
        self.rollout.response_end(None)

    def compact(self, name: str, more: str = "") -> None:
        self.rollout.compacted([user(f"{name} of all before {more}")], name)

    def write(self, data: bytes) -> None:
        """Write what another program would."""
        with self.path.open("ab") as file:
            file.write(data)

    def read(self) -> StoredSession:
        return read_rollout(self.path)


@pytest.fixture
def long(tmp_path: Path) -> LongFile:
    return LongFile(tmp_path)


def texts(stored: StoredSession) -> str:
    return " ".join(item.raw.decode() for item in settled(stored.responses))


def compactions_of(long: LongFile) -> list[int]:
    with long.path.open("rb") as file:
        return list(replay.compactions(file))


def read_in_full(path: Path, monkeypatch: pytest.MonkeyPatch) -> StoredSession:
    """Read a file from its first line."""
    with monkeypatch.context() as patched:
        patched.setattr(replay, "compactions", lambda file: ())
        return read_rollout(path)


def same(one: StoredSession, other: StoredSession) -> bool:
    kept = ("meta", "context", "responses", "lessons", "refused", "left_out", "size")
    return all(getattr(one, name) == getattr(other, name) for name in kept)


def test_nothing_before_the_newest_compaction_is_read(long: LongFile) -> None:
    lesson = Lesson("p", "chat", "m", {"parallel": False})
    refused = ImagesRefused("p", "m", frozenset({"mark"}))
    long.turn("one")
    long.rollout.lesson(lesson)
    long.rollout.images_refused(refused)
    long.compact("first")
    before = long.path.stat().st_size
    long.turn("two")
    long.compact("second")
    long.turn("three")
    with long.path.open("r+b") as file:  # as if nothing could be read there
        at = len(file.readline())
        file.write(b"x" * (before - at))
    stored = long.read()
    assert stored.damage == "" and stored.meta.id == long.id
    assert "second of all" in texts(stored) and "done three" in texts(stored) and "two" not in texts(stored)
    assert (stored.lessons, stored.refused) == ((lesson,), (refused,))
    assert stored.context is not None and stored.context.model == "model of three"


def test_a_compaction_says_what_the_last_turn_ran_with(long: LongFile) -> None:
    long.turn("one")
    long.compact("first")
    stored = long.read()
    assert stored.context is not None and stored.context.model == "model of one"
    long.rollout.close()
    again = Rollout.go_on(stored)
    again.compacted([user("again")], "again")
    again.close()
    assert long.read().context == stored.context


def test_where_a_block_begins_does_not_matter(long: LongFile, monkeypatch: pytest.MonkeyPatch) -> None:
    long.turn("one ü€𝄞")
    long.compact("first")
    long.turn("two ü€𝄞")
    long.compact("second", "𝄞" * 100)
    long.turn("three ü€𝄞")
    whole = read_in_full(long.path, monkeypatch)
    found = compactions_of(long)
    assert len(found) == 2
    for size in (*range(1, 400), 1000, 4096):
        monkeypatch.setattr(replay, "BLOCK", size)
        monkeypatch.setattr(salvage, "BLOCK", size)
        assert same(long.read(), whole) and compactions_of(long) == found, size


@pytest.mark.parametrize("ending", [b"\n", b"", TORN + b"\n"])
def test_of_a_torn_compaction_the_one_before_it_counts(long: LongFile, ending: bytes) -> None:
    long.turn("one")
    long.compact("first")
    long.turn("two")
    size = long.path.stat().st_size
    long.compact("second")
    long.rollout.close()
    newest = long.path.read_bytes()[size:]
    for cut in (len(newest) // 2, len(newest) - 2):
        with long.path.open("r+b") as file:
            file.truncate(size)
        long.write(newest[:cut] + ending)
        stored = long.read()
        assert "first of all" in texts(stored) and "done two" in texts(stored) and "done one" not in texts(stored)
        assert stored.skipped_lines >= 1


def test_words_of_a_message_are_no_compaction(long: LongFile) -> None:
    by = '{"message":"","replacement_history":[],"checkpoint":{}}'
    trap = f'{{"timestamp":"2026-01-01T00:00:00.000Z","type":"compacted","payload":{by}}}'
    long.turn("one")
    long.turn(trap)
    long.turn(f"\n{trap}\n")
    long.write(f'{{"timestamp":"","type":"new_kind","payload":{trap}}}\n'.encode())
    long.write(f'{{"timestamp":"","type":"new_kind","payload":["{"x" * 200}",{trap}]}}\n'.encode())
    long.write(b'{"timestamp":"","type":"new_kind","payload":{"a":"","type":"compacted",%b}\n' % by.encode()[1:])
    assert "done one" in texts(long.read())


def test_a_compaction_of_another_version_is_read_after_all_before_it(long: LongFile) -> None:
    long.turn("one")
    long.rollout.lesson(lesson := Lesson("p", "chat", "m", {"parallel": False}))
    for payload in (
        {"message": "summed up"},
        {"message": "", "replacement_history": [msgspec.Raw(user("summed up").raw)]},
        {"message": "", "replacement_history": [msgspec.Raw(user("summed up").raw)], "checkpoint": {"lessons": 7}},
    ):
        long.write(msgspec.json.encode({"timestamp": "", "type": "compacted", "payload": payload}) + b"\n")
        stored = long.read()
        assert "summed up" in texts(stored) and "done one" not in texts(stored) and stored.damage == ""
        assert stored.context is not None and stored.lessons == (lesson,)


def test_a_copy_goes_on_from_the_compaction_or_from_before_it(long: LongFile) -> None:
    for name in ("one", "two", "three"):
        long.turn(name)
        long.compact(f"sum {name}")
    index = SessionIndex(str(long.home))
    for turns, expected in ((None, "sum three"), (2, "sum two"), (1, "sum one")):
        stored = read_rollout(Path(index.find(index.fork(long.id, turns)).path))
        assert expected in texts(stored) and stored.meta.forked_from_id == long.id and stored.damage == ""


def test_any_file_says_the_same_from_its_newest_compaction_as_from_its_first_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(7)
    for round_ in range(60):
        long = LongFile(tmp_path / str(round_))
        for step in range(chance.randrange(2, 12)):
            match chance.randrange(7):
                case 0:
                    long.compact(f"c{step}")
                case 1:
                    long.rollout.lesson(Lesson("p", "chat", f"m{step % 2}", {"parallel": bool(step % 3)}))
                case 2:
                    long.rollout.images_refused(ImagesRefused("p", "m", frozenset({str(step)})))
                case 3:
                    long.write(chance.choice([TORN, TORN + b"\n", b"\0" * 40, b"\xff\xfe\n", b"\r\n"]))
                    long.rollout.close()  # the next line begins where it should
                case _:
                    long.turn(f"t{step}", "ü" * chance.randrange(40), chance.randrange(3))
        monkeypatch.setattr(replay, "BLOCK", chance.choice([64, 1000, 2**20]))
        assert same(long.read(), read_in_full(long.path, monkeypatch)), round_


def test_of_a_history_that_is_too_large_the_newest_part_is_kept(
    long: LongFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "MOST_HISTORY", 60_000)
    long.rollout.item(opening := user("<environment_context>here</environment_context>"))
    for number in range(100):
        long.turn(f"turn {number}", "x" * 1000, calls=2)
    stored = long.read()
    history = settled(stored.responses)
    assert history[0] == opening and history[-1].raw == make_item(says("done turn 99")).raw
    kept = [number for number in range(100) if f'done turn {number}"' in texts(stored)]
    assert 5 <= len(kept) < 50 and kept == list(range(100 - len(kept), 100))
    assert len(history) + stored.left_out == 1 + 100 * 6
    calls = [item.view.call_id for item in history if isinstance(item.view, FunctionCall)]
    assert calls == [item.view.call_id for item in history if isinstance(item.view, FunctionCallOutput)]
    assert b"aborted" not in b"".join(item.raw for item in history)
    assert f"its oldest {stored.left_out:,} items stay in the file" in stored.damage
    long.compact("sum")
    assert long.read().damage == ""


def test_reasoning_and_calls_are_left_out_with_the_rest_of_their_response(
    long: LongFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(60):
        long.rollout.item(make_item(Reasoning(summary=(), encrypted_content=f"why {number}" * 50)))
        for call_id in (f"a{number}", f"b{number}"):
            long.rollout.item(make_item(FunctionCall(call_id=call_id, name="noop", arguments="{}")))
        for call_id in (f"a{number}", f"b{number}"):
            long.rollout.item(make_item(FunctionCallOutput(call_id=call_id, output="x")))
    for most in range(20_000, 40_000, 700):
        monkeypatch.setattr(replay, "MOST_HISTORY", most)
        kinds = [str(item.view.__struct_config__.tag) for item in settled(long.read().responses)]
        whole = ["reasoning", "function_call", "function_call", "function_call_output", "function_call_output"]
        assert kinds == whole * (len(kinds) // 5)


def test_images_that_no_request_would_hold_are_left_out_before_words(
    long: LongFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "MOST_HISTORY", 400_000)
    monkeypatch.setattr(replay, "bounded", lambda items: bounded(items, 100_000))
    for number in range(40):
        image = InputImage(image_url="data:image/png;base64," + "A" * 40_000)
        long.rollout.item(make_item(Message(role="user", content=(InputText(f"picture {number}"), image))))
        long.rollout.item(make_item(says(f"seen {number}")))
        long.rollout.response_end(None)
    stored = long.read()
    assert stored.left_out == 0 and len(settled(stored.responses)) == 80
    assert sum(b"A" * 40_000 in item.raw for item in settled(stored.responses)) in range(2, 10)


def test_a_line_that_is_too_long_is_passed_over(long: LongFile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(salvage, "LONGEST_LINE", 100_000)
    monkeypatch.setattr(salvage, "BLOCK", 10_000)
    long.turn("one")
    long.rollout.item(user("y" * 150_000))
    long.turn("two")
    stored = long.read()
    assert stored.skipped_lines == 1 and "yyy" not in texts(stored)
    assert "done one" in texts(stored) and "done two" in texts(stored)
    index = SessionIndex(str(long.home))
    copy = Path(index.find(index.fork(long.id)).path)
    assert b"y" * 150_000 in copy.read_bytes()


def test_zeros_and_records_over_many_lines_are_read_however_many_there_are(
    long: LongFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(50):
        long.turn(f"turn {number}")
    before = [msgspec.json.decode(item.raw) for item in settled(long.read().responses)]
    data = b"\n".join(msgspec.json.format(line) for line in long.path.read_bytes().splitlines())
    long.path.write_bytes(data + b"\n" + b"\0" * 300_000)
    monkeypatch.setattr(salvage, "MOST_BROKEN", 3000)
    monkeypatch.setattr(salvage, "LONGEST_LINE", 200_000)
    stored = long.read()
    assert [msgspec.json.decode(item.raw) for item in settled(stored.responses)] == before
    assert stored.damage == ""


def test_all_that_was_said_is_shown_also_what_was_compacted(long: LongFile) -> None:
    long.compact("brought")
    long.turn("one")
    long.compact("first")
    long.turn("two")
    long.write(TORN + b"\n")
    with long.path.open("rb") as file:
        lines = salvage.Salvage(file)
        shown = " ".join(item.raw.decode() for item in replay.said(lines))
    for words in ("brought of all", "done one", "done two"):
        assert shown.count(words) == 1
    assert "first of all" not in shown and lines.damaged == 1


READS = """
import resource, sys
from pathlib import Path
from ferrule.session.rollout import read_rollout
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[2]), int(sys.argv[2])))
stored = read_rollout(Path(sys.argv[1]))
print(sum(map(len, stored.responses)), stored.left_out)
"""


def test_a_file_larger_than_the_memory_there_is_can_be_read(long: LongFile) -> None:
    line = b'{"timestamp":"2026-01-01T00:00:00.000Z","type":"response_item","payload":%b}\n'
    block = b"".join(line % user(f"{number} " * 20_000).raw for number in range(10, 99))
    size = 450 * 1024 * 1024
    while long.path.stat().st_size < size:
        long.write(block)
    words = [sys.executable, "-c", READS, str(long.path), str(size)]
    run = subprocess.run(words, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    kept, left_out = map(int, run.stdout.split())
    assert 0 < kept < left_out
