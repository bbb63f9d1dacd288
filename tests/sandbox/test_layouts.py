"""Less usual layouts of a repository: the user's stays as it is, what a command left behind in its own is told."""

import os
import subprocess
from pathlib import Path

import pytest

from ferrule.sandbox.plan import Level
from tests.sandbox.conftest import OpenAt
from tests.sandbox.projects import LEVELS, READ_ONLY, every_file, git
from tests.sandbox.running import run

REFTABLE = """
mkdir -p {0}/objects {0}/refs {0}/reftable
echo ref: refs/heads/.invalid > {0}/HEAD; echo this repository uses the reftable format > {0}/refs/heads
: > {0}/reftable/tables.list
printf '[core]\\n\\trepositoryformatversion = 1\\n[extensions]\\n\\trefstorage = reftable\\n' > {0}/config
"""
"""As git from 2.45 on makes it; the one here may be older."""


def make_reftable(folder: Path, *names: str) -> None:
    for name in names:
        subprocess.run(["/bin/sh", "-c", REFTABLE.format(name)], cwd=folder, check=True)


@pytest.mark.parametrize("level", LEVELS)
async def test_attack_reftable_of_the_users(open_at: OpenAt, workspace: Path, level: Level) -> None:
    make_reftable(workspace, "work/.git", "bare")
    before = every_file(workspace)
    line = "for d in work/.git bare; do echo x >> $d/config; mkdir -p $d/hooks; echo x > $d/hooks/post-merge; done"
    outcome = await run(await open_at(level), line, str(workspace))
    if level in READ_ONLY:
        assert every_file(workspace) == before
    else:
        assert outcome.left is not None
        for path in ("work/.git/config", "work/.git/hooks/post-merge", "bare/config", "bare/hooks/post-merge"):
            assert f"{workspace}/{path}" in outcome.left


@pytest.mark.parametrize("level", LEVELS)
async def test_attack_reftable_of_a_command(open_at: OpenAt, workspace: Path, level: Level) -> None:
    line = REFTABLE.format("b") + "printf '[core]\\n\\tfsmonitor = ./evil\\n' >> b/config"
    outcome = await run(await open_at(level), line, str(workspace))
    assert outcome.left is not None
    assert outcome.left.endswith(f"sandbox: {workspace}/b/config: core.fsmonitor = ./evil.")


@pytest.mark.parametrize("level", LEVELS)
async def test_attack_settings_of_one_worktree(open_at: OpenAt, workspace: Path, level: Level) -> None:
    """`config.worktree` counts once `extensions.worktreeConfig` is set; that of a linked worktree, too."""
    sandbox = await open_at(level)
    line = """
    git init -q -b main r && cd r && git -c user.name=x -c user.email=x@x commit -q --allow-empty -m x
    git worktree add -q ../wt; git config extensions.worktreeConfig true
    git -C ../wt config --worktree core.sshCommand ./ssh
    git config --worktree core.fsmonitor ./evil; git config --worktree core.worktree ../elsewhere
    """
    outcome = await run(sandbox, line, str(workspace))
    assert outcome.left is not None, outcome.output
    assert f"{workspace}/r/.git/config.worktree: core.fsmonitor = ./evil" in outcome.left
    assert f"{workspace}/r/.git/worktrees/wt/config.worktree: core.sshcommand = ./ssh" in outcome.left
    assert "core.worktree" not in outcome.left


@pytest.mark.parametrize("level", LEVELS)
async def test_attack_settings_of_one_worktree_of_the_users(open_at: OpenAt, project: Path, level: Level) -> None:
    git(project, "config", "extensions.worktreeConfig", "true")
    git(project, "worktree", "add", "-q", "wt")
    before = every_file(project / ".git")
    line = "git config --worktree core.fsmonitor ./evil; git -C wt config --worktree core.worktree ../elsewhere"
    outcome = await run(await open_at(level), line, str(project))
    if level in READ_ONLY:
        assert outcome.output.count("Read-only file system") == 2
        assert every_file(project / ".git") == before
    else:
        assert outcome.left is not None
        assert ".git/config.worktree" in outcome.left and ".git/worktrees/wt/config.worktree" in outcome.left


@pytest.mark.parametrize("level", LEVELS)
async def test_sparse_and_split_indexes_are_data(open_at: OpenAt, workspace: Path, level: Level) -> None:
    line = """
    git init -q -b main r && cd r && mkdir a b && touch a/x b/y && git add . && git sparse-checkout set a
    git config core.splitIndex true; git update-index --split-index && ls .git/sharedindex.* > /dev/null; ls
    """
    outcome = await run(await open_at(level), line, str(workspace))
    assert (outcome.output, outcome.left) == ("a\n", None)


@pytest.mark.parametrize("level", LEVELS)
async def test_attack_alternates(open_at: OpenAt, project: Path, outside: Path, level: Level) -> None:
    """The objects of another repository are data: its settings are not read. The user's list is as protected as all."""
    git(project, "clone", "-q", "-s", ".", "shares")
    before = every_file(project / "shares/.git")
    line = """
    git init -q evil; git -C evil config core.fsmonitor ./evil; git clone -q -s . own
    echo "$PWD/evil/.git/objects" >> own/.git/objects/info/alternates; git -C own status --porcelain
    echo "$PWD/evil/.git/objects" >> shares/.git/objects/info/alternates
    """
    outcome = await run(await open_at(level), line, str(project))
    assert outcome.left is not None
    assert "evil/.git/config: core.fsmonitor = ./evil" in outcome.left and "own/.git" not in outcome.left
    if level in READ_ONLY:
        assert outcome.output.count("Read-only file system") == 1
        assert every_file(project / "shares/.git") == before


@pytest.mark.parametrize("level", LEVELS)
async def test_attack_a_worktree_outside_of_the_roots(
    open_at: OpenAt, workspace: Path, outside: Path, level: Level, reports: list[str]
) -> None:
    """A command cannot make one. The user's, of a repository that a command made, obeys that repository's settings."""
    sandbox = await open_at(level)
    line = f"""
    git init -q -b main r && cd r && git -c user.name=x -c user.email=x@x commit -q --allow-empty -m x
    git worktree add -q {outside}/theirs 2>&1 | grep -c 'could not create'
    """
    outcome = await run(sandbox, line, str(workspace))
    assert outcome.output == "1\n" and not os.path.lexists(outside / "theirs")
    git(workspace / "r", "worktree", "add", "-q", str(outside / "mine"))
    before = every_file(outside / "mine")
    line = "git config extensions.worktreeConfig true; printf '[core]\\n\\tfsmonitor = ./evil\\n' > "
    outcome = await run(sandbox, f"{line} .git/worktrees/mine/config.worktree", str(workspace / "r"))
    await sandbox.close()
    told = f"{workspace}/r/.git/worktrees/mine/config.worktree: core.fsmonitor = ./evil"
    assert outcome.left is not None and told in outcome.left
    assert told in reports[-1]
    assert every_file(outside / "mine") == before


@pytest.mark.parametrize("level", LEVELS)
async def test_attack_the_users_worktree_outside_of_the_roots(
    open_at: OpenAt, project: Path, outside: Path, level: Level
) -> None:
    git(project, "worktree", "add", "-q", str(outside / "mine"))
    before = every_file(project / ".git")
    line = "echo 'gitdir: /nowhere' > .git/worktrees/mine/gitdir; echo ../../../evil > .git/worktrees/mine/commondir"
    outcome = await run(await open_at(level), line, str(project))
    if level in READ_ONLY:
        assert outcome.output.count("Read-only file system") == 2
        assert every_file(project / ".git") == before
    else:
        assert outcome.left is not None and ".git/worktrees/mine/commondir" in outcome.left
