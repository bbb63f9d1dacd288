"""What this machine's git would start: real repositories, real configuration (case B124)."""

import os
import subprocess
from pathlib import Path
from unittest.mock import ANY

import pytest

from ferrule.execpolicy import LocalHost, Rules, decide
from ferrule.lookup import Places
from ferrule.protocol.approvals import ExecApprovalRequest, ExecPolicyAmendment, NeedsApproval, Skip
from ferrule.protocol.permissions import AskForApproval, WorkspaceWrite

ENV = {"PATH": os.environ["PATH"], "GIT_AUTHOR_NAME": "a", "GIT_PAGER": "cat"}


def git(cwd: Path, *words: str) -> None:
    identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "init.defaultBranch=main"]
    subprocess.run(
        ["git", *identity, *words], cwd=cwd, env=ENV | {"HOME": str(cwd.parent)}, check=True, capture_output=True
    )


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    path = tmp_path / "repo"
    path.mkdir()
    git(path, "init", "-q")
    (path / "f").write_text("x\n")
    git(path, "add", "f")
    git(path, "commit", "-qm", "first")
    return path


def inert(path: Path, **env: str) -> bool:
    return LocalHost(str(path), ENV | {"HOME": str(path.parent)} | env).git_is_inert()


def test_a_plain_repository_starts_nothing(repository: Path) -> None:
    assert inert(repository)
    (repository / "sub").mkdir()
    assert inert(repository / "sub")


def test_outside_of_a_repository_the_users_configuration_counts(tmp_path: Path) -> None:
    place = tmp_path / "plain"
    place.mkdir()
    assert inert(place)
    (tmp_path / ".gitconfig").write_text("[core]\n\tpager = less -R\n")
    assert not inert(place)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("core.fsmonitor", "./evil"),
        ("core.fsmonitor", "true"),
        ("core.pager", "./evil"),
        ("pager.log", "./evil"),
        ("pager.status", "true"),
        ("diff.external", "./evil"),
        ("diff.x.textconv", "./evil"),
        ("diff.x.command", "./evil"),
        ("filter.lfs.clean", "git-lfs clean"),
        ("core.hooksPath", "h"),
        ("core.worktree", "/"),
        ("log.showSignature", "true"),
        ("format.pretty", "%G?"),
        ("status.submoduleSummary", "true"),
        ("remote.origin.promisor", "true"),
        ("trace2.normalTarget", "/tmp/x"),
        ("unheard.of", "1"),
    ],
)
@pytest.mark.parametrize("scope", ["--local", "--global"])
def test_b124_a_configured_program_makes_git_unsafe(repository: Path, key: str, value: str, scope: str) -> None:
    git(repository, "config", scope, key, value)
    assert not inert(repository)


def test_usual_configuration_stays_safe(repository: Path) -> None:
    for key, value in [
        ("user.name", "x"),
        ("alias.st", "status"),
        ("core.pager", "cat"),
        ("core.editor", "vim"),
        ("push.default", "simple"),
        ("remote.origin.url", "git@x:y"),
        ("branch.main.merge", "refs/heads/main"),
        ("diff.algorithm", "histogram"),
        ("credential.helper", "store"),
        ("core.fsmonitor", "false"),
        ("commit.gpgsign", "true"),
    ]:
        git(repository, "config", key, value)
    assert inert(repository)


def test_an_included_file_counts(repository: Path) -> None:
    (repository / "more").write_text("[core]\n\tfsmonitor = ./evil\n")
    git(repository, "config", "include.path", "../more")
    assert not inert(repository)


def test_a_hook_on_the_refreshed_index_makes_git_unsafe(repository: Path) -> None:
    (repository / ".git/hooks").mkdir(exist_ok=True)
    (repository / ".git/hooks/post-index-change").write_text("#!/bin/sh\ntouch pwned\n")
    assert not inert(repository)


def test_a_nested_repository_in_the_index_makes_git_unsafe(repository: Path) -> None:
    inner = repository / "inner"
    inner.mkdir()
    git(inner, "init", "-q")
    git(inner, "commit", "-q", "--allow-empty", "-m", "x")
    git(repository, "add", "inner")
    (repository / "sub").mkdir()
    assert not inert(repository / "sub")


@pytest.mark.parametrize("hash_name", ["sha1", "sha256"])
@pytest.mark.parametrize("version", ["2", "4"])
def test_the_index_is_read_in_each_of_its_formats(tmp_path: Path, hash_name: str, version: str) -> None:
    top = tmp_path / "repo"
    inner = top / "z"
    inner.mkdir(parents=True)
    git(top, "init", "-q", f"--object-format={hash_name}")
    for name in ("a", "abc", "abcd" * 40, "b"):
        (top / name).write_text("x\n")
    git(top, "add", "a", "abc", "abcd" * 40, "b")
    git(top, "update-index", "--index-version", version)
    assert int.from_bytes((top / ".git/index").read_bytes()[4:8], "big") == int(version)
    assert inert(top)
    git(inner, "init", "-q", f"--object-format={hash_name}")
    git(inner, "commit", "-q", "--allow-empty", "-m", "x")
    git(top, "add", "z")
    assert not inert(top)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("GIT_EXTERNAL_DIFF", "./p"),
        ("GIT_DIR", "/x"),
        ("GIT_PAGER", "less"),
        ("GIT_CONFIG_COUNT", "0"),
        ("GIT_TRACE", "/tmp/x"),
    ],
)
def test_b130_variables_of_git_make_it_unsafe(repository: Path, name: str, value: str) -> None:
    assert not inert(repository, **{name: value})


def test_without_git_nothing_is_known(repository: Path) -> None:
    assert not inert(repository, PATH="/nonexistent")


def test_programs_are_resolved_through_path_and_links(tmp_path: Path) -> None:
    (tmp_path / "g").symlink_to("/usr/bin/git")
    host = LocalHost(str(tmp_path), {"PATH": f"{tmp_path}:/usr/bin"})
    assert host.resolve("./g") == os.path.realpath("/usr/bin/git")
    assert host.resolve("g") == os.path.realpath("/usr/bin/git")
    assert host.resolve("./none") is None
    assert host.resolve("none-such") is None


@pytest.mark.parametrize("program", ["a\0b", "./\0", "\ud800", "./\ud800", "", "x" * 5000, "a/" * 3000])
def test_a_name_that_no_file_can_have_is_resolved_to_nothing(tmp_path: Path, program: str) -> None:
    assert LocalHost(str(tmp_path), ENV).resolve(program) is None


def planted(folder: Path, name: str = "git") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / name
    program.write_text("#!/bin/sh\ntouch pwned\n")
    program.chmod(0o755)
    return folder


@pytest.mark.parametrize("way", ["plain", "link to the folder", "link to the program", "link in between", "relative"])
def test_s09_a_program_that_commands_can_write_is_neither_safe_nor_started(repository: Path, way: str) -> None:
    root, outside = repository, repository.parent / "outside"
    bin_folder = planted(root / ".venv/bin")
    outside.mkdir()
    if way == "link to the folder":
        (outside / "bin").symlink_to(bin_folder)
        bin_folder = outside / "bin"
    elif way == "link to the program":
        (outside / "git").symlink_to(bin_folder / "git")
        bin_folder = outside
    elif way == "link in between":
        (root / "way").symlink_to("/usr/bin")
        (outside / "bin").symlink_to(root / "way")
        bin_folder = outside / "bin"
    path = "." if way == "relative" else str(bin_folder)
    if way == "relative":
        planted(root)
    env = ENV | {"HOME": str(repository.parent), "PATH": f"{path}:{ENV['PATH']}"}
    host = LocalHost(str(root), env, Places((str(root.resolve()),)))
    assert not host.git_is_inert()
    assert not (root / "pwned").exists()
    rules = Rules().amended(ExecPolicyAmendment(("git", "fetch")))
    request = ExecApprovalRequest(("bash", "-c", "git fetch"), AskForApproval.ON_REQUEST, WorkspaceWrite())
    assert decide(request, rules, LocalHost(str(root), ENV)) == Skip(True, None, ANY)
    answer = decide(request, rules, host)
    assert isinstance(answer, Skip) and not answer.bypass_sandbox


@pytest.mark.parametrize("argv", [("bash", "-lc", "git fetch"), ("sh", "-c", "bash -c 'git fetch'")])
@pytest.mark.parametrize("policy", [AskForApproval.ON_REQUEST, AskForApproval.NEVER, AskForApproval.UNTRUSTED])
def test_s09_a_shell_that_commands_can_write_frees_nothing(
    repository: Path, argv: tuple[str, ...], policy: AskForApproval
) -> None:
    """Whatever its script is: such a shell may do anything."""
    folder = planted(repository / ".venv/bin", "bash")
    env = ENV | {"HOME": str(repository.parent), "PATH": f"{folder}:{ENV['PATH']}"}
    rules = Rules().amended(ExecPolicyAmendment(("git", "fetch")))
    request = ExecApprovalRequest(argv, policy, WorkspaceWrite())
    assert decide(request, rules, LocalHost(str(repository), env)) == Skip(True, None, ANY)
    answer = decide(request, rules, LocalHost(str(repository), env, Places((str(repository.resolve()),))))
    if policy is AskForApproval.UNTRUSTED:
        assert isinstance(answer, NeedsApproval) and answer.proposed_execpolicy_amendment is None
    else:
        assert isinstance(answer, Skip) and not answer.bypass_sandbox


def test_s09_git_is_not_started_to_look_at_its_configuration(repository: Path, tmp_path: Path) -> None:
    folder = planted(tmp_path / "tools")
    host = LocalHost(str(repository), ENV | {"HOME": str(tmp_path), "PATH": str(folder)})
    assert host.git_is_inert()
    assert not (repository / "pwned").exists()
