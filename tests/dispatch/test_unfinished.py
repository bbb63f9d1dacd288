"""A patch whose process is killed at any step: each file is as before or as after it, once the next one has begun."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from ferrule.dispatch.unfinished import FOLDER, PatchJournal, put_right
from ferrule.patch import PlainFiles, apply, parse, plan
from tests.patch.test_writer import AFTER, EVERYTHING, Breaking, build, steps
from tests.patch.tree import patch, snapshot, update


class Killing(Breaking):
    """Kills its process before a change, or in the middle of a rewrite."""

    def rewrite(self, path: str, data: bytes) -> None:
        if self.calls == self._at:
            PlainFiles.rewrite(self, path, data[: len(data) // 2])
        super().rewrite(path, data)

    def _step(self) -> None:
        if self.calls == self._at:
            os.kill(os.getpid(), signal.SIGKILL)
        self.calls += 1


def killed(work: Callable[[], object]) -> bool:
    """Do it in a process of its own; True if it was killed."""
    pid = os.fork()
    if not pid:
        try:
            work()
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL


def apply_in(root: Path, home: Path, text: str, files: PlainFiles) -> None:
    apply(plan(parse(text), files, str(root)), files, journal=PatchJournal(str(home)))


def test_a_kill_at_any_step_leaves_no_half_file_and_nothing_of_ours(tmp_path: Path) -> None:
    for at in range(steps(tmp_path)):
        root, home = tmp_path / f"{at}", tmp_path / f"home{at}"
        build(root)
        before = snapshot(root)
        assert killed(lambda root=root, home=home, at=at: apply_in(root, home, EVERYTHING, Killing(at)))  # type: ignore[misc]
        put_right(str(home))
        left = snapshot(root)
        assert not [name for name in left if ".ferrule-" in name], at
        whole = {name: (before.get(name), AFTER.get(name)) for name in left} | {"a": (b"a\n", b"A\n", AFTER["a"])}
        assert all(content in whole[name] for name, content in left.items()), at
        assert left.keys() >= before.keys() & AFTER.keys(), at
        assert not list((home / FOLDER).glob("*")), at


@pytest.mark.skipif(not hasattr(os, "O_TMPFILE"), reason="a file without a name is Linux's")
@pytest.mark.parametrize(
    "text", [patch("*** Add File: f", *(f"+{n}" for n in range(9))), update("g", "@@", "-1", "+2")]
)
def test_a_kill_in_the_middle_of_a_write_leaves_no_half_file(tmp_path: Path, text: str) -> None:
    (tmp_path / "g").write_text("1\n")

    class Half(PlainFiles):
        def _fill(self, fd: int, data: bytes, mode: int | None = None) -> None:
            os.write(fd, data[: len(data) // 2])
            os.kill(os.getpid(), signal.SIGKILL)

    assert killed(lambda: apply_in(tmp_path, tmp_path / "home", text, Half()))
    put_right(str(tmp_path / "home"))
    assert snapshot(tmp_path).items() >= {"g": b"1\n"}.items()
    assert not (tmp_path / "f").exists() and not list(tmp_path.glob(".ferrule-*"))


def test_the_notes_of_a_living_process_are_left_alone(tmp_path: Path) -> None:
    ours = tmp_path / ".ferrule-1"
    ours.write_text("being written")
    journal = PatchJournal(str(tmp_path))
    journal.beside(str(ours))
    assert put_right(str(tmp_path)) == [] and ours.exists()
    journal.ended()
    assert not list((tmp_path / FOLDER).glob("*"))


@pytest.mark.parametrize("found", [b"a user's own words", b"before, all of it", b"after, all of it"])
def test_what_is_no_half_of_a_patch_is_left_alone(tmp_path: Path, found: bytes) -> None:
    file = tmp_path / "file"
    file.write_bytes(found)

    def note() -> None:
        PatchJournal(str(tmp_path)).rewriting(str(file), b"before, all of it", b"after, all of it")
        os.kill(os.getpid(), signal.SIGKILL)

    assert killed(note)
    assert put_right(str(tmp_path)) == [] and file.read_bytes() == found


def test_a_half_written_file_is_restored_and_told(tmp_path: Path) -> None:
    file = tmp_path / os.fsdecode(b"caf\xe9")
    file.write_bytes(b"after, a")

    def note() -> None:
        PatchJournal(str(tmp_path)).rewriting(str(file), b"before, all of it", b"after, all of it")
        os.kill(os.getpid(), signal.SIGKILL)

    assert killed(note)
    [told] = put_right(str(tmp_path))
    assert "half written" in told and file.read_bytes() == b"before, all of it"
    assert put_right(str(tmp_path)) == []


def test_notes_that_cannot_be_kept_stop_no_patch(tmp_path: Path) -> None:
    (tmp_path / FOLDER).write_text("a file where the folder should be")
    (tmp_path / "g").write_text("1\n")
    apply_in(tmp_path, tmp_path, update("g", "@@", "-1", "+2"), PlainFiles())
    assert (tmp_path / "g").read_text() == "2\n"
    assert put_right(str(tmp_path)) == []


def test_what_was_put_aside_is_given_back_until_the_patch_is_applied(tmp_path: Path) -> None:
    text = patch("*** Delete File: f", "*** Update File: g", "@@", "-1", "+2")
    left = []
    for at in range(4):  # put f aside, write the new g, rename it, remove what was put aside
        root, home = tmp_path / f"{at}", tmp_path / f"home{at}"
        root.mkdir()
        (root / "f").write_text("words\n")
        (root / "g").write_text("1\n")
        assert killed(lambda root=root, home=home, at=at: apply_in(root, home, text, Killing(at)))  # type: ignore[misc]
        put_right(str(home))
        left.append(snapshot(root))
    before = {"f": b"words\n", "g": b"1\n"}
    assert left == [before, before, before, {"g": b"2\n"}]


def noted(work: Callable[[PatchJournal], None], home: Path) -> None:
    """Note something in a process that is killed then."""

    def note() -> None:
        work(PatchJournal(str(home)))
        os.kill(os.getpid(), signal.SIGKILL)

    assert killed(note)


@pytest.mark.parametrize("link", ["file", "folder"])
def test_no_link_is_followed_that_came_since(tmp_path: Path, link: str) -> None:
    (tmp_path / "other").mkdir()
    theirs = tmp_path / "other" / "file"
    theirs.write_bytes(b"")
    path = tmp_path / "work" / "file"
    noted(lambda journal: journal.rewriting(str(path), b"before", b"after"), tmp_path)
    if link == "folder":
        path.parent.symlink_to("other")
    else:
        path.parent.mkdir()
        path.symlink_to(theirs)
    assert put_right(str(tmp_path)) == [] and theirs.read_bytes() == b""


def test_what_was_put_aside_stays_where_another_file_has_its_name_now(tmp_path: Path) -> None:
    aside, original = tmp_path / ".ferrule-1", tmp_path / "file"
    noted(lambda journal: journal.beside(str(aside), str(original)), tmp_path)
    aside.write_bytes(b"not committed")
    original.write_bytes(b"from the repository")
    [told] = put_right(str(tmp_path))
    assert str(aside) in told and str(original) in told
    assert (aside.read_bytes(), original.read_bytes()) == (b"not committed", b"from the repository")


def test_what_was_put_aside_goes_where_the_same_file_is_back(tmp_path: Path) -> None:
    aside, original = tmp_path / ".ferrule-1", tmp_path / "file"
    noted(lambda journal: journal.beside(str(aside), str(original)), tmp_path)
    aside.write_bytes(b"words")
    original.write_bytes(b"words")
    assert put_right(str(tmp_path)) == [] and original.exists() and not aside.exists()
