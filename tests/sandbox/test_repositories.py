"""Nested repositories: found, watched, disarmed."""

import os
import subprocess
from pathlib import Path

import pytest

from ferrule.sandbox import repositories
from ferrule.sandbox.plan import ConfinementPlan, Root
from ferrule.sandbox.repositories import RepositoryWatch


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


@pytest.fixture
def watch(root: Path, tmp_path: Path) -> RepositoryWatch:
    return RepositoryWatch(ConfinementPlan((Root(str(root)),)), tmp_path / "quarantine")


def git(*words: str, cwd: Path) -> None:
    env = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}
    subprocess.run(["git", *words], cwd=cwd, check=True, capture_output=True, env=env)


def quarantined(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "quarantine").rglob("*") if path.is_file() or path.is_symlink())


def test_found_at_the_start(watch: RepositoryWatch, root: Path) -> None:
    git("init", "vendor/s", cwd=root)
    (root / "worktree").mkdir()
    (root / "worktree" / ".git").write_text("gitdir: /elsewhere\n")
    watch.start()
    assert sorted(watch.protected) == [f"{root}/vendor/s/.git", f"{root}/worktree/.git"]
    assert watch.inspect() == ()


def test_one_that_moves_stays_protected(watch: RepositoryWatch, root: Path) -> None:
    git("init", "vendor/s", cwd=root)
    (root / "vendor/s/.git/hooks/post-checkout").write_text("the user's own")
    watch.start()
    (root / "vendor").rename(root / "lib")
    assert watch.inspect() == ()
    assert watch.protected == (f"{root}/lib/s/.git",)


def test_a_clone_can_be_used(watch: RepositoryWatch, root: Path, tmp_path: Path) -> None:
    watch.start()
    git("init", "-b", "main", "origin", cwd=tmp_path)
    git("-c", "user.name=n", "-c", "user.email=e", "commit", "--allow-empty", "-m", "x", cwd=tmp_path / "origin")
    git("clone", str(tmp_path / "origin"), "clone", cwd=root)
    git("config", "user.name", "me", cwd=root / "clone")
    git("checkout", "-b", "topic", "--track", "origin/main", cwd=root / "clone")
    assert watch.inspect() == ()


def test_b133_hooks_of_a_new_repository(watch: RepositoryWatch, root: Path, tmp_path: Path) -> None:
    watch.start()
    hooks = root / "vendor" / "s" / ".git" / "hooks"
    hooks.mkdir(parents=True)
    (hooks / "post-checkout").write_text("evil")
    (report,) = watch.inspect()
    assert report.startswith(f"Moved to {tmp_path}/quarantine/")
    assert f"{hooks}/post-checkout" in report
    assert os.listdir(hooks) == []
    assert quarantined(tmp_path) == ["0-post-checkout"]
    assert watch.inspect() == ()


def test_a_hook_is_disarmed_where_the_quarantine_cannot_be_written(
    watch: RepositoryWatch, root: Path, tmp_path: Path
) -> None:
    watch.start()
    (tmp_path / "quarantine").write_text("a file is in the way")
    git_folder = root / "s" / ".git"
    (git_folder / "hooks").mkdir(parents=True)
    (git_folder / "hooks" / "post-checkout").write_text("evil")
    (git_folder / "config").write_text("[core]\n\tfsmonitor = evil\n")
    (report,) = watch.inspect()
    assert "post-checkout (renamed to post-checkout." in report and "config (renamed to config." in report
    left = [*os.listdir(git_folder / "hooks"), *os.listdir(git_folder)]
    assert "post-checkout" not in left and "config" not in left
    assert watch.inspect() == ()


def test_a_hook_that_comes_later(watch: RepositoryWatch, root: Path) -> None:
    watch.start()
    git("init", "new", cwd=root)
    assert watch.inspect() == ()
    (root / "new/.git/hooks/pre-commit").write_text("evil")
    assert len(watch.inspect()) == 1


@pytest.mark.parametrize(
    "line",
    [
        "[core]\n\thooksPath = h",
        "[core] hookspath=h",
        "[core]\n\tfsmonitor = ./x",
        "[core]\n\tpager = ./x",
        '[filter "x"]\n\tclean = ./x',
        "[alias]\n\ta = !./x",
        "[include]\n\tpath = ../x",
        '[remote "origin"]\n\tuploadpack = ./x',
        "[core]\n\tbare = false\\\n\thooksPath = h",
        '[remote "a"] url = x # \\\n[core] hooksPath = h',
        '[remote "\\"]"] hooksPath = h',
    ],
)
def test_b133_configuration_that_names_programs(watch: RepositoryWatch, root: Path, tmp_path: Path, line: str) -> None:
    watch.start()
    git("init", "new", cwd=root)
    with (root / "new/.git/config").open("a") as file:
        file.write(line + "\n")
    assert len(watch.inspect()) == 1
    assert quarantined(tmp_path) == ["0-config"]
    git("status", cwd=root / "new")


def test_hooks_that_are_a_link(watch: RepositoryWatch, root: Path, tmp_path: Path) -> None:
    """The link is moved; what it leads to is not touched."""
    watch.start()
    (tmp_path / "victim").mkdir()
    (tmp_path / "victim" / "precious").write_text("x")
    git("init", "new", cwd=root)
    for hook in (root / "new/.git/hooks").iterdir():
        hook.unlink()
    (root / "new/.git/hooks").rmdir()
    (root / "new/.git/hooks").symlink_to(tmp_path / "victim")
    assert len(watch.inspect()) == 1
    assert (tmp_path / "victim" / "precious").exists()
    assert not (root / "new/.git/hooks").exists()


def test_a_git_file_to_a_folder_in_the_root(watch: RepositoryWatch, root: Path) -> None:
    watch.start()
    (root / "meta/hooks").mkdir(parents=True)
    (root / "meta/hooks/pre-commit").write_text("evil")
    (root / "sub").mkdir()
    (root / "sub/.git").write_text("gitdir: ../meta\n")
    assert len(watch.inspect()) == 1
    assert os.listdir(root / "meta/hooks") == []


def test_submodules_of_a_new_repository(watch: RepositoryWatch, root: Path) -> None:
    watch.start()
    git("init", "new", cwd=root)
    git("init", "--bare", ".git/modules/m", cwd=root / "new")
    (root / "new/.git/modules/m/hooks/pre-commit").write_text("evil")
    assert len(watch.inspect()) == 1


def test_outside_of_the_roots_nothing_is_moved(watch: RepositoryWatch, root: Path, tmp_path: Path) -> None:
    git("init", "mine", cwd=tmp_path)
    (tmp_path / "mine/.git/hooks/pre-commit").write_text("the user's own")
    watch.start()
    (root / "sub").mkdir()
    (root / "sub/.git").write_text(f"gitdir: {tmp_path}/mine/.git\n")
    assert watch.inspect() == ()
    assert (tmp_path / "mine/.git/hooks/pre-commit").exists()


def test_quarantine_on_another_file_system(root: Path) -> None:
    shm = Path("/dev/shm") / f"ferrule-quarantine-{os.getpid()}"
    watch = RepositoryWatch(ConfinementPlan((Root(str(root)),)), shm)
    watch.start()
    git("init", "new", cwd=root)
    (root / "new/.git/hooks/pre-commit").write_text("evil")
    (root / "new/.git/hooks/folder").mkdir()
    try:
        assert len(watch.inspect()) == 1
        assert [path.read_text() for path in shm.rglob("*pre-commit")] == ["evil"]
        assert not (root / "new/.git/hooks/pre-commit").exists()
    finally:
        subprocess.run(["rm", "-rf", str(shm)], check=True)


def test_the_scan_is_bounded(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repositories, "MAX_FOLDERS", 10)
    for number in range(30):
        (root / f"d{number:02}" / "below").mkdir(parents=True)
    watch = RepositoryWatch(ConfinementPlan((Root(str(root)),)), tmp_path / "quarantine")
    watch.start()
    assert len(watch._folders) == 10


def test_one_that_the_first_scan_did_not_reach_is_left_alone(
    watch: RepositoryWatch, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be the user's own, with hooks of the user's."""
    git("init", "a/old", cwd=root)
    (root / "a/old/.git/hooks/pre-commit").write_text("the user's own")
    monkeypatch.setattr(repositories, "MAX_DEPTH", 1)
    watch.start()
    monkeypatch.undo()
    for made in ("a/new/deep", "fresh/new"):
        git("init", made, cwd=root)
        (root / made / ".git/hooks/pre-commit").write_text("evil")
    assert len(watch.inspect()) == 2
    assert (root / "a/old/.git/hooks/pre-commit").exists()


def test_a_full_tmp_does_not_hide_the_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repositories, "MAX_FOLDERS", 10)
    for number in range(20):
        (tmp_path / "t" / f"d{number}").mkdir(parents=True)
    git("init", "w/vendor/s", cwd=tmp_path)
    plan = ConfinementPlan((Root(str(tmp_path / "t"), reserve=False), Root(str(tmp_path / "w"))))
    watch = RepositoryWatch(plan, tmp_path / "quarantine")
    watch.start()
    assert watch.protected == (f"{tmp_path}/w/vendor/s/.git",)


def test_an_unchanged_folder_is_not_read_again(
    watch: RepositoryWatch, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (root / "a" / "b").mkdir(parents=True)
    monkeypatch.setattr(repositories, "SETTLED_NS", -1)
    watch.start()
    monkeypatch.setattr(os, "scandir", lambda path: pytest.fail(f"read {path} again"))
    watch.inspect()
