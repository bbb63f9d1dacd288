"""Workspaces: fresh, removed at the end, and what a task did as a patch."""

import os
from pathlib import Path

import pytest

from ferrule.workspaces import Empty, Folder, Repository, Source, WorkspaceError, Workspaces
from ferrule.workspaces.base import INCOMPLETE
from tests.workspaces.places import applied, contents, git, new_repository


async def test_an_empty_workspace_gives_a_patch_of_what_was_written(tmp_path: Path) -> None:
    async with Workspaces.open(tmp_path / "scratch") as workspaces, workspaces.enter(Empty()) as workspace:
        assert await workspace.patch() == ""
        (workspace.path / "a").write_text("x\n")
        patch = await workspace.patch()
    (tmp_path / "fresh").mkdir()
    assert applied(patch, tmp_path / "fresh") == {b"a": ("file", b"x\n")}
    assert not (tmp_path / "scratch").exists()


async def test_a_repository_is_the_commit_at_head_with_its_history_and_tags_alone(tmp_path: Path) -> None:
    source = new_repository(tmp_path / "source", {"a": b"1\n"})
    git(source, "tag", "v1")
    git(source, "checkout", "--quiet", "-b", "later")
    (source / "a").write_bytes(b"the solution\n")
    git(source, "commit", "--quiet", "--all", "--message=later")
    git(source, "checkout", "--quiet", "main")
    (source / "a").write_bytes(b"not committed\n")
    before = contents(source / ".git")
    async with Workspaces.open(tmp_path / "scratch") as workspaces, workspaces.enter(Repository(str(source))) as one:
        assert (one.path / "a").read_bytes() == b"1\n"
        assert one.commit.encode() == git(source, "rev-parse", "main").strip()
        assert git(one.path, "for-each-ref", "--format=%(refname)").split() == [b"refs/heads/main", b"refs/tags/v1"]
        assert git(one.path, "status", "--porcelain") == b"" == git(one.path, "remote")
        assert b"the solution" not in git(one.path, "cat-file", "--batch-all-objects", "--batch")
        (one.path / "a").write_bytes(b"2\n")
        git(one.path, "-c", "core.fsync=none", "commit", "--quiet", "--all", "--message=mine")
        patch = await one.patch()
    assert contents(source / ".git") == before
    git(source, "checkout", "--quiet", "--force", "main")
    assert applied(patch, source) == {b"a": ("file", b"2\n")}


async def test_a_folder_is_its_content_with_what_is_ignored(tmp_path: Path) -> None:
    source = tmp_path / "source"
    (source / "out").mkdir(parents=True)
    for name, content in ((".gitignore", "out\n"), ("a", "1\n"), ("out/b", "1\n")):
        (source / name).write_text(content)
    os.mkfifo(source / "pipe")
    async with Workspaces.open(tmp_path / "scratch") as workspaces, workspaces.enter(Folder(str(source))) as one:
        assert contents(one.path) == contents(source)
        (one.path / "out/b").write_text("2\n")
        (one.path / "out/c").write_text("new, and ignored\n")
        (one.path / "a").unlink()
        patch = await one.patch()
    assert applied(patch, source) == {b".gitignore": ("file", b"out\n"), b"out/b": ("file", b"2\n")}


@pytest.mark.parametrize(
    ("name", "shown"), [("work.git", "work"), ("..git", "workspace"), ("...git", "workspace"), (".git.git", ".git")]
)
async def test_a_workspace_is_called_as_its_source_unless_that_is_no_name(
    name: str, shown: str, tmp_path: Path
) -> None:
    (tmp_path / name).mkdir()
    async with (
        Workspaces.open(tmp_path / "scratch") as workspaces,
        workspaces.enter(Empty()) as other,
        workspaces.enter(Folder(str(tmp_path / name))) as one,
    ):
        assert one.path.name == shown
        assert other.path.exists()


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (Folder("missing"), "there is no folder missing"),
        (Repository("missing"), "there is no folder missing"),
        (Repository("plain"), "plain is no git repository: name its top folder, or give it as a folder"),
        (Repository("unborn"), "unborn has no commit at HEAD: commit something there first"),
        (Repository("strange"), "git cannot read the repository strange: unknown repository extension found: strange"),
        (
            Repository("a partial one"),
            "a partial one cannot be checked out: " + INCOMPLETE.format("'a partial one'"),
        ),
    ],
)
async def test_what_cannot_be_a_source_is_said(
    source: Source, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plain").mkdir()
    git(tmp_path, "init", "--quiet", "unborn")
    if source == Repository("strange"):
        git(new_repository(tmp_path / "strange", {}), "config", "extensions.strange", "true")
        git(tmp_path / "strange", "config", "core.repositoryFormatVersion", "1")
    if source == Repository("a partial one"):
        partial = new_repository(tmp_path / "a partial one", {"a": b"1\n"})
        name = git(partial, "rev-parse", "HEAD:a").decode().strip()
        (partial / ".git/objects" / name[:2] / name[2:]).unlink()
        git(partial, "config", "remote.origin.promisor", "true")
    before = sorted(os.listdir(tmp_path))
    async with Workspaces.open("scratch") as workspaces:
        with pytest.raises(WorkspaceError, match=f"^{text}$"):
            async with workspaces.enter(source):
                pass
    assert sorted(os.listdir(tmp_path)) == before
