"""What git would run in a repository, told without running git."""

import os
import subprocess
from pathlib import Path

import pytest

from ferrule.git import programs
from ferrule.git.layout import directories, is_bare_shape
from ferrule.git.programs import UNREADABLE, Program, examine


def git(*words: str, cwd: Path) -> str:
    done = subprocess.run(
        ["git", "-c", "user.name=x", "-c", "user.email=x@x", "-c", "protocol.file.allow=always", *words],
        cwd=cwd, check=True, capture_output=True, text=True, env={"PATH": os.environ["PATH"], "HOME": str(cwd)},
    )  # fmt: skip
    return done.stdout


@pytest.fixture
def top(tmp_path: Path) -> Path:
    git("init", "-q", "own", cwd=tmp_path)
    return tmp_path / "own"


def found(entry: Path, *, bare: bool = False) -> set[tuple[str, str, str]]:
    """File names relative to the folder of the entry."""
    programs = examine(str(entry), lambda path: False, bare=bare).programs
    return {(os.path.relpath(one.file, entry.parent), one.key, one.value) for one in programs}


def hook(path: Path) -> None:
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)


def test_a_fresh_repository_runs_nothing(top: Path) -> None:
    git("commit", "-q", "--allow-empty", "-m", "x", cwd=top)
    git("remote", "add", "origin", "https://example.org/x", cwd=top)
    git("branch", "side", cwd=top)
    assert found(top / ".git") == set()


def test_hooks_and_settings(top: Path) -> None:
    hook(top / ".git/hooks/post-checkout")
    (top / ".git/hooks/pre-push").write_text("not executable")
    git("config", "core.hooksPath", ".husky", cwd=top)
    assert found(top / ".git") == {
        (".git/hooks/post-checkout", "hook", ""),
        (".git/config", "core.hookspath", ".husky"),
    }


def test_a_bare_repository(tmp_path: Path) -> None:
    git("init", "-q", "--bare", "b", cwd=tmp_path)
    assert is_bare_shape(os.listdir(tmp_path / "b"))
    git("config", "--file", "b/config", "core.fsmonitor", "./x", cwd=tmp_path)
    git("config", "--file", "b/config", "core.worktree", "/", cwd=tmp_path)
    assert found(tmp_path / "b", bare=True) == {("b/config", "core.fsmonitor", "./x")}


def test_includes_and_filters(top: Path) -> None:
    git("config", "include.path", "../more", cwd=top)
    git("config", "includeIf.gitdir:/.path", "third", cwd=top)
    (top / "more").write_text('[filter "f"]\n\tclean = ./x\n[include]\n\tpath = more\n')
    (top / ".git/third").write_text("[core]\n\tsshCommand = ./y\n")
    (top / ".git/info/attributes").write_text("# *.c filter=no\n*.txt text filter=f -diff\n")
    assert found(top / ".git") == {
        (".git/config", "include.path", "../more"),
        (".git/config", "includeif.gitdir:/.path", "third"),
        ("more", "filter.f.clean", "./x"),
        ("more", "include.path", "more"),
        (".git/third", "core.sshcommand", "./y"),
        (".git/info/attributes", "attribute", "filter=f"),
    }


def test_shared_worktrees_and_submodules(top: Path, tmp_path: Path) -> None:
    git("init", "-q", "other", cwd=tmp_path)
    git("commit", "-q", "--allow-empty", "-m", "x", cwd=tmp_path / "other")
    git("submodule", "--quiet", "add", str(tmp_path / "other"), "deep/sub", cwd=top)
    git("commit", "-q", "-m", "x", cwd=top)
    git("worktree", "add", "-q", "wt", cwd=top)
    hook(top / ".git/modules/deep/sub/hooks/post-merge")
    (top / ".git/worktrees/wt/config.worktree").write_text("[core]\n\tfsmonitor = ./x\n")
    expected = {
        (".git/modules/deep/sub/hooks/post-merge", "hook", ""),
        (".git/worktrees/wt/config.worktree", "core.fsmonitor", "./x"),
    }
    assert found(top / ".git") == expected
    assert {(name.removeprefix("../"), *rest) for name, *rest in found(top / "wt/.git")} == expected


def test_s07_a_folder_that_shares_another(tmp_path: Path) -> None:
    git("init", "-q", "e1", cwd=tmp_path)
    git("config", "core.fsmonitor", "./x", cwd=tmp_path / "e1")
    (tmp_path / "n/.git").mkdir(parents=True)
    (tmp_path / "n/.git/HEAD").write_text("ref: refs/heads/main\n")
    (tmp_path / "n/.git/commondir").write_text("../../e1/.git\n")
    assert found(tmp_path / "n/.git") == {("../e1/.git/config", "core.fsmonitor", "./x")}
    (tmp_path / "m").mkdir()
    (tmp_path / "m/.git").symlink_to("../n/.git")
    assert found(tmp_path / "m/.git") == {("../e1/.git/config", "core.fsmonitor", "./x")}


def test_s07_a_link_to_a_pointer_is_resolved_from_the_links_place(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    git("init", "-q", "n/real", cwd=tmp_path)
    git("config", "core.fsmonitor", "./x", cwd=tmp_path / "n/real")
    (tmp_path / "elsewhere/pointer").write_text("gitdir: real/.git\r\n\n")
    (tmp_path / "n/.git").symlink_to("../elsewhere/pointer")
    assert git("rev-parse", "--absolute-git-dir", cwd=tmp_path / "n") == f"{tmp_path}/n/real/.git\n"
    assert directories(str(tmp_path / "n/.git")) == (f"{tmp_path}/n/real/.git",)
    assert found(tmp_path / "n/.git") == {("real/.git/config", "core.fsmonitor", "./x")}


def test_commands_of_a_rebase(top: Path) -> None:
    (top / ".git/rebase-merge").mkdir()
    (top / ".git/rebase-merge/git-rebase-todo").write_text("pick 123 x\nexec ./x 1\nx ./y\n\texec\t./z\nexecute\n")
    assert found(top / ".git") == {
        (".git/rebase-merge/git-rebase-todo", "exec", "./x 1"),
        (".git/rebase-merge/git-rebase-todo", "exec", "./y"),
        (".git/rebase-merge/git-rebase-todo", "exec", "./z"),
    }


def test_an_include_of_what_was_looked_at_for_something_else(top: Path) -> None:
    git("config", "include.path", "hooks/x.sample", cwd=top)
    (top / ".git/hooks/x.sample").write_text("[core]\n\tfsmonitor = ./x\n")
    assert (".git/hooks/x.sample", "core.fsmonitor", "./x") in found(top / ".git")


def test_an_include_whose_name_is_no_utf_8(top: Path) -> None:
    (top / ".git/config").write_bytes(b"[include]\n\tpath = \xff\n")
    Path(os.fsdecode(os.fsencode(top) + b"/.git/\xff")).write_text("[core]\n\tfsmonitor = ./x\n")
    assert (".git/\udcff", "core.fsmonitor", "./x") in found(top / ".git")


def test_an_include_that_is_first_met_too_deep_to_follow(top: Path) -> None:
    (top / ".git/config").write_text("[include]\n\tpath = 1\n\tpath = 10\n")
    for number in range(1, 10):
        (top / f".git/{number}").write_text(f"[include]\n\tpath = {number + 1}\n")
    (top / ".git/10").write_text("[include]\n\tpath = last\n")
    (top / ".git/last").write_text("[core]\n\tfsmonitor = ./x\n")
    assert (".git/last", "core.fsmonitor", "./x") in found(top / ".git")


@pytest.mark.parametrize("path", ["~\0x/y", "~nobody-of-this-name/x", "", "x\0y", "a" * 5000])
def test_an_include_of_nothing_stops_nothing(top: Path, path: str) -> None:
    (top / ".git/config").write_text(f'[include]\n\tpath = "{path}"\n')
    assert {key for _, key, _ in found(top / ".git")} <= {"include.path", UNREADABLE}


def test_s07_a_pointer_that_ends_at_a_nul(tmp_path: Path) -> None:
    git("init", "-q", "real", cwd=tmp_path)
    git("config", "core.fsmonitor", "./x", cwd=tmp_path / "real")
    (tmp_path / "n").mkdir()
    (tmp_path / "n/.git").write_text("gitdir: ../real/.git\0nonsense\n")
    assert git("rev-parse", "--absolute-git-dir", cwd=tmp_path / "n") == f"{tmp_path}/real/.git\n"
    assert found(tmp_path / "n/.git") == {("../real/.git/config", "core.fsmonitor", "./x")}


def test_attributes_are_read_by_gits_idea_of_a_line(top: Path) -> None:
    (top / ".git/info/attributes").write_text("*\x0c#a filter=f\n\u00a0#b\tdiff=d\r\n# filter=no\n")
    assert found(top / ".git") == {
        (".git/info/attributes", "attribute", "filter=f"),
        (".git/info/attributes", "attribute", "diff=d"),
    }


def test_links_that_lead_back_take_no_time(top: Path) -> None:
    (top / ".git/modules/a").mkdir(parents=True)
    for number in range(50):
        (top / f".git/modules/{number}").symlink_to(".")
        (top / f".git/modules/a/{number}").symlink_to("../a")
    assert found(top / ".git") == set()


def test_a_bound_on_all_that_is_read(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "LARGEST_SUM", 4096)
    monkeypatch.setattr(programs, "MAX_INCLUDES", 3)
    (top / ".git/config").write_text("".join(f"[include]\n\tpath = {number}\n" for number in range(20)))
    for number in range(20):
        (top / f".git/{number}").write_text("#" * 1000)
    told = [value for _, key, value in found(top / ".git") if key == UNREADABLE]
    assert told == ["there are more than 4 KiB to read"]
    monkeypatch.setattr(programs, "MAX_PLACES", 10)
    told = [value for _, key, value in found(top / ".git") if key == UNREADABLE]
    assert told == ["there are more than 10 files to look at"]


def test_what_cannot_be_read_is_told(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "LARGEST_FILE", 2048)
    monkeypatch.setattr(programs, "MAX_ENTRIES", 3)
    (top / ".git/config").unlink()
    os.mkfifo(top / ".git/config")
    (top / ".git/info/attributes").write_bytes(b"x" * 2049)
    (top / ".git/config.worktree").write_text("[core\n")
    assert found(top / ".git") == {
        (".git/config", UNREADABLE, "is a named pipe, not a file"),
        (".git/config.worktree", UNREADABLE, "line 1 is no configuration"),
        (".git/info/attributes", UNREADABLE, "is larger than 2 KiB"),
        (".git/hooks", UNREADABLE, "holds more than 3 files"),
    }


def test_a_file_of_the_kernel_is_not_told(top: Path) -> None:
    (top / ".git/config").unlink()
    (top / ".git/config").symlink_to("/proc/self/environ")
    assert found(top / ".git") == set()


def test_too_many_repositories_are_told(top: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "MAX_DIRECTORIES", 2)
    for name in "abc":
        (top / ".git/worktrees" / name).mkdir(parents=True)
    assert {key for _, key, _ in found(top / ".git")} == {UNREADABLE}


def test_the_users_own_settings_are_not_told(top: Path) -> None:
    git("config", "core.hooksPath", ".husky", cwd=top)
    (top / "x").mkdir()
    (top / "x/.git").write_text("gitdir: ../.git\n")
    assert examine(str(top / "x/.git"), lambda path: path == str(top / ".git")).programs == ()


def test_current_until_something_changes(top: Path) -> None:
    before = examine(str(top / ".git"), lambda path: False)
    assert before.is_current()
    git("config", "include.path", "more", cwd=top)
    after = examine(str(top / ".git"), lambda path: False)
    assert (before.is_current(), after.is_current()) == (False, True)
    (top / ".git/more").write_text("")
    assert not after.is_current()
    (top / "n").mkdir()
    (top / "n/.git").write_text("gitdir: ../later/store\n")
    pointer = examine(str(top / "n/.git"), lambda path: False)
    (top / "later").mkdir()
    git("init", "-q", "--bare", "later/store", cwd=top)
    assert not pointer.is_current()
    assert Program(str(top / ".git/config"), "include.path", "more") in after.programs


@pytest.mark.parametrize("content", [b"", b"gitdir: ", b"gitdir: gone\n", b"nonsense", b"gitdir: a\0b", b"\xff\xfe"])
def test_a_pointer_to_nowhere(tmp_path: Path, content: bytes) -> None:
    (tmp_path / ".git").write_bytes(content)
    assert found(tmp_path / ".git") == set()
