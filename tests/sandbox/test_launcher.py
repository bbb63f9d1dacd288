"""The launcher's contract, confined."""

import asyncio
import os
import shutil
import signal
from pathlib import Path

import pytest

from ferrule.process.launcher import Child, ExitStatus, LaunchError, Limits, Pipes, Pty
from ferrule.protocol.permissions import ReadOnly, WorkspaceWrite
from ferrule.sandbox.boundary import Cover
from ferrule.sandbox.linux.bwrap import BwrapLauncher
from ferrule.sandbox.plan import ConfinementPlan, Level, Root
from ferrule.sandbox.policy import plan_confinement
from ferrule.sandbox.sandbox import open_launcher
from tests.processes import gained, held, until
from tests.sandbox.conftest import OpenSandbox, require
from tests.sandbox.running import finish, read_all, run

ENV = {"PATH": "/usr/local/bin:/usr/bin:/bin"}


async def launch(open_sandbox: OpenSandbox, line: str, cwd: Path, stdio: Pipes | Pty | None = None) -> Child:
    sandbox = await open_sandbox()
    return await sandbox.launch(["/bin/bash", "-c", line], ENV, str(cwd), stdio or Pipes(merge=True), Limits())


def close(child: Child) -> None:
    for fd in {child.stdin, child.stdout, child.stderr} - {None}:
        os.close(fd)  # type: ignore[arg-type]  # None was taken out


async def test_streams_are_apart(open_sandbox: OpenSandbox, workspace: Path) -> None:
    child = await launch(open_sandbox, "cat; echo err >&2", workspace, Pipes(stdin=True))
    assert child.stdin is not None and child.stderr is not None
    os.write(child.stdin, b"in")
    os.close(child.stdin)
    assert await asyncio.to_thread(read_all, child.stdout) == "in"
    assert await asyncio.to_thread(read_all, child.stderr) == "err\n"
    assert await child.wait() == ExitStatus(code=0)
    os.close(child.stdout)
    os.close(child.stderr)


async def test_stdin_is_empty_unless_asked_for(open_sandbox: OpenSandbox, workspace: Path) -> None:
    outcome = await run(await open_sandbox(), "cat; readlink /proc/self/fd/0", str(workspace))
    assert outcome.output == "/dev/null\n"


async def test_exit_codes_and_signals(open_sandbox: OpenSandbox, workspace: Path) -> None:
    sandbox = await open_sandbox()
    assert (await run(sandbox, "exit 7", str(workspace))).status == ExitStatus(code=7)
    assert (await run(sandbox, "kill -SEGV $$", str(workspace))).status == ExitStatus(signal=signal.SIGSEGV)
    assert (await run(sandbox, "yes | head -1", str(workspace))).output == "y\n"


async def test_environment_and_cwd(open_sandbox: OpenSandbox, workspace: Path) -> None:
    (workspace / "sub").mkdir()
    outcome = await run(await open_sandbox(), "pwd; env | sort", str(workspace / "sub"), env={**ENV, "A": "ü\udcff"})
    lines = outcome.output.splitlines()
    assert lines[0] == str(workspace / "sub")
    assert lines[1] == "A=ü�"
    assert "CODEX_SANDBOX_NETWORK_DISABLED=1" in lines


async def test_a_huge_environment(open_sandbox: OpenSandbox, workspace: Path) -> None:
    env = {**ENV, **{f"V{number}": "x" * 100_000 for number in range(8)}}
    outcome = await run(await open_sandbox(), "echo ${#V7}", str(workspace), env=env)
    assert outcome.output == "100000\n"


@pytest.mark.parametrize(
    ("argv", "cwd", "message"),
    [
        (["no-such-program"], None, "program not found: no-such-program"),
        (["./gone"], None, "program not found: ./gone"),
        (["./plain"], None, "cannot run ./plain: Permission denied"),
        (["true"], "/no/such/folder", "cannot use the working directory /no/such/folder: No such file or directory"),
        ([], None, "the command is empty"),
        (["a\0b"], None, "NUL"),
        (["a\ud800"], None, "half of a surrogate pair"),
        (["true", "x" * 3_000_000], None, "too long"),
    ],
)
async def test_what_cannot_be_started(
    open_sandbox: OpenSandbox, workspace: Path, argv: list[str], cwd: str | None, message: str
) -> None:
    (workspace / "plain").write_text("x")
    sandbox = await open_sandbox()
    await run(sandbox, "true", str(workspace))  # what a sandbox holds is there with its first command
    before = held()
    with pytest.raises(LaunchError, match=message.replace(".", r"\.")):
        await sandbox.launch(argv, ENV, cwd or str(workspace), Pipes(), Limits())
    assert (await run(sandbox, "echo next", str(workspace))).output == "next\n"
    await until(lambda: len(held().descriptors) <= len(before.descriptors) + 2)


async def test_a_terminal(open_sandbox: OpenSandbox, workspace: Path) -> None:
    child = await launch(open_sandbox, "tty; stty size; echo ok > /dev/tty", workspace, Pty(rows=33, columns=99))
    assert child.stdin == child.stdout and child.stderr is None
    outcome = await finish(child)
    assert outcome.output.split("\r\n") == ["/dev/pts/0", "33 99", "ok", ""]


async def test_resizing_a_terminal(open_sandbox: OpenSandbox, workspace: Path) -> None:
    line = "trap 'stty size; exit' WINCH; echo ready; while :; do read -t 1; done"
    child = await launch(open_sandbox, line, workspace, Pty())
    assert os.read(child.stdout, 100) == b"ready\r\n"
    child.resize(11, 22)
    assert "11 22" in (await finish(child)).output


@pytest.mark.parametrize("stdio", [Pipes(merge=True), Pty()])
async def test_interrupt(open_sandbox: OpenSandbox, workspace: Path, stdio: Pipes | Pty) -> None:
    line = "trap 'echo caught; exit 5' INT; echo ready; while :; do sleep 0.1; done"
    child = await launch(open_sandbox, line, workspace, stdio)
    assert os.read(child.stdout, 100).strip() == b"ready"
    await child.interrupt()
    outcome = await finish(child)
    assert outcome.output.strip().endswith("caught")
    assert outcome.status == ExitStatus(code=5)


async def test_interrupt_reaches_a_raw_terminal(open_sandbox: OpenSandbox, workspace: Path) -> None:
    """Not by typing ^C, which a program can turn off."""
    child = await launch(open_sandbox, "stty raw -isig; echo ready; exec sleep 30", workspace, Pty())
    assert os.read(child.stdout, 100).strip() == b"ready"
    await child.interrupt()
    assert (await finish(child)).status == ExitStatus(signal=signal.SIGINT)


async def test_kill_tree_takes_all(open_sandbox: OpenSandbox, workspace: Path) -> None:
    line = "setsid sleep 76543 & (sleep 76543 & disown) ; sleep 76543 & echo ready; wait"
    child = await launch(open_sandbox, line, workspace)
    assert os.read(child.stdout, 100) == b"ready\n"
    await child.kill_tree()
    assert not _running("sleep 76543")
    assert await child.wait() == ExitStatus(signal=signal.SIGKILL)
    close(child)


async def test_kill_tree_with_grace(open_sandbox: OpenSandbox, workspace: Path) -> None:
    child = await launch(open_sandbox, "trap 'echo bye; exit 3' TERM; echo ready; sleep 30 & wait", workspace)
    assert os.read(child.stdout, 100) == b"ready\n"
    await child.kill_tree(grace=10)
    assert await child.wait() == ExitStatus(code=3)
    assert (await finish(child)).output == "bye\n"


async def test_children_end_with_their_command(open_sandbox: OpenSandbox, workspace: Path) -> None:
    line = 'sleep 76544 & setsid sleep 76544 & until [ "$(pgrep -xc sleep)" = 2 ]; do :; done'
    outcome = await run(await open_sandbox(), line, str(workspace))
    assert outcome.left == "Ended with the command: sleep, sleep."
    assert not _running("sleep 76544")


async def test_a_signal_to_its_own_init_changes_nothing(open_sandbox: OpenSandbox, workspace: Path) -> None:
    outcome = await run(await open_sandbox(), "kill -9 1; kill -STOP 1; echo still here", str(workspace))
    assert outcome.output == "still here\n"


async def test_many_at_once(open_sandbox: OpenSandbox, workspace: Path) -> None:
    sandbox = await open_sandbox()
    outcomes = await asyncio.gather(*(run(sandbox, f"echo {number}", str(workspace)) for number in range(20)))
    assert [outcome.output for outcome in outcomes] == [f"{number}\n" for number in range(20)]


async def test_cancelled_launch_leaves_nothing(open_sandbox: OpenSandbox, workspace: Path) -> None:
    sandbox = await open_sandbox()
    for _ in range(5):
        task = asyncio.create_task(sandbox.launch(["sleep", "76545"], ENV, str(workspace), Pipes(merge=True), Limits()))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await until(lambda: not _running("sleep 76545"))
    assert (await run(sandbox, "echo next", str(workspace))).output == "next\n"
    await until(lambda: os.listdir(workspace) == [])


def _running(command: str) -> bool:
    return os.system(f"pgrep -fx '{command}' > /dev/null") == 0


async def test_no_place_for_its_state_is_a_launch_error(workspace: Path, outside: Path) -> None:
    home = outside / "home"
    home.mkdir()
    (home / "sandbox").write_text("no folder")
    sandbox = await open_launcher(WorkspaceWrite(), str(workspace), home)
    with pytest.raises(LaunchError, match="could not be built"):
        await sandbox.level()
    await sandbox.close()


@pytest.mark.skipif(shutil.which("bwrap") is None, reason="bwrap is not installed")
def test_bwrap_without_place_for_its_filter_leaves_nothing_open(outside: Path) -> None:
    (outside / "filter").mkdir(parents=True)
    before = held()
    with pytest.raises(IsADirectoryError):
        BwrapLauncher(ConfinementPlan(), outside)
    assert not gained(before).descriptors


LEVELS = pytest.mark.parametrize("level", [Level.NAMESPACES, Level.BWRAP, Level.LANDLOCK])


@LEVELS
async def test_s09_no_variable_of_a_command_reaches_what_confines_it(
    open_sandbox: OpenSandbox, workspace: Path, outside: Path, level: Level
) -> None:
    """The dynamic loader obeys variables before a program's first line: here it would write a file."""
    await require(level)
    env = {**ENV, "LD_DEBUG": "files", "LD_DEBUG_OUTPUT": f"{outside}/loader"}
    outcome = await run(await open_sandbox(level=level), "env; ls /proc/self/fd", str(workspace), env=env)
    assert f"LD_DEBUG_OUTPUT={outside}/loader" in outcome.output.splitlines()
    assert sorted(os.listdir(outside)) == ["home", "ws"]


@LEVELS
async def test_variables_reach_the_command_as_they_are(
    open_sandbox: OpenSandbox, workspace: Path, level: Level
) -> None:
    await require(level)
    env = {**ENV, "EMPTY": "", "LINES": "a\nb ' \" $x", "BYTES": "\udcff", "LONG": "x" * 100_000}
    sandbox = await open_sandbox(level=level)
    outcome = await run(sandbox, ["/usr/bin/env", "-0"], str(workspace), env=env)
    assert {f"{name}={value}" for name, value in env.items() if name != "BYTES"} <= set(outcome.output.split("\0"))
    assert "BYTES=\ufffd" in outcome.output
    left = await run(sandbox, ["/bin/ls", "/proc/self/fd"], str(workspace), env=env)
    assert left.output.split() == ["0", "1", "2", "3"], "the last is that of ls"


def test_s09_bwrap_never_comes_from_where_commands_can_write(
    workspace: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = workspace / ".venv/bin"
    planted.mkdir(parents=True)
    (planted / "bwrap").write_text("#!/bin/sh\n")
    (planted / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", str(planted))
    read_only = plan_confinement(ReadOnly(), str(workspace), str(outside / "home"))
    for plan in (ConfinementPlan((Root(str(workspace)),)), read_only):
        with pytest.raises(LaunchError, match="is not used: commands can write there"):
            BwrapLauncher(plan, outside)


async def test_level_2_where_a_folder_on_the_way_became_a_file(workspace: Path, outside: Path) -> None:
    """As when a repository is replaced by a pointer while a command starts."""
    await require(Level.BWRAP)
    (workspace / ".git").write_text("gitdir: elsewhere\n")
    plan = ConfinementPlan((Root(str(workspace)),))
    covers = (Cover("pin", f"{workspace}/.git/modules"), Cover("read", f"{workspace}/.git/modules/x"))
    launcher = BwrapLauncher(plan, outside, lambda: covers)
    assert (await run(launcher, "echo hi", str(workspace))).output == "hi\n"
    await launcher.close()
