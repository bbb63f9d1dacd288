"""A session's record: what happens where its file cannot be written."""

from pathlib import Path

from ferrule.protocol.content import InputText
from ferrule.protocol.items import Message, make_item
from ferrule.session.record import SessionRecord
from ferrule.session.rollout import Rollout

HELLO = make_item(Message(role="user", content=(InputText("hello"),)))


def test_a_session_goes_on_without_its_file_and_says_so_once(tmp_path: Path) -> None:
    (tmp_path / "sessions").write_text("a file where the folder would be")
    told: list[str] = []
    record = SessionRecord(Rollout(tmp_path / "sessions" / "rollout.jsonl"), told.append)
    record.item(HELLO)
    record.note("turn_aborted")
    record.close()
    assert told == [f"the session cannot be saved in {tmp_path}/sessions/rollout.jsonl: Not a directory"]


def test_without_a_file_nothing_is_written_and_nothing_told() -> None:
    told: list[str] = []
    record = SessionRecord(None, told.append)
    record.item(HELLO)
    record.close()
    assert told == []
