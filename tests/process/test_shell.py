import asyncio
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from ferrule.lookup import Places
from ferrule.process.launcher import LaunchError
from ferrule.process.plain import PlainLauncher
from ferrule.process.run import run
from ferrule.process.shell import LoginShell, Shell, _with_folders, default_shell, find_shell, shell_argv

Env = Mapping[str, str]
BASH = Shell("/bin/bash")


def home(tmp_path: Path, env: Env, profile: str) -> dict[str, str]:
    (tmp_path / ".bash_profile").write_text(profile)
    return {**env, "HOME": str(tmp_path), "MINE": "agent"}


def test_the_user_s_shell_if_models_can_write_for_it(tmp_path: Path) -> None:
    assert default_shell({"SHELL": "/bin/sh"}) == Shell("/bin/sh")
    fish = tmp_path / "fish"
    fish.write_text("")
    fish.chmod(0o755)
    assert default_shell({"SHELL": str(fish)}).kind in {"bash", "sh", "zsh"}
    assert default_shell({"SHELL": "/no/such/bash"}).path != "/no/such/bash"
    assert default_shell({}).kind in {"bash", "sh", "zsh"}


@pytest.mark.parametrize("name", ["nosuchshell", "/no/such/shell", "/etc/passwd", "/tmp"])
def test_a_shell_that_does_not_exist(name: str, env: Env) -> None:
    with pytest.raises(LaunchError, match=f"the shell does not exist or cannot be run: {name}"):
        find_shell(name, env)


def test_a_shell_by_name_or_path(env: Env) -> None:
    assert find_shell("bash", env).kind == "bash"
    assert find_shell("/bin/sh", env) == Shell("/bin/sh")


def test_command_lines() -> None:
    assert shell_argv(BASH, "echo hi") == ["/bin/bash", "-c", "echo hi"]
    assert shell_argv(BASH, "echo hi", login=True) == ["/bin/bash", "-lc", "echo hi"]
    assert shell_argv(Shell("/bin/zsh"), "echo hi") == ["/bin/zsh", "-fc", "echo hi"]


async def test_the_environment_of_a_login_shell(env: Env, tmp_path: Path) -> None:
    base = home(tmp_path, env, "export MINE='two\nlines'; export PATH=/my/bin:$PATH; local=1; echo hello; cd /")
    found = await LoginShell(PlainLauncher(), BASH, base, "/tmp").environment()
    assert found.problem is None
    assert found.variables["MINE"] == "two\nlines"
    assert found.variables["PATH"].startswith("/my/bin:")
    assert not {"local", "_"} & found.variables.keys() - base.keys()
    assert found.variables.get("SHLVL") == base.get("SHLVL")


@pytest.mark.parametrize(
    ("profile", "problem"),
    [
        ("echo hello; sleep 0.3; export MINE=profile", None),
        ("export MINE=profile; read x; read -p 'Name? ' y </dev/tty", None),
        ("export MINE=profile; echo -n unfinished", None),
        ("export MINE=profile; case $- in *i*) exec true;; esac", None),
        ("export MINE=profile; sleep 60 & echo $! >> ~/pids", None),
        ("export MINE=profile; set -e; unalias nothing 2>/dev/null || true", None),
        ("exec true", "ended the shell with exit code 0"),
        ("exit 1", "ended the shell with exit code 1"),
        ("sleep 60", "took longer than 0.3 s"),
        ("while :; do echo noise; done", "took longer than 0.3 s"),
    ],
)
async def test_b058_start_up_files(env: Env, tmp_path: Path, profile: str, problem: str | None) -> None:
    base = home(tmp_path, env, profile)
    limit = 300 if problem and "longer" in problem else 30_000
    login = LoginShell(PlainLauncher(), BASH, base, "/tmp", timeout_ms=limit, grace=0.2)
    first, second = await asyncio.gather(login.environment(), login.environment())
    assert first is second
    if problem:
        assert first.problem and problem in first.problem and "/bin/bash" in first.problem
        assert first.variables["MINE"] == "agent"
    else:
        assert first.problem is None and first.variables["MINE"] == "profile"
    assert await login.environment() is first
    done = await run(PlainLauncher(), shell_argv(BASH, "echo hi"), env=first.variables, cwd="/tmp", timeout_ms=30_000)
    assert (done.output.text(), done.timed_out) == ("hi\n", False)
    for pid in (tmp_path / "pids").read_text().split() if (tmp_path / "pids").exists() else []:
        os.kill(int(pid), 9)


async def test_a_cancelled_caller_does_not_stop_the_others(env: Env, tmp_path: Path) -> None:
    login = LoginShell(PlainLauncher(), BASH, home(tmp_path, env, "sleep 0.2; export MINE=profile"), "/tmp")
    impatient = asyncio.create_task(login.environment())
    patient = asyncio.create_task(login.environment())
    await asyncio.sleep(0.05)
    impatient.cancel()
    assert (await patient).variables["MINE"] == "profile"


async def test_start_up_files_release_their_locks_when_the_session_ends(env: Env, tmp_path: Path) -> None:
    """As pyenv's do: a script that is ended takes its lock away, which may take a while."""
    script = "trap 'sleep 1; rm ~/lock' EXIT; touch ~/lock; sleep 60"
    login = LoginShell(PlainLauncher(), BASH, home(tmp_path, env, f'bash -c "{script}"'), "/tmp")
    waiting = asyncio.create_task(login.environment())
    while not (tmp_path / "lock").exists():  # noqa: ASYNC110 - the event is in another process
        await asyncio.sleep(0.01)
    await login.close()
    assert not (tmp_path / "lock").exists()
    with pytest.raises(asyncio.CancelledError):
        await waiting


async def test_a_missing_login_shell_is_a_problem_and_no_failure(env: Env) -> None:
    found = await LoginShell(PlainLauncher(), Shell("/no/such/bash"), env, "/tmp").environment()
    assert found.variables == env and found.problem == "program not found: /no/such/bash"


async def test_a_shell_that_keeps_the_last_word_in_an_inherited_variable(env: Env) -> None:
    found = await LoginShell(PlainLauncher(), Shell("/bin/sh"), {**env, "_": "x", "LAST": "1"}, "/tmp").environment()
    assert found.problem is None and found.variables["LAST"] == "1" and "PATH" in found.variables


async def test_s09_start_up_files_find_no_program_of_a_command(tmp_path: Path) -> None:
    planted, fine = tmp_path / "work/.venv/bin", tmp_path / "fine"
    for folder in (planted, fine):
        folder.mkdir(parents=True)
    (planted / "tool").write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    (planted / "tool").chmod(0o755)
    env = {"PATH": f"{planted}:{fine}:/usr/bin:/bin"}
    base = home(tmp_path, env, "tool; export PATH=/opt/mine:$PATH")
    places = Places((str(tmp_path / "work"),))
    found = await LoginShell(PlainLauncher(), BASH, base, "/tmp", places=places).environment()
    assert not (tmp_path / "ran").exists()
    assert found.variables["PATH"].startswith("/opt/mine:")


def test_s09_folders_that_start_up_files_did_not_see_come_back() -> None:
    base, safe = "/w/bin:/usr/bin:/w/b:/bin:/w/c", "/usr/bin:/bin"
    assert _with_folders("/opt:/usr/bin:/bin", base, safe) == "/opt:/w/bin:/usr/bin:/w/b:/bin:/w/c"
    assert _with_folders("/opt:/sbin", base, safe) == "/opt:/sbin"


def test_s09_no_shell_of_a_command(tmp_path: Path) -> None:
    (tmp_path / "bash").write_text("#!/bin/sh\n")
    (tmp_path / "bash").chmod(0o755)
    env = {"SHELL": f"{tmp_path}/bash", "PATH": f"{tmp_path}:/usr/bin:/bin"}
    assert default_shell(env).path == f"{tmp_path}/bash"
    assert default_shell(env, Places((str(tmp_path),))).path != f"{tmp_path}/bash"
