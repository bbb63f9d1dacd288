"""Failures that users of such tools have met, each through the tools and with the text that the model reads."""

import os
import re
import shutil
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from ferrule.process.environment import child_environment
from ferrule.protocol.environment_policy import ShellEnvironmentPolicy
from ferrule.protocol.events import ExecCommandEnd
from ferrule.protocol.truncation import byte_length
from tests.builtin.conftest import Benches
from tests.builtin.workbench import Bench, body, field, session_id, unaffected
from tests.http_servers import HttpServer, Silent, listening
from tests.processes import alive, eventually, gained, held, running

SHELLS = ["shell_command", "exec_command"]


async def run(bench: Bench, name: str, script: str, **arguments: object) -> str:
    return await bench.call(name, command=script, **arguments)


def code(text: str) -> int:
    label = "Exit code:" if text.startswith("Exit code:") else "Process exited with code"
    return int(field(text, label))


@pytest.fixture
async def leftovers() -> AsyncIterator[list[int]]:
    """Processes that a test leaves alive on purpose; they are ended afterwards."""
    pids: list[int] = []
    yield pids
    for pid in pids:
        os.kill(pid, 9)
    assert eventually(lambda: not any(map(alive, pids)))


@pytest.mark.parametrize("name", SHELLS)
@pytest.mark.parametrize("script", ["sleep 600 & echo done", "sleep 600 </dev/null >/dev/null & echo done"])
async def test_b032_the_call_ends_with_its_shell(bench: Bench, leftovers: list[int], name: str, script: str) -> None:
    started = time.monotonic()
    text = await run(bench, name, script)
    assert time.monotonic() - started < 30
    first, second = body(text).splitlines()
    assert (code(text), first) == (0, "done")
    found = re.fullmatch(r"Left running: (\d+) \(sleep 600\)\.", second)
    assert found, second
    leftovers.append(int(found[1]))
    assert alive(leftovers[0])


async def test_b034_an_interactive_login_shell_does_not_wait_for_its_jobs(bench: Bench, leftovers: list[int]) -> None:
    started = time.monotonic()
    script = "python3 -m http.server 0 --bind 127.0.0.1 >/dev/null 2>&1 & echo started $!"
    answer = msgspec.json.decode(await bench.call("shell", command=["bash", "-lic", script]))
    assert time.monotonic() - started < 30
    first, second = answer["output"].splitlines()
    leftovers.append(int(first.split()[1]))
    assert second.startswith(f"Left running: {leftovers[0]} (python3")


@pytest.mark.parametrize("name", SHELLS)
async def test_b034_a_name_that_is_not_there_yet_is_waited_for(bench: Bench, leftovers: list[int], name: str) -> None:
    """The job is busy for a while between fork and exec."""
    text = await run(bench, name, "(for i in {1..20000}; do :; done; exec sleep 600) >/dev/null 2>&1 & echo $!")
    first, second = body(text).splitlines()
    leftovers.append(int(first))
    assert second == f"Left running: {first} (sleep 600)."


@pytest.mark.parametrize("name", SHELLS)
async def test_b034_a_part_of_a_script_has_the_name_of_its_shell(
    bench: Bench, leftovers: list[int], name: str, tmp_path: Path
) -> None:
    text = await run(bench, name, f"mkfifo {tmp_path}/p; (read < {tmp_path}/p) & echo $!")
    first, second = body(text).splitlines()
    leftovers.append(int(first))
    assert re.match(rf"Left running: {first} \(\S*bash -c mkfifo", second)


@pytest.mark.parametrize("name", SHELLS)
async def test_b035_a_timeout_leaves_no_process_of_the_tree(bench: Bench, name: str, tmp_path: Path) -> None:
    mark = f"{tmp_path}/{name}"
    text = await run(bench, name, f"echo begun; python3 -c 'while True: pass' {mark}; true", timeout=1000)
    assert code(text) == 124
    assert body(text) == "command timed out after 1000 milliseconds\nbegun\n"
    assert eventually(lambda: running(mark) == [])


async def test_b037_descendants_that_left_the_group_are_found(bench: Bench, tmp_path: Path) -> None:
    mark = f"{tmp_path}/mark"
    program = (
        "import os, subprocess, sys, time; os.setpgid(0, 0);"
        "[subprocess.Popen(['sleep', '600'], executable='sleep', env={}) for _ in '12'];"
        "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)', sys.argv[1]]); time.sleep(600)"
    )
    text = await bench.call("shell_command", command=f'python3 -c "{program}" {mark} & wait', timeout_ms=1000)
    assert code(text) == 124
    assert eventually(lambda: running(mark) == [])


@contextmanager
def unwritten_stdin() -> Iterator[None]:
    """This process's standard input is a pipe into which nobody writes."""
    reader, writer = os.pipe()
    saved = os.dup(0)
    os.dup2(reader, 0)
    try:
        yield
    finally:
        os.dup2(saved, 0)
        for fd in (reader, writer, saved):
            os.close(fd)


@pytest.mark.parametrize("name", SHELLS)
async def test_b038_no_command_waits_for_our_input(bench: Bench, name: str) -> None:
    with unwritten_stdin():
        assert body(await run(bench, name, "cat; echo end", timeout=5000)) == "end\n"
        text = await run(bench, name, "python3 -c 'input()'", timeout=5000)
    assert code(text) == 1 and "EOFError" in body(text)


async def test_b038_nor_one_without_a_shell(bench: Bench) -> None:
    with unwritten_stdin():
        answer = msgspec.json.decode(await bench.call("shell", command=["cat"], timeout_ms=5000))
    assert answer["metadata"]["exit_code"] == 0


async def test_b040_short_sessions_leave_nothing(bench: Bench) -> None:
    await bench.call("exec_command", cmd="true", tty=True)
    before = held()
    for _ in range(150):
        assert code(await bench.call("exec_command", cmd="true", tty=True)) == 0
    assert not any(gained(before))
    assert len(bench.state.commands.sessions) == 0


async def test_b041_no_zombies_and_the_exit_at_the_first_poll(
    bench: Bench, own_children: Callable[[], list[int]]
) -> None:
    for _ in range(100):
        await bench.call("shell", command=["true"])
        await bench.call("shell_command", command="true")
        await bench.call("exec_command", cmd="true")
    assert own_children() == []
    number = session_id(await bench.call("exec_command", cmd="sleep 0.4; exit 9", yield_time_ms=250))
    await bench.host.until(lambda: any(event.exit_code == 9 for event in bench.host.told(ExecCommandEnd)))
    assert own_children() == []
    assert code(await bench.call("write_stdin", session_id=number)) == 9


async def test_b043_much_input_is_echoed_completely(bench: Bench) -> None:
    number = session_id(
        await bench.call("exec_command", cmd="stty -echo; echo ready; cat", tty=True, yield_time_ms=250)
    )
    await bench.host.until(lambda: "ready" in bench.host.live())
    lines = 1024 * 1024 // 100
    await bench.call("write_stdin", session_id=number, chars=("x" * 99 + "\n") * lines)
    text = await bench.call("write_stdin", session_id=number, chars="\x04", yield_time_ms=30_000)
    assert code(text) == 0
    assert bench.host.live().count("x") == 99 * lines
    number = session_id(
        await bench.call("exec_command", cmd="stty -echo; echo set; grep -c x", tty=True, yield_time_ms=250)
    )
    await bench.host.until(lambda: "set" in bench.host.live())
    await bench.call("write_stdin", session_id=number, chars=("x" * 63 + "\n") * 4096)
    assert body(await bench.call("write_stdin", session_id=number, chars="\x04", yield_time_ms=30_000)) == "4096\n"


async def test_b044_a_terminals_line_limit_is_told(bench: Bench) -> None:
    cmd = "stty -echo; echo ready; python3 -c 'print(len(input())); print(len(input()))'"
    number = session_id(await bench.call("exec_command", cmd=cmd, tty=True, yield_time_ms=250))
    await bench.host.until(lambda: "ready" in bench.host.live())
    text = await bench.call("write_stdin", session_id=number, chars="A" * 4000 + "\n")
    assert "the terminal keeps" not in text
    text = await bench.call("write_stdin", session_id=number, chars="A" * 10_000 + "\n", yield_time_ms=10_000)
    assert "the terminal keeps 4095 bytes of a line, and one of 10000 was sent" in text
    assert "4000" in bench.host.live()


@pytest.mark.parametrize("name", SHELLS)
async def test_b046_a_huge_line_is_cut_inside(bench: Bench, name: str) -> None:
    text = await run(bench, name, 'python3 -c \'print("needle " + "é" * 120000)\'')
    assert byte_length(text) < 41_000
    assert "needle é" in text and "tokens truncated…" in text and "\ufffd" not in text


@pytest.mark.parametrize("name", SHELLS)
async def test_b047_both_ends_and_the_exit_code_are_kept(bench: Bench, name: str) -> None:
    text = await run(bench, name, "for i in $(seq 1 20000); do echo line $i; done; echo FAIL; exit 1")
    assert code(text) == 1
    assert "line 1\n" in text and text.endswith("line 20000\nFAIL\n")
    assert "Total output lines: 20001" in text
    head, found, tail = text.partition("tokens truncated…")
    assert found and "FAIL" not in head and "line 2\n" not in tail


@pytest.mark.parametrize("name", SHELLS)
async def test_b049_a_directory_that_is_gone_is_named(benches: Benches, tmp_path: Path, name: str) -> None:
    root = tmp_path / "tree"
    root.mkdir()
    bench = benches(cwd=root)
    assert body(await run(bench, name, "cd / && pwd")) == "/\n"
    assert body(await run(bench, name, "pwd")) == f"{root}\n", "a cd does not last"
    assert code(await run(bench, name, f"rm -rf {root}")) == 0
    text = await run(bench, name, "echo hi")
    assert f"the working directory '{root}' does not exist" in text and "it was removed meanwhile" in text
    assert body(await run(bench, name, "pwd", workdir=str(tmp_path))) == f"{tmp_path}\n"


@pytest.mark.parametrize("name", SHELLS)
async def test_b050_a_file_is_no_directory(bench: Bench, tmp_path: Path, name: str) -> None:
    (tmp_path / "w").touch()
    text = await run(bench, name, "echo hi", workdir="w")
    assert f"the working directory '{tmp_path}/w' is not a directory" in text and "bash" not in text


@pytest.mark.parametrize("name", SHELLS)
async def test_b052_a_secret_is_withheld_until_it_is_asked_for(benches: Benches, tmp_path: Path, name: str) -> None:
    token = {"SENTRY_API_TOKEN": "x"}
    script = "echo ${SENTRY_API_TOKEN:-withheld}"
    for policy, expected in [
        (ShellEnvironmentPolicy(), "withheld\n"),
        (ShellEnvironmentPolicy(include=("SENTRY_API_TOKEN",)), "x\n"),
        (ShellEnvironmentPolicy(include_only=("PATH", "SENTRY_API_TOKEN")), "x\n"),
        (ShellEnvironmentPolicy(set={"SENTRY_API_TOKEN": "y"}), "y\n"),
    ]:
        bench = benches(state=unaffected(tmp_path, policy, **token))
        assert body(await run(bench, name, script)) == expected
    assert child_environment(ShellEnvironmentPolicy(), token).withheld == ("SENTRY_API_TOKEN",)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with more commits than a screen has lines."""
    root = tmp_path / "repo"
    subprocess.run(["git", "init", "-q", "-b", "main", str(root)], check=True)
    commits = "".join(
        f"commit refs/heads/main\ncommitter A <a@b> {n} +0000\ndata 7\nchange\n\nM 100644 inline f\ndata 4\n{n}\n"
        for n in range(1000, 1200)
    )
    subprocess.run(["git", "-C", str(root), "fast-import", "--quiet"], input=commits.encode(), check=True)
    subprocess.run(["git", "-C", str(root), "reset", "-q", "--hard", "main"], check=True)
    return root


class _AsksForAPassword(Silent):
    def do_GET(self) -> None:
        self.send_response(401)
        self.send_header("WWW-Authenticate", 'Basic realm="test"')
        self.send_header("Content-Length", "0")
        self.end_headers()


@pytest.fixture
def guarded_remote() -> Iterator[str]:
    with listening(HttpServer(_AsksForAPassword)) as server:
        yield f"http://127.0.0.1:{server.server_port}/repo.git"


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
@pytest.mark.parametrize("arguments", [{}, {"tty": True}])
async def test_b053_git_never_waits_for_a_person(
    guarded_remote: str, benches: Benches, repository: Path, arguments: dict[str, bool]
) -> None:
    user = {"EDITOR": "vim", "VISUAL": "vim", "PAGER": "less", "GIT_PAGER": "less", "GIT_AUTHOR_NAME": "A"}
    identity = {"GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "A", "GIT_COMMITTER_EMAIL": "a@b"}
    bench = benches(state=unaffected(repository, ShellEnvironmentPolicy(), **user, **identity))

    async def git(command: str) -> str:
        text = await bench.call("exec_command", cmd=f"git {command}", timeout=20_000, yield_time_ms=30_000, **arguments)
        assert code(text) != 124, text
        return text

    before = (repository / ".git/refs/heads/main").read_text()
    log = await git("log --oneline")
    assert code(log) == 0 and body(log).count("change") == 200
    (repository / "f").write_text("new")
    assert code(await git("commit -a")) != 0
    await git("checkout -q f")
    assert code(await git("rebase -i HEAD~3")) != 0
    assert code(await git(f"push {guarded_remote} main")) != 0
    assert (repository / ".git/refs/heads/main").read_text() == before


async def test_b055_input_for_one_that_cannot_take_it(bench: Bench) -> None:
    other = session_id(await bench.call("exec_command", cmd="stty -echo; cat", tty=True, yield_time_ms=250))
    number = session_id(await bench.call("exec_command", cmd="exec 0<&-; sleep 1; exit 5", tty=True, yield_time_ms=250))
    assert "Process running" in await bench.call("write_stdin", session_id=number, chars="hello\n")
    await bench.host.until(lambda: bool(bench.host.told(ExecCommandEnd)))
    text = await bench.call("write_stdin", session_id=number, chars="hello\n")
    assert text == "write_stdin failed: failed to write to stdin: the process has ended"
    assert code(await bench.call("write_stdin", session_id=number)) == 5
    text = await bench.call("write_stdin", session_id=number, chars="hello\n")
    assert text == f"write_stdin failed: Unknown process id {number}"
    assert body(await bench.call("write_stdin", session_id=other, chars="alive\n")) == "alive\n"


@pytest.mark.parametrize("tty", [False, True])
async def test_b056_an_interrupt_reaches_the_foreground(bench: Bench, tty: bool) -> None:
    trap = """sh -c 'trap "echo got; exit 7" INT; echo ready; sleep 60 & wait'"""
    for cmd, expected, said in [(trap, 7, "got"), ("echo ready; sleep 60", 130, "")]:
        text = await bench.call("exec_command", cmd=cmd, tty=tty, yield_time_ms=250)
        await bench.host.until(lambda: "ready" in bench.host.live())
        text = await bench.call("write_stdin", session_id=session_id(text), chars="\x03", yield_time_ms=10_000)
        assert (code(text), said in text) == (expected, True)
        bench.host.events.clear()


@pytest.mark.parametrize("startup", ["echo hello; sleep 1", "exec sh", "read x", "exit 1"])
async def test_b058_start_up_files_are_run_once_and_never_heard(benches: Benches, tmp_path: Path, startup: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    for name in (".bashrc", ".bash_profile"):
        (home / name).write_text(f"export FROM_FILE=yes; echo x >> {tmp_path}/runs\n{startup}\n")
    bench = benches(state=unaffected(tmp_path, HOME=str(home)))
    await bench.call("shell_command", command="true")
    runs = (tmp_path / "runs").read_text()
    assert body(await bench.call("shell_command", command="echo hi")) == "hi\n"
    assert body(await bench.call("exec_command", cmd="echo hi")) == "hi\n"
    answer = msgspec.json.decode(await bench.call("shell", command=["bash", "-lc", "echo hi"]))
    assert answer["output"] == "hi\n"
    assert (tmp_path / "runs").read_text() == runs
    if startup.startswith("echo"):
        assert body(await bench.call("shell_command", command="echo $FROM_FILE")) == "yes\n"
        assert body(await bench.call("shell_command", command="echo $FROM_FILE", login=False)) == "\n"
