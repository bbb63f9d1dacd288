"""The store of contents and its snapshots: private, bounded, read once."""

import errno
import fcntl
import os
import time
from pathlib import Path
from threading import Event

import pytest

from ferrule.undo import snapshots as snapshots_module
from ferrule.undo import undo_log as undo_log_module
from ferrule.undo.restore import NOT_KEPT
from ferrule.undo.snapshots import Bounds, Snapshots, TooMuch
from ferrule.undo.states import MAX_FILE_BYTES, Content, capture
from ferrule.undo.undo_log import UndoLog
from tests.undo.trees import picture, undone
from tests.undo.turns import BOUNDS, Turn


def test_a_large_file_is_named_as_not_kept(turn: Turn) -> None:
    with (turn.root / "large").open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    turn.begin(snapshot=True)
    (turn.root / "large").unlink()
    with (turn.root / "made").open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 2)
    turn.end()
    outcome = undone(turn.undo_log)
    assert [(one.path, one.reason) for one in outcome.left] == [(str(turn.root / "large"), NOT_KEPT)]
    assert not (turn.root / "made").exists()


def test_bounds_of_a_snapshot(turn: Turn) -> None:
    for number in range(5):
        (turn.root / f"f{number}").write_bytes(b"x" * 100)
    for bounds, setting in (
        (Bounds(10_000, 4, 60), "snapshot_max_files"),
        (Bounds(499, 100, 60), "snapshot_max_bytes"),
        (Bounds(10_000, 100, 0), "snapshot_timeout"),
    ):
        snapshots = Snapshots(str(turn.home), str(turn.root), bounds)
        with pytest.raises(TooMuch, match=setting):
            snapshots.take(Event())
        assert snapshots.compare(Event()) == []
        snapshots.close()
    stop = Event()
    stop.set()
    with pytest.raises(TooMuch, match="ended"):
        turn.snapshots.take(stop)


def test_an_unchanged_tree_is_not_read_again(turn: Turn, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(20):
        (turn.root / f"f{number}").write_bytes(b"%d" % number)
        os.utime(turn.root / f"f{number}", ns=(0, 0))
    monkeypatch.setattr(snapshots_module, "RACY_NS", 0)
    turn.snapshots.take(Event())
    turn.snapshots.close()
    again = Snapshots(str(turn.home), str(turn.root), BOUNDS)
    read: list[str] = []

    def reading(path: str, found: os.stat_result) -> Content:
        read.append(path)
        return capture(path, found)

    monkeypatch.setattr(snapshots_module, "capture", reading)
    again.take(Event())
    (turn.root / "f7").write_bytes(b"x")
    assert [change.path for change in again.compare(Event())] == [os.fsencode(turn.root / "f7")]
    assert read == [str(turn.root / "f7")]
    assert again.content(again.compare(Event())[0].before.digest) == b"7"
    again.close()


def test_a_change_in_the_same_tick_with_the_same_size_is_seen(turn: Turn, monkeypatch: pytest.MonkeyPatch) -> None:
    path = turn.root / "f"
    path.write_bytes(b"one")
    monkeypatch.setattr(snapshots_module, "_stamp", lambda found: (0, found.st_size, found.st_ino, 0))
    turn.snapshots.take(Event())
    with path.open("r+b") as file:
        file.write(b"two")
    assert [change.path for change in turn.snapshots.compare(Event())] == [os.fsencode(path)]


def test_contents_that_nobody_needs_go_and_those_in_use_stay(turn: Turn) -> None:
    packs = turn.home / "snapshots"
    (turn.root / "f").write_bytes(b"one")
    turn.begin(snapshot=True)
    (turn.root / "f").write_bytes(b"two, of another session")
    other = Snapshots(str(turn.home), str(turn.root), BOUNDS)
    other.take(Event())
    turn.end()
    assert undone(turn.undo_log).restored and (turn.root / "f").read_bytes() == b"one"
    other.close()
    turn.snapshots.close()
    (turn.root / "f").write_bytes(b"three")
    turn.snapshots.take(Event())
    assert sum(1 for _ in packs.glob("*/packs/*")) == 1


def test_the_store_is_private_and_bounded(turn: Turn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(undo_log_module, "KEPT_SESSIONS", 2)
    monkeypatch.setattr(undo_log_module, "SESSION_BYTES", 3000)
    monkeypatch.setattr(snapshots_module, "KEPT_WORKSPACES", 2)
    for number in range(4):
        turn.begin()
        with turn.undo_log.writing([str(turn.root / "f")]):
            (turn.root / "f").write_bytes(b"%d" % number * 1000)
    assert sorted(path.name for path in turn.undo_log.folder.iterdir()) == ["3.jsonl", "4.jsonl"]
    for number in range(3):
        other = UndoLog(str(turn.home), f"session-{number}", turn.report.append)
        other.begin("1")
        with other.writing([str(turn.root / "g")]):
            (turn.root / "g").write_bytes(b"%d" % number)
        os.utime(other.folder, ns=(0, time.time_ns() + number))
        snapshots = Snapshots(str(turn.home), str(turn.root), BOUNDS)
        snapshots.take(Event())
        snapshots.close()
    assert len(list((turn.home / "undo").iterdir())) == 2
    for path in turn.home.rglob("*"):
        assert path.stat().st_mode & 0o077 == 0, path


def test_too_much_for_one_turn_is_said_by_undo(turn: Turn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(undo_log_module, "TURN_BYTES", 10)
    (turn.root / "f").write_bytes(b"longer than ten bytes")
    turn.begin()
    with turn.undo_log.writing([str(turn.root / "f")]):
        (turn.root / "f").write_bytes(b"short")
    assert [one.reason for one in undone(turn.undo_log).left] == [NOT_KEPT]


def test_work_goes_on_where_nothing_can_be_kept_and_that_is_said_once(turn: Turn) -> None:
    (turn.home.parent / "home").write_text("a file where the folder would be")
    turn.begin()
    for text in ("one", "two"):
        with turn.undo_log.writing([str(turn.root / "f")]):
            (turn.root / "f").write_text(text)
    assert (turn.root / "f").read_text() == "two" and turn.undo_log.last() is None
    assert len(turn.report) == 1 and "not kept for undo" in turn.report[0]


def test_a_damaged_line_of_the_journal_is_passed_over(turn: Turn) -> None:
    turn.begin()
    turn.patch("*** Add File: f.txt", "+made")
    [path] = turn.undo_log.folder.iterdir()
    with path.open("ab") as file:
        file.write(b'{"type":"edits","changes":[["')
    turn.patch("*** Add File: g.txt", "+made")
    assert len(undone(turn.undo_log).restored) == 2 and picture(turn.root) == {}


def test_moves_beyond_the_room_of_a_turn_lose_nothing(turn: Turn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(undo_log_module, "TURN_BYTES", 250)
    contents = {b"%d" % number * 100 for number in range(4)}
    (turn.root / "new").mkdir()
    for number in range(4):
        (turn.root / f"f{number}").write_bytes(b"%d" % number * 100)
    turn.begin(snapshot=True)
    for number in range(4):
        (turn.root / f"f{number}").rename(turn.root / "new" / f"f{number}")
    turn.end()
    assert undone(turn.undo_log).left
    assert {path.read_bytes() for path in turn.root.rglob("f*")} == contents


def test_a_store_on_a_file_system_without_locks_works(turn: Turn, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    for text in (b"1", b"2", b"3"):
        (turn.root / "f").write_bytes(text)
        turn.begin(snapshot=True)
    (turn.root / "f").write_bytes(b"4")
    turn.end()
    assert not undone(turn.undo_log).left and (turn.root / "f").read_bytes() == b"3"
    assert len(list(turn.home.glob("snapshots/*/packs/*"))) == 1


def test_the_home_itself_has_no_snapshot(turn: Turn) -> None:
    turn.home.mkdir()
    with pytest.raises(OSError, match="own home"):
        Snapshots(str(turn.home), str(turn.home), BOUNDS).take(Event())
    assert not list(turn.home.iterdir())


@pytest.mark.parametrize("name", ["../sessions", "", ".", "/etc/x", "a/../../sessions"])
def test_an_id_that_is_no_plain_name_leads_nowhere_else(tmp_path: Path, name: str) -> None:
    (tmp_path / "sessions").mkdir()
    (tmp_path / "undo" / "another").mkdir(parents=True)
    undo_log_module.remove_session(str(tmp_path), name)
    assert (tmp_path / "sessions").exists() and (tmp_path / "undo" / "another").exists()
    assert UndoLog(str(tmp_path), name, print).folder.parent == tmp_path / "undo"
