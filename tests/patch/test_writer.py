"""All or nothing: every step of an application may fail, and then nothing has happened."""

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from ferrule.patch import ApplyError, Entry, MatchError, PlainFiles, apply, apply_patch, parse, plan
from tests.patch.tree import patch, snapshot, update


class Breaking(PlainFiles):
    """Fails at the `at`-th changing call (0-based) and counts them; with `stuck` it fails from then on."""

    CHANGES = ("create", "rename", "link", "rewrite", "unlink", "make_parents", "rmdir")

    def __init__(self, at: int, *, stuck: bool = False, error: int = errno.EIO) -> None:
        super().__init__()
        self.calls = 0
        self._at = at
        self._stuck = stuck
        self._error = error

    def create(self, path: str, data: bytes, mode: int | None = None) -> None:
        self._step()
        super().create(path, data, mode)

    def rename(self, source: str, target: str) -> None:
        self._step()
        super().rename(source, target)

    def link(self, source: str, target: str) -> None:
        self._step()
        super().link(source, target)

    def rewrite(self, path: str, data: bytes) -> None:
        try:
            self._step()
        except OSError:
            super().rewrite(path, data[: len(data) // 2])
            raise
        super().rewrite(path, data)

    def unlink(self, path: str) -> None:
        self._step()
        super().unlink(path)

    def make_parents(self, path: str) -> tuple[str, ...]:
        self._step()
        return super().make_parents(path)

    def _step(self) -> None:
        self.calls += 1
        if self.calls - 1 == self._at or (self._stuck and self.calls > self._at):
            raise OSError(self._error, os.strerror(self._error))


def build(root: Path) -> None:
    """A tree with every kind of file that matters."""
    (root / "sub").mkdir(parents=True)
    (root / "a").write_bytes(b"a\n")
    (root / "a").chmod(0o750)
    (root / "b").write_bytes(b"b\n")
    (root / "twin").hardlink_to(root / "b")
    (root / "c").write_bytes(b"c\n")
    (root / "d").write_bytes(b"d\n")
    (root / "sub/e").write_bytes(b"e\n")
    (root / "link").symlink_to("sub/e")
    (root / "gone").symlink_to("c")
    (root / "old").write_bytes(b"old\n")


EVERYTHING = patch(
    "*** Add File: new/deep/file",
    "+x",
    "*** Update File: a",
    "@@",
    "-a",
    "+A",
    "*** Update File: b",
    "@@",
    "-b",
    "+B",
    "*** Update File: link",
    "@@",
    "-e",
    "+E",
    "*** Delete File: gone",
    "*** Update File: c",
    "*** Move to: moved/c",
    "*** Update File: d",
    "*** Move to: moved/d",
    "@@",
    "-d",
    "+D",
    "*** Delete File: old",
    "*** Add File: old",
    "+young",
    "*** Update File: a",
    "@@",
    "+again",
)

AFTER = {
    "a": b"A\nagain\n",
    "b": b"B\n",
    "link": b"-> sub/e",
    "moved": None,
    "moved/c": b"c\n",
    "moved/d": b"D\n",
    "new": None,
    "new/deep": None,
    "new/deep/file": b"x\n",
    "old": b"young\n",
    "sub": None,
    "sub/e": b"E\n",
    "twin": b"B\n",
}


def state(root: Path) -> dict[str, tuple[bytes | None, int, int]]:
    """Contents, modes and, of files, link counts."""
    seen: dict[str, tuple[bytes | None, int, int]] = {}
    for name, content in snapshot(root).items():
        found = (root / name).lstat()
        seen[name] = (content, stat.S_IMODE(found.st_mode), 0 if content is None else found.st_nlink)
    return seen


def test_everything_at_once(tmp_path: Path) -> None:
    build(tmp_path)
    apply_patch(EVERYTHING, str(tmp_path))
    assert snapshot(tmp_path) == AFTER
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o750
    assert (tmp_path / "twin").samefile(tmp_path / "b")


def steps(tmp_path: Path) -> int:
    build(tmp_path / "count")
    files = Breaking(-1)
    apply_patch(EVERYTHING, str(tmp_path / "count"), files)
    return files.calls


def test_a_failure_at_any_step_leaves_everything_as_it_was(tmp_path: Path) -> None:
    total = steps(tmp_path)
    assert total > 20
    for at in range(total):
        root = tmp_path / str(at)
        build(root)
        before = state(root)
        message = failure_of(root, Breaking(at))
        if not message:
            assert snapshot(root) == AFTER, at
        elif "could not be removed" in message:
            left = snapshot(root)
            assert AFTER.items() <= left.items()
            assert all(".ferrule-" in name for name in left.keys() - AFTER.keys())
        else:
            assert "Nothing was changed" in message, at
            assert state(root) == before, at


def failure_of(root: Path, files: PlainFiles) -> str:
    """The error of applying `EVERYTHING`, or nothing."""
    try:
        apply_patch(EVERYTHING, str(root), files)
    except ApplyError as error:
        return str(error)
    return ""


def test_where_the_system_stays_broken_the_error_tells_what_is_left(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a\n")
    (tmp_path / "b").write_bytes(b"b\n")
    text = patch("*** Update File: a", "@@", "-a", "+A", "*** Add File: new/b", "+x")
    with pytest.raises(ApplyError, match=r"NOT restored: .*/a \(.*its old content is in (\S+)\)") as failed:
        apply_patch(text, str(tmp_path), Breaking(3, stuck=True))
    kept = str(failed.value).split("its old content is in ")[1].split(")")[0]
    assert Path(kept).read_bytes() == b"a\n"


@pytest.mark.parametrize("refusal", [errno.EACCES, errno.EROFS, errno.EBUSY])
def test_where_a_folder_refuses_new_files_the_file_is_rewritten(tmp_path: Path, refusal: int) -> None:
    (tmp_path / "a").write_bytes(b"a\n")
    inode = (tmp_path / "a").stat().st_ino

    class Refusing(PlainFiles):
        def create(self, path: str, data: bytes, mode: int | None = None) -> None:
            raise OSError(refusal, os.strerror(refusal))

    apply_patch(update("a", "@@", "-a", "+A"), str(tmp_path), Refusing())
    assert snapshot(tmp_path) == {"a": b"A\n"}
    assert (tmp_path / "a").stat().st_ino == inode


def test_a_file_system_without_links(tmp_path: Path) -> None:
    class NoLinks(PlainFiles):
        def link(self, source: str, target: str) -> None:
            raise OSError(errno.EPERM, "Operation not permitted")

    build(tmp_path)
    apply_patch(EVERYTHING, str(tmp_path), NoLinks())
    assert snapshot(tmp_path) == AFTER


def test_a_move_over_the_border_of_a_file_system(tmp_path: Path) -> None:
    class Borders(PlainFiles):
        def rename(self, source: str, target: str) -> None:
            if os.path.dirname(source) != os.path.dirname(target):
                raise OSError(errno.EXDEV, "Invalid cross-device link")
            super().rename(source, target)

    (tmp_path / "run").write_bytes(b"x\n")
    (tmp_path / "run").chmod(0o711)
    apply_patch(update("run", "*** Move to: bin/run"), str(tmp_path), Borders())
    assert snapshot(tmp_path) == {"bin": None, "bin/run": b"x\n"}
    assert stat.S_IMODE((tmp_path / "bin/run").stat().st_mode) == 0o711


def test_an_interrupt_rolls_back(tmp_path: Path) -> None:
    class Interrupted(PlainFiles):
        def unlink(self, path: str) -> None:
            if path.endswith("/b"):
                raise KeyboardInterrupt
            super().unlink(path)

    (tmp_path / "a").write_bytes(b"a\n")
    (tmp_path / "b").write_bytes(b"b\n")
    before = state(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        apply_patch(patch("*** Update File: a", "@@", "-a", "+A", "*** Delete File: b"), str(tmp_path), Interrupted())
    assert state(tmp_path) == before


@pytest.mark.parametrize(
    "meddle",
    [
        lambda root: (root / "a").write_bytes(b"other\n"),
        lambda root: (root / "a").unlink(),
        lambda root: (root / "a").chmod(0o600),
        lambda root: (root / "new").write_bytes(b"theirs\n"),
    ],
)
def test_a_file_that_changed_since_the_plan_is_not_touched(tmp_path: Path, meddle: Callable[[Path], object]) -> None:
    (tmp_path / "a").write_bytes(b"a\n")
    text = patch("*** Update File: a", "@@", "-a", "+A", "*** Add File: new", "+x")
    planned = plan(parse(text), PlainFiles(), str(tmp_path))
    meddle(tmp_path)
    before = snapshot(tmp_path)
    with pytest.raises(ApplyError, match="changed since the patch was checked"):
        apply(planned, PlainFiles())
    assert snapshot(tmp_path) == before


def test_deleting_a_link_leaves_its_target(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"x\n")
    (tmp_path / "link").symlink_to("real")
    (operation,) = plan(parse(patch("*** Delete File: link")), PlainFiles(), str(tmp_path)).operations
    assert operation.targets == (str(tmp_path / "link"),)
    apply_patch(patch("*** Delete File: link", "*** Add File: link", "+own"), str(tmp_path))
    assert snapshot(tmp_path) == {"link": b"own\n", "real": b"x\n"}


def test_moving_a_link_leaves_its_target(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"x\n")
    (tmp_path / "link").symlink_to("real")
    apply_patch(update("link", "*** Move to: sub/file", "@@", "-x", "+y"), str(tmp_path))
    assert snapshot(tmp_path) == {"real": b"x\n", "sub": None, "sub/file": b"y\n"}


def test_adding_through_a_dangling_link_creates_its_target(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "link").symlink_to("sub/target")
    apply_patch(patch("*** Add File: link", "+x"), str(tmp_path))
    assert snapshot(tmp_path) == {"link": b"-> sub/target", "sub": None, "sub/target": b"x\n"}


def test_a_move_onto_itself_is_an_update(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a\n")
    apply_patch(update("a", "*** Move to: ./a", "@@", "-a", "+b"), str(tmp_path))
    assert snapshot(tmp_path) == {"a": b"b\n"}


def test_hunks_for_one_file_follow_each_other(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1\n2\n")
    (tmp_path / "twin").hardlink_to(tmp_path / "a")
    text = patch("*** Update File: a", "@@", "-1", "+one", "*** Update File: twin", "@@", " one", "-2", "+two")
    apply_patch(text, str(tmp_path))
    assert snapshot(tmp_path) == {"a": b"one\ntwo\n", "twin": b"one\ntwo\n"}
    apply_patch(patch("*** Add File: n", "+1", "*** Update File: n", "*** Move to: m", "@@", "+2"), str(tmp_path))
    assert (tmp_path / "m").read_bytes() == b"1\n2\n"
    assert not (tmp_path / "n").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (patch("*** Delete File: d"), r"Failed to delete file \S+/d: path `\S+/d` is not a file but a directory"),
        (update("d", "@@", "-x"), r"Failed to read file to update \S+/d: path"),
        (patch("*** Add File: d", "+x"), r"Failed to write file \S+/d: path"),
        (patch("*** Add File: e/", "+x"), "names a directory"),
        (update("pipe", "@@", "-x"), "a device, socket or pipe"),
        (patch("*** Delete File: nope"), r"Failed to delete file \S+/nope: No such file or directory \(os error 2\)"),
        (patch("*** Delete File: a", "*** Update File: a", "@@", "-x"), "Failed to read file to update"),
        (patch("*** Add File: " + "n" * 300, "+x"), "File name too long"),
    ],
)
def test_what_is_no_file_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "a").write_bytes(b"x\n")
    os.mkfifo(tmp_path / "pipe")
    before = set(tmp_path.rglob("*"))
    with pytest.raises((MatchError, ApplyError), match=message):
        apply_patch(text, str(tmp_path))
    assert set(tmp_path.rglob("*")) == before


def test_a_read_only_file_is_refused(tmp_path: Path) -> None:
    class ReadOnly(PlainFiles):
        """As for a user who is not root."""

        def look(self, path: str) -> Entry:
            entry = super().look(path)
            return entry._replace(writable=bool(entry.mode & 0o222))

    (tmp_path / "a").write_bytes(b"a\n")
    (tmp_path / "a").chmod(0o444)
    with pytest.raises(MatchError, match="read-only"):
        apply_patch(update("a", "@@", "-a", "+b"), str(tmp_path), ReadOnly())


def test_moving_a_file_over_its_own_hard_link(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x\n")
    (tmp_path / "b").hardlink_to(tmp_path / "a")
    apply_patch(update("a", "*** Move to: b"), str(tmp_path), overwrite=True)
    assert snapshot(tmp_path) == {"b": b"x\n"}


def test_moving_a_link_over_its_target(tmp_path: Path) -> None:
    (tmp_path / "real").write_bytes(b"x\n")
    (tmp_path / "link").symlink_to("real")
    apply_patch(update("link", "*** Move to: real", "@@", "-x", "+y"), str(tmp_path), overwrite=True)
    assert snapshot(tmp_path) == {"real": b"y\n"}


def test_another_spelling_of_a_name_is_no_other_file(tmp_path: Path) -> None:
    """On a file system that ignores case: the file must not be removed as the source of its own move."""

    class IgnoresCase(PlainFiles):
        def look(self, path: str) -> Entry:
            return super().look(lowered(path))._replace(name=path, real=path)

        def read(self, path: str) -> bytes:
            return super().read(lowered(path))

    def lowered(path: str) -> str:
        return os.path.join(os.path.dirname(path), os.path.basename(path).lower())

    (tmp_path / "readme").write_bytes(b"x\n")
    text = update("readme", "*** Move to: README", "@@", "-x", "+y")
    apply_patch(text, str(tmp_path), IgnoresCase(), overwrite=True)
    assert snapshot(tmp_path) == {"readme": b"y\n"}


def test_a_layer_that_refuses_to_look_is_an_error_too(tmp_path: Path) -> None:
    class Blind(PlainFiles):
        def look(self, path: str) -> Entry:
            if not path.endswith("file"):
                raise PermissionError(errno.EACCES, "Permission denied", path)
            return super().look(path)

    with pytest.raises(MatchError, match=r"Failed to create parent directories for \S+/sub/file: Permission denied"):
        apply_patch(patch("*** Add File: sub/file", "+x"), str(tmp_path), Blind())
