"""The undo log of a turn and the way back: real files, no session."""

import errno
import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import pytest

from ferrule.patch.files import PlainFiles
from ferrule.undo.restore import CHANGED, NO_FILE, NOT_KEPT, ONLY_COPY, take_back
from ferrule.undo.snapshots import OLDER
from ferrule.undo.states import MAX_FILE_BYTES
from ferrule.undo.undo_log import BETWEEN
from tests.undo.trees import change_by_command, picture, plant, undone
from tests.undo.turns import Turn


@pytest.mark.parametrize("seed", range(25))
def test_undo_brings_the_tree_back_byte_for_byte(turn: Turn, seed: int) -> None:
    rnd = random.Random(seed)
    plant(turn.root, rnd)
    first = picture(turn.root)
    turn.begin(snapshot=True)
    for _ in range(rnd.randrange(1, 12)):
        turn.edit(rnd) if rnd.random() < 0.4 else change_by_command(turn.root, rnd)
    turn.end()
    middle = picture(turn.root)
    turn.begin(snapshot=True)
    for _ in range(rnd.randrange(1, 6)):
        change_by_command(turn.root, rnd)
    turn.end()
    for expected in (middle, first) if picture(turn.root) != middle else (first,):
        if picture(turn.root) != expected:
            assert not undone(turn.reopened()).left
        assert picture(turn.root) == expected


@pytest.mark.parametrize("seed", range(15))
def test_undo_of_edits_alone_needs_no_snapshot(turn: Turn, seed: int) -> None:
    rnd = random.Random(seed)
    plant(turn.root, rnd)
    before = picture(turn.root)
    turn.begin()
    for _ in range(8):
        turn.edit(rnd)
    assert picture(turn.root) != before
    assert not undone(turn.reopened()).left and picture(turn.root) == before


def test_what_somebody_changed_since_is_left_alone_and_named(turn: Turn) -> None:
    turn.begin()
    (turn.root / "mine.txt").write_text("one\n")
    turn.patch("*** Update File: mine.txt", "@@", "-one", "+two")
    turn.patch("*** Add File: made/theirs.txt", "+made")
    turn.patch("*** Add File: made/mine.txt", "+made")
    (turn.root / "made" / "theirs.txt").write_text("changed by hand\n")
    outcome = undone(turn.undo_log)
    assert [(one.path, one.reason) for one in outcome.left] == [(str(turn.root / "made/theirs.txt"), CHANGED)]
    assert outcome.restored == (str(turn.root / "made/mine.txt"), str(turn.root / "mine.txt"))
    assert (turn.root / "mine.txt").read_text() == "one\n" and not (turn.root / "made/mine.txt").exists()
    assert (turn.root / "made" / "theirs.txt").read_text() == "changed by hand\n"


def test_a_mode_that_was_changed_since_is_somebodys_too(turn: Turn) -> None:
    (turn.root / "run.sh").write_text("one\n")
    (turn.root / "folder").mkdir(mode=0o755)
    turn.begin(snapshot=True)
    turn.patch("*** Update File: run.sh", "@@", "-one", "+two")
    (turn.root / "folder").chmod(0o700)
    turn.end()
    (turn.root / "run.sh").chmod(0o755)
    (turn.root / "folder").chmod(0o711)
    assert len(undone(turn.undo_log).left) == 2
    assert (turn.root / "run.sh").read_text() == "two\n"
    assert (turn.root / "folder").stat().st_mode & 0o777 == 0o711


def test_a_change_by_something_else_between_two_edits_is_kept(turn: Turn) -> None:
    (turn.root / "f.txt").write_text("one\n")
    turn.begin()
    turn.patch("*** Update File: f.txt", "@@", "-one", "+two")
    (turn.root / "f.txt").write_text("two, by hand\n")
    turn.patch("*** Update File: f.txt", "@@", "-two, by hand", "+three")
    stored = turn.undo_log.last()
    assert stored is not None and stored.notes == {str(turn.root / "f.txt"): BETWEEN}
    undone(turn.undo_log)
    assert (turn.root / "f.txt").read_text() == "two, by hand\n"


def test_no_link_is_followed_that_came_since(turn: Turn) -> None:
    outside = turn.home.parent / "outside"
    outside.mkdir()
    turn.begin()
    turn.patch("*** Add File: folder/f.txt", "+made")
    turn.patch("*** Add File: g.txt", "+made")
    (turn.root / "folder").rename(outside / "folder")
    (turn.root / "folder").symlink_to(outside / "folder")
    (turn.root / "g.txt").rename(outside / "g.txt")
    (turn.root / "g.txt").symlink_to(outside / "g.txt")
    assert len(undone(turn.undo_log).left) == 3
    assert (outside / "folder" / "f.txt").exists() and (outside / "g.txt").exists()


def test_a_file_that_came_from_an_ignored_place_is_not_lost(turn: Turn) -> None:
    (turn.root / ".git").mkdir()
    (turn.root / ".gitignore").write_text(".env\n")
    (turn.root / ".env").write_text("SECRET=1\n")
    (turn.root / "kept").write_text("kept\n")
    for name in (".env", "kept"):
        os.utime(turn.root / name, ns=(0, time.time_ns() - 10**10))
    turn.begin(snapshot=True)
    (turn.root / ".env").rename(turn.root / "env.txt")
    (turn.root / "kept").rename(turn.root / "kept elsewhere")
    turn.end()
    outcome = undone(turn.undo_log)
    assert [(one.path, one.reason) for one in outcome.left] == [(str(turn.root / "env.txt"), OLDER)]
    assert (turn.root / "env.txt").read_text() == "SECRET=1\n"
    assert (turn.root / "kept").exists() and not (turn.root / "kept elsewhere").exists()


def test_rules_that_a_command_changes_make_no_old_file_look_new(turn: Turn) -> None:
    (turn.root / ".git").mkdir()
    (turn.root / ".gitignore").write_text("build/\n*.log\n")
    (turn.root / "build").mkdir()
    (turn.root / "build" / "out").write_text("x")
    (turn.root / "a.log").write_text("x")
    turn.begin(snapshot=True)
    (turn.root / ".gitignore").write_text("")
    (turn.root / "a.log").write_text("touched in the turn, ignored before it")
    (turn.root / "build" / "out").write_text("so was this")
    turn.end()
    assert undone(turn.undo_log).restored == (str(turn.root / ".gitignore"),)
    assert (turn.root / "a.log").exists() and (turn.root / "build" / "out").exists()


def test_a_folder_that_could_not_be_read_is_not_taken_for_new(turn: Turn, monkeypatch: pytest.MonkeyPatch) -> None:
    (turn.root / "closed").mkdir()
    (turn.root / "closed" / "f").write_text("x")
    real = os.scandir

    def refused(path: str) -> object:  # as for a user who is not root
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", refused)
    turn.begin(snapshot=True)
    monkeypatch.undo()
    assert turn.snapshots.compare(Event()) == []


def test_a_folder_that_was_moved_and_left_as_a_link_comes_back(turn: Turn) -> None:
    (turn.root / "data" / "deep").mkdir(parents=True)
    (turn.root / "data" / "deep" / "f").write_bytes(b"precious")
    before = picture(turn.root)
    turn.begin(snapshot=True)
    (turn.root / "data").rename(turn.root / "store")
    (turn.root / "data").symlink_to("store")
    turn.end()
    assert not undone(turn.undo_log).left
    assert picture(turn.root) == before


def test_nothing_is_taken_back_through_a_link_that_somebody_put_in_place_of_the_turns(turn: Turn) -> None:
    (turn.root / "data").mkdir()
    (turn.root / "data" / "f").write_bytes(b"precious")
    (turn.root / "other").mkdir()
    turn.begin(snapshot=True)
    (turn.root / "data").rename(turn.root / "store")
    (turn.root / "data").symlink_to("store")
    turn.end()
    (turn.root / "data").unlink()
    (turn.root / "data").symlink_to("other")
    left = {Path(one.path).name: one.reason for one in undone(turn.undo_log).left}
    assert left.keys() == {"data", "f"} and "leads elsewhere" in left["f"]
    assert not list((turn.root / "other").iterdir())


@pytest.mark.parametrize("how", ["moved", "copied", "over another"])
def test_the_only_copy_of_a_large_file_stays(turn: Turn, how: str) -> None:
    large, target = turn.root / "large", turn.root / "elsewhere"
    large.write_bytes(b"x" * (MAX_FILE_BYTES + 1))
    if how == "over another":
        target.write_bytes(b"small")
    turn.begin(snapshot=True)
    if how == "copied":
        target.write_bytes(large.read_bytes())
        large.unlink()
    else:
        large.rename(target)
    turn.end()
    left = {Path(one.path).name: one.reason for one in undone(turn.undo_log).left}
    assert left == {"large": NOT_KEPT, "elsewhere": ONLY_COPY}
    assert target.stat().st_size == MAX_FILE_BYTES + 1


def test_what_is_no_file_is_not_called_too_large(turn: Turn) -> None:
    os.mkfifo(turn.root / "pipe")
    turn.begin(snapshot=True)
    (turn.root / "pipe").unlink()
    turn.end()
    assert [one.reason for one in undone(turn.undo_log).left] == [NO_FILE]


def test_a_file_with_two_names_that_somebody_shortened_is_left_alone(turn: Turn) -> None:
    path = turn.root / "hard"
    path.write_bytes(b"one\ntwo\n")
    (turn.root / "other").hardlink_to(path)
    turn.begin(snapshot=True)
    path.write_bytes(b"one\ntwo\nthree\n")
    turn.end()
    path.write_bytes(b"one\n")
    assert {one.reason for one in undone(turn.undo_log).left} == {CHANGED}
    assert path.read_bytes() == b"one\n"


class Refusing(PlainFiles):
    """Refuses one name."""

    @contextmanager
    def at(self, path: str) -> Iterator[tuple[str, int | None]]:
        if path.endswith("/protected"):
            raise PermissionError(errno.EACCES, "protected", path)
        yield path, None


def test_what_stood_behind_a_link_that_stays_is_left_alone(turn: Turn) -> None:
    (turn.root / "protected").mkdir()
    (turn.root / "protected" / "f").write_bytes(b"precious")
    (turn.root / "other").mkdir()
    turn.begin(snapshot=True)
    (turn.root / "protected" / "f").unlink()
    (turn.root / "protected").rmdir()
    (turn.root / "protected").symlink_to("other")
    turn.end()
    stored = turn.undo_log.last()
    assert stored is not None
    left = {Path(one.path).name for one in take_back(stored.changes, Refusing(), stored.contents.get).left}
    assert left == {"protected", "f"} and not list((turn.root / "other").iterdir())


def test_the_only_copy_of_a_file_that_may_not_come_back_stays(turn: Turn) -> None:
    (turn.root / "protected").write_bytes(b"precious")
    turn.begin(snapshot=True)
    (turn.root / "protected").rename(turn.root / "moved")
    turn.end()
    stored = turn.undo_log.last()
    assert stored is not None
    left = take_back(stored.changes, Refusing(), stored.contents.get).left
    assert [(Path(one.path).name, one.reason) for one in left] == [("moved", ONLY_COPY), ("protected", "protected")]
    assert (turn.root / "moved").read_bytes() == b"precious"
