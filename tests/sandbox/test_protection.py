"""The user's repositories are left as they are, our own work, and what commands left behind is told: at every level."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ferrule.process.launcher import LaunchError, Limits, Pipes
from ferrule.sandbox.files import ConfinedFiles
from ferrule.sandbox.linux import held
from ferrule.sandbox.plan import ConfinementPlan, Level, Root
from ferrule.sandbox.protection import Protection
from tests.sandbox.conftest import OpenAt
from tests.sandbox.projects import LEVELS, READ_ONLY, every_file, git
from tests.sandbox.running import finish, run


@pytest.mark.parametrize("level", LEVELS)
async def test_s01_n001_a_worktree_of_the_users(
    open_at: OpenAt, project: Path, reports: list[str], level: Level
) -> None:
    sandbox = await open_at(level)
    git(project, "worktree", "add", "-q", ".worktrees/feat", "-b", "feat")
    git(project, "clone", "-q", ".", "copy")
    before = every_file(project)
    outcome = await run(sandbox, "true; git remote", str(project))
    assert (outcome.output, outcome.left) == ("origin\n", None)
    await sandbox.close()
    assert every_file(project) == before
    assert reports == []


@pytest.mark.parametrize("level", LEVELS)
async def test_s02_n002_a_pointer_made_by_a_command(open_at: OpenAt, project: Path, level: Level) -> None:
    sandbox = await open_at(level)
    before = every_file(project / ".git")
    outcome = await run(sandbox, 'mkdir x && echo "gitdir: $PWD/.git" > x/.git && cd x && git remote', str(project))
    assert (outcome.output, outcome.left) == ("origin\n", None)
    outcome = await run(sandbox, "echo x > ../.git/config; echo y >> .git", str(project / "x"))
    if level in READ_ONLY:
        assert outcome.output.count("Read-only file system") == 1
        assert every_file(project / ".git") == before


@pytest.mark.parametrize("level", READ_ONLY)
async def test_the_users_repositories_are_read_only_between_commands(
    open_at: OpenAt, project: Path, level: Level
) -> None:
    sandbox = await open_at(level)
    assert (await run(sandbox, "true", str(project))).output == ""
    git(project, "init", "-q", "fresh")
    git(project, "init", "-q", "--bare", "fresh.git")
    git(project, "worktree", "add", "-q", "wt", "-b", "side")
    files = "fresh/.git/config fresh.git/config wt/.git .git/worktrees/wt/HEAD"
    line = f"for f in {files}; do echo x >> $f; done; echo x > wt/f"
    outcome = await run(sandbox, line, str(project))
    assert outcome.output.count("Read-only file system") == 4
    assert (project / "wt/f").exists()


@pytest.mark.parametrize("level", READ_ONLY)
async def test_no_command_moves_a_repository_of_the_users_away(open_at: OpenAt, workspace: Path, level: Level) -> None:
    """Another command that starts in that moment would not find it where it looks."""
    git(workspace, "init", "-q", "a/b")
    outcome = await run(await open_at(level), "mv a other; mv a/b a/c; ls -d a/b/.git", str(workspace))
    assert outcome.output.endswith("\na/b/.git\n")
    assert [path.name for path in workspace.glob("[!.]*")] == ["a"]
    assert os.listdir(workspace / "a") == ["b"]


@pytest.mark.parametrize("level", LEVELS)
async def test_attack_a_bare_repository_in_a_folder_of_the_users(
    open_at: OpenAt, workspace: Path, level: Level
) -> None:
    (workspace / "e").mkdir()
    sandbox = await open_at(level)
    line = "cd e; mkdir objects refs .git; echo ref: x > HEAD; printf '[core]\n\tfsmonitor = ./evil\n' > config"
    outcome = await run(sandbox, line, str(workspace))
    assert outcome.left is not None and f"{workspace}/e/config: core.fsmonitor = ./evil" in outcome.left
    assert (await run(sandbox, "echo x > e/x", str(workspace))).output == ""


CHURN = """
import os, shutil, sys
top = sys.argv[1]
while True:
    for name in ("d", "e/f"):
        try:
            os.makedirs(f"{top}/{name}/.git/hooks")
            open(f"{top}/{name}/.git/HEAD", "w").close()
            shutil.rmtree(f"{top}/{name}")
        except OSError:
            pass
"""


@pytest.fixture
def churn(workspace: Path) -> Iterator[None]:
    """Another program that makes and removes repositories without end."""
    process = subprocess.Popen([sys.executable, "-c", CHURN, str(workspace)])
    yield
    process.kill()
    process.wait()


@pytest.mark.parametrize("level", LEVELS)
async def test_s03_repositories_that_come_and_go(open_at: OpenAt, churn: None, workspace: Path, level: Level) -> None:
    sandbox = await open_at(level)
    for _ in range(5):
        outcomes = await asyncio.gather(*(run(sandbox, "echo hi", str(workspace)) for _ in range(4)))
        assert [outcome.output for outcome in outcomes] == ["hi\n"] * 4
    await sandbox.close()


async def test_s05_s06_level_3_tells_and_writes_nothing(
    open_at: OpenAt, project: Path, outside: Path, reports: list[str]
) -> None:
    sandbox = await open_at(Level.LANDLOCK)
    git(outside, "init", "-q", "other")
    elsewhere = every_file(outside / "other")
    git(project, "init", "-q", "sub")
    line = (
        "echo evil > .git/hooks/post-merge; chmod 755 .git/hooks/post-merge; echo '[alias]' >> .git/config;"
        f"mv sub/.git sub/old; ln -s {outside}/other/.git sub/.git; mkdir .ferrule; touch .ferrule/config.toml"
    )
    outcome = await run(sandbox, line, str(project))
    assert outcome.left is not None
    for path in (".git/hooks/post-merge", ".git/config", f"sub/.git (moved to {project}/sub/old)", ".ferrule (new)"):
        assert path in outcome.left, path
    after = every_file(project)
    assert (await run(sandbox, "true", str(project))).left is None
    await sandbox.close()
    assert every_file(project) == after
    assert every_file(outside / "other") == elsewhere
    assert "Protected files are not as they were" in reports[-1] and ".git/hooks/post-merge" in reports[-1]


async def test_s06_level_3_compares_with_the_start_of_the_session(open_at: OpenAt, project: Path) -> None:
    """What one command has changed is no baseline for another that begins while it runs: it is told once."""
    sandbox = await open_at(Level.LANDLOCK)
    env = {"PATH": os.environ["PATH"]}
    line = "echo evil > .git/hooks/post-merge; echo done; read x"
    first = await sandbox.launch(["/bin/sh", "-c", line], env, str(project), Pipes(stdin=True, merge=True), Limits())
    assert await asyncio.to_thread(os.read, first.stdout, 10) == b"done\n"
    told = (await run(sandbox, "true", str(project))).left
    assert told is not None and ".git/hooks/post-merge" in told
    assert first.stdin is not None
    os.write(first.stdin, b"\n")
    assert (await finish(first)).left is None


async def test_s06_level_3_the_users_own_change_is_not_told(open_at: OpenAt, project: Path, reports: list[str]) -> None:
    sandbox = await open_at(Level.LANDLOCK)
    assert (await run(sandbox, "true", str(project))).left is None
    git(project, "config", "user.name", "me")
    (project / ".git/hooks/pre-commit").unlink()
    assert (await run(sandbox, "true", str(project))).left is None
    await sandbox.close()
    assert reports == []


async def test_s06_a_limit_that_is_met_refuses_the_next_command(
    open_at: OpenAt, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(held, "MAX_FILES", 30)
    sandbox = await open_at(Level.LANDLOCK)
    line = "mkdir .git/config.worktree && cd .git/config.worktree && touch $(seq 40); echo evil > ../hooks/pre-push"
    outcome = await run(sandbox, line, str(project))
    assert outcome.left is not None and ".git/hooks/pre-push" in outcome.left
    with pytest.raises(LaunchError, match="holds more than 30 protected files, so a change of them would go unseen"):
        await run(sandbox, "true", str(project))


@pytest.mark.parametrize("level", LEVELS)
async def test_s07_a_shared_repository_is_told(open_at: OpenAt, workspace: Path, level: Level) -> None:
    sandbox = await open_at(level)
    line = """
    git init -q e1; git -C e1 config core.fsmonitor ./evil
    mkdir -p n/.git m; echo ref: refs/heads/main > n/.git/HEAD; echo ../../e1/.git > n/.git/commondir
    ln -s ../n/.git m/.git
    """
    outcome = await run(sandbox, line, str(workspace))
    assert outcome.left is not None and "e1/.git/config: core.fsmonitor = ./evil" in outcome.left


async def test_s08_patches_and_commands_have_one_idea(home: Path, workspace: Path) -> None:
    (workspace / "sep").mkdir()
    git(workspace, "init", "-q", "--separate-git-dir", "sep/store", "sub")
    (workspace / "theirs").mkdir()
    (workspace / "theirs/.git").write_text("gitdir: ../sep/store\n")
    plan = ConfinementPlan((Root(str(workspace)),))
    protection = Protection(plan, home)
    await protection.look()
    files = ConfinedFiles(plan, lambda: protection.boundary)
    for path in ("sep/store/hooks/pre-commit", "sub/.git", "new/.git/config", ".ferrule/x"):
        with pytest.raises(PermissionError, match="protected"):
            files.create(f"{workspace}/{path}", b"x")
    await protection.began()
    git(workspace, "init", "-q", "--separate-git-dir", "store", "n")
    await protection.ended()
    files.create(f"{workspace}/store/note", b"x")
    files.close()
    assert (workspace / "store/note").exists()


COMMIT = "echo {0} > {0} && git add {0} && git commit -qm {0}"
SESSIONS = [
    f"git init -q -b main . && {COMMIT.format('a')} && git worktree add -q wt -b side",
    f"{COMMIT.format('b')} && cd wt && {COMMIT.format('c')} && git rebase -q main && git log --format=%s",
]


@pytest.mark.parametrize("level", LEVELS)
async def test_n005_a_repository_of_ours_over_two_sessions(
    open_at: OpenAt, workspace: Path, reports: list[str], level: Level
) -> None:
    env = dict(os.environ)
    for key in ("AUTHOR", "COMMITTER"):
        env |= {f"GIT_{key}_NAME": "x", f"GIT_{key}_EMAIL": "x@x"}
    outputs = []
    for line in SESSIONS:
        sandbox = await open_at(level)
        outcome = await run(sandbox, line, str(workspace), env=env)
        assert outcome.status.code == 0, outcome.output
        outputs.append(outcome.output)
        await sandbox.close()
    assert outputs == ["", "c\nb\na\n"]
    assert reports == []


async def test_n005_after_a_change_of_hands_it_is_the_users(open_at: OpenAt, workspace: Path) -> None:
    sandbox = await open_at(Level.NAMESPACES)
    await run(sandbox, "git init -q sub", str(workspace))
    await sandbox.close()
    (workspace / "sub/.git").rename(workspace / "sub/old")
    git(workspace, "init", "-q", "sub")
    outcome = await run(await open_at(Level.NAMESPACES), "echo x > sub/.git/config", str(workspace))
    assert "Read-only file system" in outcome.output


@pytest.mark.parametrize("level", READ_ONLY)
async def test_n007_no_empty_repository_in_the_way(open_at: OpenAt, workspace: Path, level: Level) -> None:
    outcome = await run(await open_at(level), "ls -d .git; git status 2>&1 | head -1", str(workspace))
    assert "cannot access '.git'" in outcome.output
    assert "not a git repository" in outcome.output


@pytest.mark.parametrize("level", LEVELS)
async def test_n004_told_with_key_and_value(open_at: OpenAt, project: Path, reports: list[str], level: Level) -> None:
    sandbox = await open_at(level)
    line = "git clone -q . own && git -C own config core.hooksPath .husky"
    outcome = await run(sandbox, line, str(project))
    expected = f"{project}/own/.git/config: core.hookspath = .husky"
    assert outcome.left is not None and expected in outcome.left
    outcome = await run(sandbox, "git -C own remote -v", str(project))
    assert (outcome.output.count("origin"), outcome.left) == (2, None)
    await sandbox.close()
    assert [expected in report for report in reports] == [True, True]


@pytest.mark.parametrize("level", LEVELS)
async def test_attack_a_bare_repository_in_an_empty_folder(open_at: OpenAt, workspace: Path, level: Level) -> None:
    line = "mkdir -p e/objects e/refs && echo ref: refs/heads/m > e/HEAD && cat > e/config"
    text = "[core]\n\tbare = false\n\tworktree = ..\n\tfsmonitor = ./evil\n"
    outcome = await run(await open_at(level), f"{line} <<'EOF'\n{text}EOF", str(workspace))
    assert outcome.left is not None and f"{workspace}/e/config: core.fsmonitor = ./evil" in outcome.left


@pytest.mark.parametrize("level", LEVELS)
async def test_attack_a_submodule_that_waits(open_at: OpenAt, project: Path, outside: Path, level: Level) -> None:
    git(outside, "init", "-q", "part")
    git(outside / "part", "commit", "-q", "--allow-empty", "-m", "x")
    git(project, "submodule", "--quiet", "add", str(outside / "part"), "lib/part")
    git(project, "submodule", "--quiet", "deinit", "-f", "lib/part")
    line = "git init -q lib/part; git -C lib/part config core.fsmonitor ./evil; mv lib other; rm .gitmodules"
    outcome = await run(await open_at(level), line, str(project))
    if level in READ_ONLY:
        assert not (project / "lib/part/.git").exists()
        assert not (project / "other").exists()
    else:
        assert outcome.left is not None and "core.fsmonitor = ./evil" in outcome.left


@pytest.mark.parametrize("level", LEVELS)
async def test_attack_includes_filters_and_a_shared_repository(open_at: OpenAt, project: Path, level: Level) -> None:
    line = """
    git init -q n; git -C n config include.path ../../more; printf '[filter "f"]\\n\\tclean = ./evil\\n' > more
    echo '* filter=f' > n/.git/info/attributes; git init -q k; echo ../../n/.git > k/.git/commondir
    echo ../n/.git > .git/commondir
    """
    outcome = await run(await open_at(level), line, str(project))
    assert outcome.left is not None
    for told in ("n/.git/config: include.path = ../../more", "more: filter.f.clean = ./evil", "attribute = filter=f"):
        assert told in outcome.left
    if level in READ_ONLY:
        assert not (project / ".git/commondir").exists()
    else:
        assert f"{project}/.git/commondir" in outcome.left


@pytest.mark.parametrize("level", LEVELS)
async def test_attack_an_untracked_nested_repository(open_at: OpenAt, project: Path, level: Level) -> None:
    hook = "n/.git/hooks/post-index-change"
    line = f"git init -q n; echo '#!/bin/sh' > {hook}; chmod 755 {hook}"
    outcome = await run(await open_at(level), line, str(project))
    assert outcome.left is not None and f"{project}/n/.git/hooks/post-index-change: hook" in outcome.left


async def test_a_program_that_leaves_the_sandbox_works_as_one_of_ours(
    open_at: OpenAt, home: Path, workspace: Path
) -> None:
    from ferrule.process.plain import PlainLauncher
    from ferrule.sandbox.watched import WatchedLauncher

    protection = Protection(ConfinementPlan((Root(str(workspace)),)), home)
    await protection.look()
    await run(WatchedLauncher(PlainLauncher(), protection), "git init -q sub", str(workspace))
    assert (await run(await open_at(Level.NAMESPACES), "echo x > sub/.git/x", str(workspace))).output == ""


async def test_a_record_that_cannot_be_written_stops_nothing(home: Path, workspace: Path, reports: list[str]) -> None:
    (home / "sandbox").write_text("in the way")
    protection = Protection(ConfinementPlan((Root(str(workspace)),)), home, reports.append)
    await protection.look()
    await protection.began()
    git(workspace, "init", "-q", "sub")
    await protection.ended()
    assert protection.boundary.own == (f"{workspace}/sub/.git",)
    (told,) = reports
    assert told.startswith("cannot record which repositories commands make")
