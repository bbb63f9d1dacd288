"""Sources that cannot be copied as they are, full disks, and cancellation: a sentence, and nothing is left."""

import asyncio
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from ferrule.containers.images import folders, writable
from ferrule.workspaces import Empty, Folder, Repository, WorkspaceError, Workspaces, base, changes, contents
from ferrule.workspaces.tree import Tree
from tests.workspaces.places import applied, git, new_repository
from tests.workspaces.places import contents as contents_of


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "source"
    (folder / "inner").mkdir(parents=True)
    (folder / "a").write_bytes(b"1\n")
    (folder / "inner/b").write_bytes(b"2\n")
    return folder


async def refused(source: Folder | Repository, scratch: Path) -> str:
    """Return why a source is refused; then nothing is left."""
    async with Workspaces.open(scratch) as workspaces:
        with pytest.raises(WorkspaceError) as caught:
            async with workspaces.enter(source):
                pass
        assert [path.name for path in (scratch / "bases").iterdir() if path.is_dir()] == []
        async with workspaces.enter(Empty()):
            pass
    assert not scratch.exists()
    return str(caught.value)


async def test_what_is_no_file_is_left_out(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(source / "pipe")
    monkeypatch.chdir(source)  # the names of sockets are short
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind("socket")
        async with Workspaces.open(tmp_path / "scratch") as workspaces, workspaces.enter(Folder(".")) as one:
            assert one.path.name == "source"
            assert sorted(os.listdir(one.path)) == ["a", "inner"]
            os.mkfifo(one.path / "a2")
            with socket.socket(socket.AF_UNIX) as theirs:
                monkeypatch.chdir(one.path)
                theirs.bind("socket")
                assert await one.patch() == ""


async def test_a_file_that_is_written_meanwhile_is_named(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = writable._copy_pieces

    def slowly(old: int, new: int, size: int) -> None:
        pieces(old, new, size)
        with (source / "inner/b").open("ab") as file:
            file.write(b"more")

    monkeypatch.setattr(writable, "_copy_pieces", slowly)
    (source / "a").unlink()
    assert await refused(Folder(str(source)), tmp_path / "scratch") == "inner/b: it is being written"


async def test_a_file_that_is_removed_meanwhile_is_left_out(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names_in = folders.names_in

    def late(folder: int) -> Iterator[bytes]:
        found = names_in(folder)
        (source / "inner/b").unlink(missing_ok=True)
        yield from found

    monkeypatch.setattr(writable, "names_in", late)
    async with Workspaces.open(tmp_path / "scratch") as workspaces, workspaces.enter(Folder(str(source))) as one:
        assert contents_of(one.path) == {b"a": ("file", b"1\n")}


async def test_a_full_disk_is_said(source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(old: int, new: int, size: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writable, "_copy_pieces", full)  # a stand-in for a full disk
    said = await refused(Folder(str(source)), tmp_path / "scratch")
    assert said.startswith("there is no space left to write ") and said.endswith(" on a larger disk")


async def test_more_than_a_patch_may_hold_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Workspaces.open(tmp_path / "scratch") as workspaces, workspaces.enter(Empty()) as one:
        with (one.path / "a").open("wb") as holes:
            holes.truncate(contents.LARGEST_CHANGE + 1)
        with pytest.raises(WorkspaceError, match="more than 512 MiB have changed, up to a: that is too much"):
            await one.patch()
        (one.path / "a").unlink()
        assert await one.patch() == ""


async def test_more_files_than_a_patch_may_hold_are_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "MOST_NEW", 3)
    async with Workspaces.open(tmp_path / "scratch") as workspaces, workspaces.enter(Empty()) as one:
        for name in "abc":
            (one.path / name).touch()
        assert (await one.patch()).count("diff --git") == 3
        (one.path / "d").touch()
        with pytest.raises(WorkspaceError, match=r"more than 3 files are new, up to .: too many for a patch"):
            await one.patch()


async def test_the_scratch_folder_is_no_part_of_a_folder_that_it_lies_in(source: Path) -> None:
    async with Workspaces.open(source / "scratch") as workspaces, workspaces.enter(Folder(str(source))) as one:
        assert sorted(os.listdir(one.path)) == ["a", "inner"]


async def test_a_folder_with_files_of_others_is_no_scratch_folder(tmp_path: Path) -> None:
    mine = tmp_path / "owners/me"
    mine.mkdir(parents=True)
    with pytest.raises(WorkspaceError, match="other files are there; name a new or an empty folder"):
        async with Workspaces.open(tmp_path):
            pass
    assert os.listdir(tmp_path) == ["owners"]
    assert mine.exists()


async def test_a_scratch_folder_in_a_repository_ignores_nothing_by_its_rules(tmp_path: Path) -> None:
    around = new_repository(tmp_path / "around", {".gitignore": b"*\n"})
    async with Workspaces.open(around / "scratch") as workspaces, workspaces.enter(Empty()) as one:
        (one.path / "a").write_bytes(b"")
        assert (await one.patch()).startswith("diff --git a/a b/a\n")


async def test_a_repository_that_git_cannot_read_to_its_end_is_refused_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base, "ANSWER_SECONDS", 0.2)
    repository = new_repository(tmp_path / "source", {"a": b"1\n"})
    (repository / ".git/HEAD").unlink()
    os.mkfifo(repository / ".git/HEAD")
    text = await refused(Repository(str(repository)), tmp_path / "scratch")
    assert text.startswith(f"git did not answer about {repository} within 0.2 seconds")


async def test_many_at_once_share_one_base_and_nothing_else(source: Path, tmp_path: Path) -> None:
    async with Workspaces.open(tmp_path / "scratch") as workspaces:

        async def lane(number: int) -> str:
            async with workspaces.enter(Folder(str(source))) as one:
                (one.path / "a").write_bytes(b"%d\n" % number)
                await asyncio.sleep(0)
                return await one.patch()

        patches = await asyncio.gather(*map(lane, range(10, 18)))
        assert [f"+{number}\n" in patch for number, patch in enumerate(patches, 10)] == [True] * 8
        assert len([path for path in (tmp_path / "scratch/bases").iterdir() if path.is_dir()]) == 1


async def test_a_cancelled_task_leaves_nothing(source: Path, tmp_path: Path) -> None:
    scratch = tmp_path / "scratch"
    async with Workspaces.open(scratch) as workspaces:

        async def work(entered: asyncio.Event) -> None:
            async with workspaces.enter(Folder(str(source))):
                entered.set()
                await asyncio.sleep(60)

        for early in (True, False):
            entered = asyncio.Event()
            task = asyncio.create_task(work(entered))
            await (asyncio.sleep(0) if early else entered.wait())
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        (owner,) = (scratch / "owners").iterdir()
        async with workspaces.enter(Folder(str(source))):
            pass
        assert os.listdir(owner) == ["lock"]


@pytest.mark.skipif(os.getuid() == 0, reason="root reads every file")
async def test_a_file_that_cannot_be_read_is_named(source: Path, tmp_path: Path) -> None:
    (source / "inner/b").chmod(0)
    assert await refused(Folder(str(source)), tmp_path / "scratch") == "inner/b: Permission denied"


async def test_what_the_task_closed_is_opened_again(tmp_path: Path) -> None:
    async with Workspaces.open(tmp_path / "scratch") as workspaces, workspaces.enter(Empty()) as one:
        (one.path / "d").mkdir()
        (one.path / "d/a").write_bytes(b"1\n")
        (one.path / "d/a").chmod(0o100)
        (one.path / "d").chmod(0)
        patch = await one.patch()
    (tmp_path / "fresh").mkdir()
    assert applied(patch, tmp_path / "fresh") == {b"d/a": ("program", b"1\n")}


def test_links_on_the_way_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/secret").write_bytes(b"s")
    (tmp_path / "in").mkdir()
    (tmp_path / "in/link").symlink_to("../out")
    (tmp_path / "in/file").symlink_to("../out/secret")
    with Tree(tmp_path / "in") as tree:
        assert tree.file(b"link/secret") is None is tree.file(b"file")
        assert tree.names(b"link") == []
        assert tree.link(b"file") == b"../out/secret"
        assert {name for name, found in tree.names(b"") if stat.S_ISLNK(found.st_mode)} == {b"link", b"file"}


async def test_a_detached_head_a_shallow_clone_a_worktree_and_a_bare_repository(tmp_path: Path) -> None:
    first = new_repository(tmp_path / "first", {"a": b"1\n"})
    git(first, "worktree", "add", "--quiet", "-b", "side", str(tmp_path / "side"))
    (tmp_path / "side/a").write_bytes(b"2\n")
    git(tmp_path / "side", "commit", "--quiet", "--all", "--message=2")
    git(tmp_path, "clone", "--quiet", "--bare", str(tmp_path / "first"), "bare.git")
    git(tmp_path, "clone", "--quiet", "--depth=1", "--branch=side", f"file://{first}", "shallow")
    git(tmp_path / "shallow", "checkout", "--quiet", "--detach")
    async with Workspaces.open(tmp_path / "scratch") as workspaces:
        for name, content, branch in (
            ("side", b"2\n", b"side"),
            ("bare.git", b"1\n", b"main"),
            ("shallow", b"2\n", b"HEAD"),
        ):
            async with workspaces.enter(Repository(str(tmp_path / name))) as one:
                assert (one.path / "a").read_bytes() == content
                assert git(one.path, "rev-parse", "--abbrev-ref", "HEAD").strip() == branch
                assert git(one.path, "status", "--porcelain") == b""
                assert one.path.name == name.removesuffix(".git")
    assert git(first, "worktree", "list").count(b"\n") == 2
