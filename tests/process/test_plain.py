import asyncio
import errno
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from ferrule.process import plain
from ferrule.process.launcher import LaunchError, Limits, Pipes, Pty, Stdio
from ferrule.process.plain import PlainLauncher
from ferrule.process.run import Completed, run
from ferrule.process.tree import MARK_VARIABLE
from tests.processes import gained, held

Env = Mapping[str, str]
KINDS: list[Stdio] = [Pipes(), Pty()]


async def bash(env: Env, script: str, stdio: Stdio = Pipes(), cwd: str = "/tmp") -> Completed:  # noqa: B008
    return await run(PlainLauncher(), ["bash", "-c", script], env=env, cwd=cwd, stdio=stdio, timeout_ms=20_000)


def lines(done: Completed) -> list[str]:
    return done.output.text().split()


@pytest.mark.parametrize("stdio", KINDS)
async def test_exit_code(env: Env, stdio: Stdio) -> None:
    done = await bash(env, "exit 7", stdio)
    assert (done.status.code, done.status.signal, done.exit_code) == (7, None, 7)


@pytest.mark.parametrize("stdio", KINDS)
async def test_death_by_signal(env: Env, stdio: Stdio) -> None:
    done = await bash(env, "kill -9 $$", stdio)
    assert (done.status.code, done.status.signal, done.exit_code) == (None, 9, 137)


@pytest.mark.parametrize("stdio", KINDS)
async def test_own_session_and_group(env: Env, stdio: Stdio) -> None:
    pid, group, session = lines(await bash(env, "ps -o pid=,pgid=,sid= -p $$", stdio))
    assert pid == group == session


async def test_b038_stdin_is_empty_even_if_the_host_s_is_open(env: Env) -> None:
    reading, writing = os.pipe()
    saved = os.dup(0)
    os.dup2(reading, 0)
    try:
        done = await bash(env, "cat; readlink /proc/self/fd/0")
    finally:
        os.dup2(saved, 0)
        for fd in (saved, reading, writing):
            os.close(fd)
    assert done.output.text() == "/dev/null\n"


async def test_the_host_s_descriptors_are_not_inherited(env: Env) -> None:
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    try:
        done = await bash(env, "ls -l /proc/self/fd")
    finally:
        os.close(reading)
        os.close(writing)
    assert "/dev/null" in done.output.text()
    assert len([line for line in done.output.text().splitlines() if "->" in line]) == 4  # 0, 1, 2 and ls's own


async def test_a_broken_pipe_ends_a_producer(env: Env) -> None:
    assert (await bash(env, "set -o pipefail; yes | head -1")).exit_code == 128 + signal.SIGPIPE


async def test_the_terminal_is_the_controlling_one(env: Env) -> None:
    done = await bash(env, "echo seen > /dev/tty; tty; ps -o tpgid= -p $$; echo $$", Pty())
    seen, tty, foreground, pid = lines(done)
    assert seen == "seen" and tty.startswith("/dev/pts/") and foreground == pid


async def test_the_terminal_without_util_linux(env: Env, monkeypatch: pytest.MonkeyPatch) -> None:
    command = (sys.executable, "-I", "-S", "-c", plain._TERMINAL_SCRIPT)
    monkeypatch.setattr(plain, "_terminal_command", lambda: command)
    assert lines(await bash(env, "echo seen > /dev/tty; exit 3", Pty())) == ["seen"]


async def test_the_environment_passes_the_terminal_unchanged(env: Env) -> None:
    odd = {**env, "BASH_FUNC_f%%": "() { :; }", "with.dot": "1"}
    done = await run(PlainLauncher(), ["env"], env=odd, cwd="/tmp", stdio=Pty())
    names = {line.partition("=")[0] for line in done.output.text().splitlines()}
    assert names == {*odd, MARK_VARIABLE}


async def test_job_control_works_on_a_terminal(env: Env) -> None:
    done = await bash(env, "set -m; sleep 0.01 & wait; fg 2>&1; echo done", Pty())
    assert "no job control" not in done.output.text() and lines(done)[-1] == "done"


async def test_size_and_resize(env: Env) -> None:
    script = "trap 'stty size; exit' WINCH; stty size; while :; do sleep 0.02; done"
    size = asyncio.Event()
    child = await PlainLauncher().launch(["bash", "-c", script], env, "/tmp", Pty(), Limits())
    seen = b""

    def read() -> None:
        nonlocal seen
        seen += os.read(child.stdout, 4096)
        if b"\n" in seen:
            size.set()
        if b"33 44" in seen:
            loop.remove_reader(child.stdout)

    loop = asyncio.get_running_loop()
    loop.add_reader(child.stdout, read)
    await size.wait()
    assert seen == b"50 200\r\n"
    child.resize(33, 44)
    assert (await child.wait()).code == 0
    os.close(child.stdout)
    assert seen == b"50 200\r\n33 44\r\n"
    child.resize(1, 1)


@pytest.mark.parametrize("stdio", KINDS)
@pytest.mark.parametrize("name", ["no-such-program", "/no/such/program", "./no-such"])
async def test_missing_program(env: Env, stdio: Stdio, name: str) -> None:
    with pytest.raises(LaunchError, match=f"program not found: {name}"):
        await run(PlainLauncher(), [name], env=env, cwd="/tmp", stdio=stdio)


@pytest.mark.parametrize("stdio", KINDS)
async def test_what_cannot_be_run(env: Env, stdio: Stdio, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no program")
    with pytest.raises(LaunchError, match=r"cannot run ./text: Permission denied"):
        await run(PlainLauncher(), ["./text"], env=env, cwd=str(tmp_path), stdio=stdio)


async def test_missing_interpreter(env: Env, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n")
    script.chmod(0o755)
    with pytest.raises(LaunchError, match="its interpreter"):
        await run(PlainLauncher(), [str(script)], env=env, cwd="/tmp")


@pytest.mark.parametrize("stdio", KINDS)
async def test_b049_missing_workdir(env: Env, stdio: Stdio, tmp_path: Path) -> None:
    workdir = tmp_path / "w"
    workdir.mkdir()
    assert (await bash(env, "true", stdio, cwd=str(workdir))).exit_code == 0
    workdir.rmdir()
    with pytest.raises(LaunchError, match=f"the working directory does not exist: {workdir}"):
        await bash(env, "true", stdio, cwd=str(workdir))


@pytest.mark.parametrize("stdio", KINDS)
async def test_b050_workdir_is_a_file(env: Env, stdio: Stdio, tmp_path: Path) -> None:
    (tmp_path / "w").touch()
    with pytest.raises(LaunchError, match=f"the working directory is not a directory: {tmp_path}/w"):
        await bash(env, "true", stdio, cwd=f"{tmp_path}/w")


@pytest.mark.parametrize("stdio", KINDS)
@pytest.mark.parametrize(
    ("argv", "text"),
    [
        ([], "it is empty"),
        (["", "x"], "it is empty"),
        (["echo", "a\0b"], "embedded null byte"),
        (["echo", "\ud800"], "surrogates not allowed"),
        (["echo", "x" * 200_000], "the longest here has 200000: put long text into a file"),
    ],
)
async def test_impossible_command_lines(env: Env, stdio: Stdio, argv: list[str], text: str) -> None:
    with pytest.raises(LaunchError, match=text):
        await run(PlainLauncher(), argv, env=env, cwd="/tmp", stdio=stdio)


@pytest.mark.parametrize("stdio", KINDS)
async def test_a_failed_start_leaves_nothing(env: Env, stdio: Stdio, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_pidfd(pid: int) -> int:
        raise OSError(24, "Too many open files")

    before = held()
    with pytest.raises(LaunchError):
        await run(PlainLauncher(), ["no-such"], env=env, cwd="/tmp", stdio=stdio)
    monkeypatch.setattr(os, "pidfd_open", no_pidfd)
    with pytest.raises(LaunchError, match="Too many open files"):
        await run(PlainLauncher(), ["sleep", "60"], env=env, cwd="/tmp", stdio=stdio)
    assert not gained(before).descriptors


async def test_without_pidfd_a_thread_waits(env: Env, monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown(pid: int) -> int:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", unknown)
    assert (await bash(env, "exit 4")).exit_code == 4
    monkeypatch.delattr(os, "pidfd_open")
    assert (await bash(env, "exit 5")).exit_code == 5


async def test_no_core_files(env: Env) -> None:
    assert lines(await bash(env, "sleep 0.05; cat /proc/$$/limits | grep core"))[4:6] == ["0", "0"]


async def test_wait_may_be_cancelled_and_repeated(env: Env) -> None:
    child = await PlainLauncher().launch(["sleep", "0.2"], env, "/tmp", Pipes(), Limits())
    impatient = asyncio.create_task(child.wait())
    await asyncio.sleep(0)
    impatient.cancel()
    statuses = await asyncio.gather(child.wait(), child.wait())
    assert [status.code for status in statuses] == [0, 0]
    assert (await child.wait()).code == 0
    for fd in (child.stdout, child.stderr):
        assert fd is not None
        os.close(fd)
