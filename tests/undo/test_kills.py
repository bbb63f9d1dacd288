"""Undo that is killed, or that a full disk stops: no file is left half, and another try completes it."""

import errno
import os
import random
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from ferrule.dispatch.unfinished import PatchJournal, put_right
from ferrule.patch.files import PlainFiles
from ferrule.undo.restore import take_back
from tests.undo.trees import picture, plant, undone
from tests.undo.turns import Turn

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
