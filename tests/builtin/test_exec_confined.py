"""The tools on the sandbox's launcher: the same answers, and background processes that end with their shell."""

import os
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ferrule.process.launcher import LaunchError
from ferrule.protocol.permissions import WorkspaceWrite
from ferrule.sandbox.sandbox import open_launcher
from tests.builtin.workbench import Bench, body, field, session_id
from tests.processes import running

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the sandbox of Linux")


@pytest.fixture
async def confined(tmp_path: Path) -> AsyncIterator[Bench]:
    sandbox = await open_launcher(WorkspaceWrite(), str(tmp_path), tmp_path / "own")
    try:
        await sandbox.level()
    except LaunchError as error:
        pytest.skip(str(error))
    bench = Bench(tmp_path, "exec_command", "write_stdin", "shell_command")
    bench.host.launcher = sandbox
    yield bench
    await bench.close()
    await sandbox.close()


@pytest.mark.parametrize("name", ["shell_command", "exec_command"])
async def test_b032_background_processes_end_with_their_shell(confined: Bench, name: str) -> None:
    first, second = body(await confined.call(name, command="sleep 600 & echo done")).splitlines()
    assert first == "done"
    assert second.startswith("Ended with the command: ")


async def test_b034_a_name_that_is_not_there_yet_is_waited_for(confined: Bench) -> None:
    """The job is busy for a while between fork and exec."""
    text = await confined.call("shell_command", command="(for i in {1..5000}; do :; done; exec sleep 600) & true")
    assert body(text) == "Ended with the command: sleep."


async def test_n020_a_server_lives_in_a_session_of_its_own(confined: Bench) -> None:
    """The next call reaches it, and an interrupt ends it."""
    server = "python3 -u -m http.server 0 --bind 127.0.0.1"
    number = session_id(await confined.call("exec_command", cmd=server, yield_time_ms=250))
    await confined.host.until(lambda: "Serving HTTP" in confined.host.live())
    port = confined.host.live().partition(" port ")[2].split()[0]
    fetch = f"import urllib.request; print(urllib.request.urlopen('http://127.0.0.1:{port}').status)"
    assert body(await confined.call("shell_command", command=f'python3 -c "{fetch}"')) == "200\n"
    text = await confined.call("write_stdin", session_id=number, chars="\x03", yield_time_ms=10_000)
    assert int(field(text, "Process exited with code")) in (0, 130)


@pytest.mark.parametrize("tty", [False, True])
async def test_b056_an_interrupt_reaches_the_foreground(confined: Bench, tty: bool) -> None:
    cmd = """sh -c 'trap "echo got; exit 7" INT; echo ready; sleep 60 & wait'"""
    number = session_id(await confined.call("exec_command", cmd=cmd, tty=tty, yield_time_ms=250))
    await confined.host.until(lambda: "ready" in confined.host.live())
    text = await confined.call("write_stdin", session_id=number, chars="\x03", yield_time_ms=10_000)
    assert (field(text, "Process exited with code"), "got" in text) == ("7", True)


async def test_a_refused_write_is_the_commands_own_error(confined: Bench) -> None:
    text = await confined.call("exec_command", cmd="touch /etc/ferrule-test; echo x > inside; cat inside")
    assert "Read-only file system" in text or "Permission denied" in text
    assert body(text).endswith("x\n")


async def test_a_session_whose_sandbox_was_killed_has_ended(confined: Bench, tmp_path: Path) -> None:
    """As when memory runs out: the helper that confines the command is killed, and the command with it."""
    mark = f"{tmp_path}/mark"
    cmd = f"exec python3 -c 'print(\"begun\", flush=True); import time; time.sleep(600)' {mark}"
    number = session_id(await confined.call("exec_command", cmd=cmd, yield_time_ms=250))
    await confined.host.until(lambda: "begun" in confined.host.live())
    (pid,) = running(mark)
    os.kill(int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]), signal.SIGKILL)
    text = await confined.call("write_stdin", session_id=number, yield_time_ms=10_000)
    assert field(text, "Process exited with code") == "137"
    assert "the sandbox of this command ended before the command did" in body(text)
