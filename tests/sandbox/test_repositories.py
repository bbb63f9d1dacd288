"""Repositories below the roots and whose they are, without a sandbox around them."""

import fcntl
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from ferrule.reading import Unreadable
from ferrule.sandbox import ownership, repositories
from ferrule.sandbox.ownership import OwnershipRecord, identity
from ferrule.sandbox.plan import ConfinementPlan, Root
from ferrule.sandbox.repositories import STAMP_LAG_NS, Repositories, Span


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


@pytest.fixture
def record(tmp_path: Path) -> OwnershipRecord:
    return OwnershipRecord(tmp_path / "record")


@pytest.fixture
def found(root: Path, record: OwnershipRecord) -> Repositories:
    made = repositories_of(record, Root(str(root)))
    made.look(None)
    return made


def repositories_of(record: OwnershipRecord, *roots: Root) -> Repositories:
    return Repositories(ConfinementPlan(roots), record)


def git(folder: Path, *words: str) -> None:
    subprocess.run(
        ["git", "-c", "user.name=x", "-c", "user.email=x@x", "-c", "protocol.file.allow=always", *words],
        cwd=folder, check=True, capture_output=True,
    )  # fmt: skip


def during(found: Repositories, command: Callable[[], object]) -> None:
    """What a command of ours does."""
    started = time.time_ns()
    command()
    found.look(Span(started, time.time_ns()))


def until_clock_goes_on() -> None:
    """What is made from now on has a later time stamp than what was made before."""
    before = time.time_ns()
    while time.time_ns() < before + 2 * STAMP_LAG_NS:
        time.sleep(0.001)


def own(found: Repositories) -> list[str]:
    return sorted(one.path for one in found.own)


def test_those_of_the_start_are_the_users(root: Path, record: OwnershipRecord) -> None:
    for name in ("a", "deep/b"):
        git(root.parent, "init", "-q", str(root / name))
    git(root, "init", "-q", "--bare", "c.git")
    made = repositories_of(record, Root(str(root)))
    made.look(None)
    assert set(made.users) == {f"{root}/a/.git", f"{root}/deep/b/.git", f"{root}/c.git"}
    assert own(made) == []


def test_n005_made_by_a_command_and_known_again(found: Repositories, root: Path, record: OwnershipRecord) -> None:
    during(found, lambda: git(root, "init", "-q", "sub"))
    assert (found.users, own(found)) == ((), [f"{root}/sub/.git"])
    later = repositories_of(OwnershipRecord(record._file), Root(str(root)))
    later.look(None)
    assert (later.users, own(later)) == ((), [f"{root}/sub/.git"])


def test_s01_made_by_the_user_between_commands(found: Repositories, root: Path) -> None:
    git(root, "init", "-q", "sub")
    found.look(None)
    assert (found.users, own(found)) == ((f"{root}/sub/.git",), [])
    during(found, lambda: None)
    assert own(found) == []


def test_born_before_the_command_is_the_users(found: Repositories, root: Path, tmp_path: Path) -> None:
    """A repository that is moved in while a command runs was not made by it."""
    git(tmp_path, "init", "-q", "mine")
    until_clock_goes_on()
    during(found, lambda: (tmp_path / "mine").rename(root / "mine"))
    assert (found.users, own(found)) == ((f"{root}/mine/.git",), [])


def test_another_one_in_its_place_is_the_users(found: Repositories, root: Path) -> None:
    """Also where the file system gives it the same inode."""
    during(found, lambda: git(root, "init", "-q", "sub"))
    shutil.rmtree(root / "sub/.git")
    git(root, "init", "-q", "sub")
    found.look(None)
    assert (found.users, own(found)) == ((f"{root}/sub/.git",), [])


def test_moved_by_a_command_it_stays_ours(found: Repositories, root: Path) -> None:
    during(found, lambda: git(root, "init", "-q", "sub"))
    during(found, lambda: (root / "sub").rename(root / "other"))
    assert own(found) == [f"{root}/other/.git"]
    (root / "other").rename(root / "third")
    found.look(None)
    assert (found.users, own(found)) == ((f"{root}/third/.git",), [])


def test_the_users_moved_by_a_command_stays_the_users(root: Path, record: OwnershipRecord) -> None:
    git(root, "init", "-q", "mine")
    found = repositories_of(record, Root(str(root)))
    found.look(None)
    during(found, lambda: (root / "mine").rename(root / "taken"))
    assert (found.users, own(found)) == ((f"{root}/taken/.git",), [])


def test_where_commands_cannot_write_nothing_is_ours(found: Repositories, root: Path) -> None:
    started = time.time_ns()
    git(root, "init", "-q", "sub")
    found.look(Span(started, time.time_ns()), kept=(f"{root}/sub",))
    assert own(found) == []


def test_another_session_made_it(found: Repositories, root: Path, record: OwnershipRecord) -> None:
    """Seen as the user's first, known as ours as soon as the other has recorded it."""
    other = repositories_of(OwnershipRecord(record._file), Root(str(root)))
    other.look(None)
    started = time.time_ns()
    git(root, "init", "-q", "sub")
    found.look(None)
    assert set(found.users) == {f"{root}/sub/.git"}
    other.look(Span(started, time.time_ns()))
    found.look(None)
    assert (set(found.users), own(found)) == (set(), [f"{root}/sub/.git"])


def test_without_birth_times_nothing_is_ours(
    found: Repositories, root: Path, record: OwnershipRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stand-in for a file system that keeps none, on a machine whose clock began in 1970."""
    monkeypatch.setattr(ownership, "_birth_time", lambda path, inode: 0)
    git(root, "init", "-q", "sub")
    found.look(Span(0, time.time_ns()))
    assert (found.users, own(found)) == ((f"{root}/sub/.git",), [])
    what = identity(f"{root}/sub/.git")
    assert what is not None
    record.add({f"{root}/sub/.git": what})
    assert not record.owns(f"{root}/sub/.git", what)


def test_folders_of_submodules_that_wait(root: Path, tmp_path: Path, record: OwnershipRecord) -> None:
    git(tmp_path, "init", "-q", "part")
    git(tmp_path / "part", "commit", "-q", "--allow-empty", "-m", "x")
    git(root, "init", "-q", ".")
    git(root, "submodule", "--quiet", "add", str(tmp_path / "part"), "deep/part")
    git(root, "submodule", "--quiet", "deinit", "-f", "deep/part")
    with (root / ".gitmodules").open("a") as file:
        file.write('[submodule "x"]\n\tpath = ../outside\n[submodule "y"]\n\tpath = missing\n')
    found = repositories_of(record, Root(str(root)))
    found.look(None)
    assert found.submodules == (f"{root}/deep/part",)
    (root / ".gitmodules").unlink()
    during(found, lambda: None)
    assert found.submodules == (f"{root}/deep/part",)
    git(root, "checkout", "-q", ".gitmodules")
    git(root, "submodule", "--quiet", "update", "--init", "deep/part")
    found.look(None)
    assert list(found.submodules) == []
    assert f"{root}/deep/part/.git" in found.users


def test_of_a_temporary_root_only_the_top_is_seen(tmp_path: Path, record: OwnershipRecord) -> None:
    for name in (".", "below"):
        git(tmp_path, "init", "-q", name)
    found = repositories_of(record, Root(str(tmp_path), reserve=False, scan=False))
    found.look(None)
    assert found.users == (f"{tmp_path}/.git",)


def test_a_bound_is_told(root: Path, record: OwnershipRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repositories, "MAX_FOLDERS", 3)
    for number in range(4):
        (root / str(number)).mkdir()
    found = repositories_of(record, Root(str(root)))
    found.look(None)
    (sentence,) = found.limits
    assert sentence.startswith(f"{root} holds more folders than the 3 that were searched")


def test_a_folder_that_changed_just_now_is_read_again(found: Repositories, root: Path) -> None:
    """A second change within one tick of the clock leaves the time stamp as it was."""
    (root / "sub").mkdir()
    found.look(None)
    assert found._folders[f"{root}/sub"].stamp is None


def test_what_is_gone_leaves_the_record(root: Path, record: OwnershipRecord) -> None:
    for name in ("a", "b"):
        (root / name).mkdir()
        what = identity(str(root / name))
        assert what is not None
        record.add({str(root / name): what})
    (root / "a").rmdir()
    with record._file.open("ab") as file:
        file.write(b'["torn", 1, 2\n')
    record.prune()
    (line,) = record._file.read_text().splitlines()
    assert str(root / "b") in line


UNREADABLE: dict[str, Callable[[Path], object]] = {
    "a named pipe": os.mkfifo,
    "a folder": Path.mkdir,
    "a link to itself": lambda path: path.symlink_to(path),
    "a device": lambda path: path.symlink_to("/dev/full"),
    "very large": lambda path: subprocess.run(["truncate", "-s", "10G", str(path)], check=True),
}


@pytest.mark.parametrize("make", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_a_record_that_cannot_be_read_holds_nothing(
    root: Path, record: OwnershipRecord, make: Callable[[Path], object]
) -> None:
    make(record._file)
    git(root.parent, "init", "-q", str(root / "mine"))
    with suppress(OSError):
        record.prune()
    found = repositories_of(record, Root(str(root)))
    found.look(None)
    assert set(found.users) == {f"{root}/mine/.git"}
    assert record.problem is not None and str(record._file) in record.problem
    with suppress(OSError):
        during(found, lambda: git(root.parent, "init", "-q", str(root / "ours")))
    assert own(found) == [f"{root}/ours/.git"]


def test_a_record_of_another_user(root: Path, record: OwnershipRecord, monkeypatch: pytest.MonkeyPatch) -> None:
    """As root left it; root itself reads everything, so the reader is a stand-in."""

    def refuse(path: Path, limit: int) -> bytes:
        raise Unreadable("cannot be read: Permission denied")

    monkeypatch.setattr(ownership, "read_file", refuse)
    git(root.parent, "init", "-q", str(root / "mine"))
    found = repositories_of(record, Root(str(root)))
    found.look(None)
    assert found.users == (f"{root}/mine/.git",)
    assert record.problem is not None and "Permission denied" in record.problem


def test_nothing_is_written_to_a_device(record: OwnershipRecord, root: Path) -> None:
    record._file.symlink_to("/dev/null")
    what = identity(str(root))
    assert what is not None
    with pytest.raises(OSError, match="is no regular file"):
        record.add({str(root): what})


def test_a_damaged_record(root: Path, record: OwnershipRecord, found: Repositories) -> None:
    lines = ["null", "{}", "[]", '["x", 1e999, 1, 1]', '["x", {}, 1, 1]', "[" * 100_000, '["x", 1', "\0\xff"]
    record._file.write_bytes("\n".join(lines).encode("latin-1"))  # the last line is torn
    during(found, lambda: git(root, "init", "-q", "sub"))
    later = repositories_of(OwnershipRecord(record._file), Root(str(root)))
    later.look(None)
    assert own(later) == [f"{root}/sub/.git"]


def test_nobody_waits_for_the_lock_of_the_record(root: Path, record: OwnershipRecord, found: Repositories) -> None:
    """A command can hold it as long as it likes."""
    during(found, lambda: git(root, "init", "-q", "one"))
    with Path(f"{record._file}.lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        during(found, lambda: git(root, "init", "-q", "two"))
        shutil.rmtree(root / "one")
        record.prune()
    assert record._file.read_text().count("/.git") == 2
    record.prune()
    assert record._file.read_text().count("/.git") == 1


def test_a_record_does_not_grow_without_end(
    root: Path, record: OwnershipRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ownership, "LARGEST_RECORD", 2000)
    for number in range(50):
        (root / f"{number}").mkdir()
        what = identity(f"{root}/{number}")
        assert what is not None
        record.add({f"{root}/{number}": what})
        assert record.owns(f"{root}/{number}", what)
    assert record._file.stat().st_size < 2000
    assert record.problem is None


def test_a_closed_folder_stops_nothing(root: Path, record: OwnershipRecord) -> None:
    (root / "closed").mkdir(mode=0)
    git(root, "init", "-q", "open")
    found = repositories_of(record, Root(str(root)))
    found.look(None)
    assert found.users == (f"{root}/open/.git",)


def bare(folder: Path) -> None:
    """What makes a folder a bare repository."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("objects", "refs"):
        (folder / name).mkdir(exist_ok=True)
    (folder / "HEAD").write_text("ref: refs/heads/main\n")


def test_a_folder_of_the_users_that_a_command_makes_a_bare_repository(root: Path, record: OwnershipRecord) -> None:
    """It is told of, and stays writable."""
    (root / "empty").mkdir()
    found = repositories_of(record, Root(str(root)))
    found.look(None)
    until_clock_goes_on()
    during(found, lambda: bare(root / "empty"))
    assert (found.users, own(found)) == ((), [f"{root}/empty"])
    later = repositories_of(OwnershipRecord(record._file), Root(str(root)))
    later.look(None)
    assert own(later) == [f"{root}/empty"]


def test_a_bare_repository_of_the_users_stays_theirs(root: Path, record: OwnershipRecord) -> None:
    """Git writes its HEAD anew."""
    bare(root / "theirs")
    found = repositories_of(record, Root(str(root)))
    found.look(None)
    until_clock_goes_on()

    def switch() -> None:
        (root / "theirs/HEAD").unlink()
        (root / "theirs/HEAD").write_text("ref: refs/heads/other\n")

    during(found, switch)
    assert (found.users, own(found)) == ((f"{root}/theirs",), [])


def test_a_bare_repository_around_those_of_the_user_hides_nothing(root: Path, record: OwnershipRecord) -> None:
    for name in ("a", "objects/b"):
        git(root.parent, "init", "-q", str(root / name))
    bare(root)
    found = repositories_of(record, Root(str(root)))
    found.look(None)
    assert set(found.users) == {str(root), f"{root}/a/.git", f"{root}/objects/b/.git"}


def test_a_bare_repository_beside_a_git_folder_that_is_none(found: Repositories, root: Path) -> None:
    """Git passes over the one and takes the other."""

    def make() -> None:
        (root / "e/.git").mkdir(parents=True)
        bare(root / "e")

    during(found, make)
    assert own(found) == [f"{root}/e", f"{root}/e/.git"]


def test_objects_are_not_searched(root: Path, record: OwnershipRecord) -> None:
    bare(root / "b")
    (root / "b/objects/0f/x").mkdir(parents=True)
    (root / "0f").mkdir()
    found = repositories_of(record, Root(str(root)))
    found.look(None)
    assert f"{root}/b/objects/0f" not in found._folders
    assert f"{root}/0f" in found._folders


def test_new_folders_hide_nothing_that_was_found(
    root: Path, record: OwnershipRecord, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repositories, "MAX_FOLDERS", 5)
    git(root.parent, "init", "-q", str(root / "a/b/c"))
    bare(root / "a/b/bare")
    found = repositories_of(record, Root(str(root)))
    found.look(None)
    theirs = {f"{root}/a/b/c/.git", f"{root}/a/b/bare"}
    assert set(found.users) == theirs
    for number in range(10):
        (root / f"n{number}").mkdir()
    during(found, lambda: None)
    assert set(found.users) == theirs
    shutil.rmtree(root / "a/b/c/.git")
    shutil.rmtree(root / "a/b/bare/objects")
    found.look(None)
    assert found.users == ()


def test_another_folder_in_the_place_of_one_that_was_moved(found: Repositories, root: Path) -> None:
    """Nothing changes in the old one, and the new one is not the old one."""
    (root / "a/sub").mkdir(parents=True)
    until_clock_goes_on()
    until_clock_goes_on()
    for _ in range(2):
        found.look(None)

    def swap() -> None:
        (root / "a").rename(root / "b")
        git(root.parent, "init", "-q", str(root / "a/sub"))

    during(found, swap)
    assert own(found) == [f"{root}/a/sub/.git"]
    during(found, lambda: git(root.parent, "init", "-q", str(root / "b/sub")))
    assert own(found) == [f"{root}/a/sub/.git", f"{root}/b/sub/.git"]
    shutil.rmtree(root / "a/sub/.git")
    during(found, lambda: None)
    assert own(found) == [f"{root}/b/sub/.git"]


def test_another_root_in_the_place_of_one_that_was_moved(tmp_path: Path, record: OwnershipRecord) -> None:
    (tmp_path / "above/root/sub").mkdir(parents=True)
    found = repositories_of(record, Root(f"{tmp_path}/above/root"))
    until_clock_goes_on()
    until_clock_goes_on()
    for _ in range(2):
        found.look(None)
    (tmp_path / "above").rename(tmp_path / "old")
    git(tmp_path, "init", "-q", "above/root/sub")
    found.look(None)
    assert found.users == (f"{tmp_path}/above/root/sub/.git",)


def test_reserved_names_are_searched_below_the_top(root: Path, record: OwnershipRecord) -> None:
    for name in (".agents", "below/.agents"):
        git(root.parent, "init", "-q", str(root / name / "x"))
    found = repositories_of(record, Root(str(root)))
    found.look(None)
    assert found.users == (f"{root}/below/.agents/x/.git",)


def test_s03_a_folder_that_is_gone_when_it_is_read(found: Repositories, root: Path, tmp_path: Path) -> None:
    """As one that another program removes between the listing of its parent and its own: here it is the root."""
    root.rename(tmp_path / "elsewhere")
    found.look(None)
    assert (found.users, found.own) == ((), ())


def test_what_was_born_after_the_commands_is_the_users(found: Repositories, root: Path) -> None:
    """The user makes it between the end of a command and the look."""
    started = time.time_ns()
    run = Span(started, time.time_ns())
    until_clock_goes_on()
    git(root, "init", "-q", "sub")
    found.look(run)
    assert (found.users, own(found)) == ((f"{root}/sub/.git",), [])
