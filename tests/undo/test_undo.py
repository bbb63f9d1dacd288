"""The undo log of a turn, the snapshots around it, and the way back: real files, no session."""

import errno
import fcntl
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event

import pytest

from ferrule.dispatch.unfinished import PatchJournal, put_right
from ferrule.patch import apply_patch
from ferrule.patch.files import PlainFiles
from ferrule.undo import snapshots as snapshots_module
from ferrule.undo import undo_log as undo_log_module
from ferrule.undo.restore import CHANGED, NO_FILE, NOT_KEPT, ONLY_COPY, take_back
from ferrule.undo.snapshots import OLDER, Bounds, Snapshots, TooMuch
from ferrule.undo.states import MAX_FILE_BYTES, Content, capture
from ferrule.undo.undo_log import BETWEEN, UndoLog
from tests.patch.tree import patch
from tests.undo.trees import change_by_command, picture, plant, some, undone

BOUNDS = Bounds(bytes=100_000_000, files=1000, seconds=60)


class Turn:
    """A workspace with an undo log and snapshots; `report` has what the user was told."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "work"
        self.root.mkdir()
        self.home = folder / "home"
        self.report: list[str] = []
        self.undo_log = self.reopened()
        self.snapshots = Snapshots(str(self.home), str(self.root), BOUNDS)
        self.number = 0

    def reopened(self) -> UndoLog:
        return UndoLog(str(self.home), "a-session", self.report.append)

    def begin(self, *, snapshot: bool = False) -> None:
        self.number += 1
        self.undo_log.begin(str(self.number))
        if snapshot:
            self.snapshots.take(Event())

    def end(self) -> None:
        self.undo_log.compared(self.snapshots.compare(Event()), self.snapshots.content, self.snapshots.covers)

    def patch(self, *lines: str) -> None:
        names = [line.rpartition(": ")[2] for line in lines if line.startswith("*** ")]
        with self.undo_log.writing([str(self.root / name) for name in names]):
            apply_patch(patch(*lines), str(self.root))

    def edit(self, rnd: random.Random) -> None:
        """One edit as a tool makes it."""
        path = some(self.root, rnd)
        if path is None or rnd.random() < 0.3:
            path = self.root / f"made{rnd.randrange(3)}" / f"deep{rnd.randrange(3)}" / "m.txt"
        name = str(path.relative_to(self.root))
        if not path.exists():
            self.patch(f"*** Add File: {name}", "+made")
        elif rnd.random() < 0.3:
            self.patch(f"*** Delete File: {name}")
        else:
            with self.undo_log.writing([str(path)]):
                mode = path.stat().st_mode & 0o777
                path.unlink()
                PlainFiles().create(str(path), rnd.randbytes(20), mode)


@pytest.fixture
def turn(tmp_path: Path) -> Iterator[Turn]:
    made = Turn(tmp_path.resolve())
    yield made
    made.snapshots.close()


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


STEPS = {
    "open",
    "os.rename",
    "os.remove",
    "os.rmdir",
    "os.mkdir",
    "os.chmod",
    "os.symlink",
    "os.listdir",
    "os.truncate",
}


def _die_at_the_end(steps: Iterator[int]) -> None:
    if next(steps, None) is None:
        os.kill(os.getpid(), signal.SIGKILL)


def killed_at(event: int, turn: Turn) -> bool:
    """Take the last turn back in a process that kills itself at its n-th step on disk. False: it came to its end."""
    child = os.fork()
    if not child:
        try:
            steps = iter(range(event))
            stored = turn.undo_log.last()
            assert stored is not None
            sys.addaudithook(lambda name, _: _die_at_the_end(steps) if name in STEPS else None)
            take_back(stored.changes, PlainFiles(), stored.contents.get, PatchJournal(str(turn.home)))
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


def test_a_kill_leaves_no_half_file_and_a_second_undo_completes_it(turn: Turn) -> None:
    rnd = random.Random(3)
    plant(turn.root, rnd)
    (turn.root / "hard").write_bytes(b"two names " * 100)
    (turn.root / "plain").write_bytes(b"one name " * 100)
    (turn.root / "other name").hardlink_to(turn.root / "hard")
    before = picture(turn.root)
    moment, killed = 0, True
    while killed:
        turn.begin(snapshot=True)
        (turn.root / "a").rename(turn.root / "moved")
        (turn.root / "hard").write_bytes(b"short")
        (turn.root / "plain").write_bytes(b"short")
        (turn.root / "empty").rmdir()
        (turn.root / "empty").write_bytes(b"no folder")
        (turn.root / "link").unlink()
        (turn.root / "new").mkdir()
        (turn.root / "new" / "file").write_bytes(b"x" * 1000)
        turn.end()
        after = picture(turn.root)
        moment += 2
        killed = killed_at(moment, turn)
        put_right(str(turn.home))
        for name, seen in picture(turn.root).items():
            assert seen in (before.get(name), after.get(name)) or "folder" in seen, name
        assert not undone(turn.undo_log).left
        assert picture(turn.root) == before
    assert moment > 50


def test_a_file_with_two_names_keeps_both_and_is_completed_after_a_kill(turn: Turn) -> None:
    path = turn.root / "hard"
    path.write_bytes(b"what it was")
    (turn.root / "other").hardlink_to(path)
    turn.begin(snapshot=True)
    path.write_bytes(b"changed")
    turn.end()

    class Half(PlainFiles):
        def _fill(self, fd: int, data: bytes, mode: int | None = None) -> None:
            os.write(fd, data[:4])
            os.kill(os.getpid(), signal.SIGKILL)

    assert killed_in(turn, Half()) and path.read_bytes() == b"what"
    assert put_right(str(turn.home)) and path.read_bytes() == b"changed"
    assert not undone(turn.undo_log).left
    assert path.read_bytes() == b"what it was" and path.samefile(turn.root / "other")


def killed_in(turn: Turn, files: PlainFiles) -> bool:
    """Take the last turn back by a process of its own; True if it was killed."""
    stored = turn.undo_log.last()
    assert stored is not None
    child = os.fork()
    if not child:
        try:
            take_back(stored.changes, files, stored.contents.get, PatchJournal(str(turn.home)))
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


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


class Full(PlainFiles):
    """A disk that is full from the second write on; what is written in place is cut in half."""

    def __init__(self) -> None:
        super().__init__()
        self.writes = 0

    def _fill(self, fd: int, data: bytes, mode: int | None = None) -> None:
        self.writes += 1
        if self.writes == 2:
            os.write(fd, data[: len(data) // 2])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super()._fill(fd, data, mode)


def test_a_full_disk_leaves_each_file_whole_and_the_turn_for_another_try(turn: Turn) -> None:
    for name in ("a", "b"):
        (turn.root / name).write_bytes(b"from before " + name.encode())
    (turn.root.parent / "b2").hardlink_to(turn.root / "b")
    before = picture(turn.root)
    turn.begin(snapshot=True)
    for name in ("a", "b"):
        (turn.root / name).write_bytes(b"new")
    turn.end()
    stored = turn.undo_log.last()
    assert stored is not None
    outcome = take_back(stored.changes, Full(), stored.contents.get)
    assert outcome.failed and [Path(path).name for path in outcome.restored] == ["a"]
    assert (turn.root / "b").read_bytes() == b"new"
    again = take_back(stored.changes, PlainFiles(), stored.contents.get)
    assert not again.failed and not again.left and picture(turn.root) == before


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
