import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from ferrule.process.launcher import Pty
from ferrule.process.tree import (
    MARK_VARIABLE,
    Process,
    Tree,
    _read_ps,
    command_of,
    is_starting,
    process_table,
    ticks_now,
)
from tests.processes import alive, eventually

ORPHANING_AGENT = """
import asyncio, os, sys
from ferrule.process.interactive import Session
from ferrule.process.launcher import Pty
from ferrule.process.plain import PlainLauncher

async def main():
    argv = ["bash", "-c", "echo $$ > " + sys.argv[1] + "; sleep 60; true"]
    await Session.start(PlainLauncher(), argv, env=os.environ, cwd="/", stdio=Pty())
    await asyncio.sleep(60)

asyncio.run(main())
"""


MANY_STARTS = """
import os, signal
from ferrule.process.tree import command_of, is_starting

for number in range(300):  # about one in seventy meets that moment
    pid = os.fork()
    if pid == 0:
        os.execv("/bin/sleep", ["sleep", "600"])
    try:
        while is_starting(pid):
            pass
        assert command_of(pid) == "sleep 600", (number, command_of(pid))
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
"""


@contextmanager
def running(*argv: str, env: Mapping[str, str] | None = None) -> Iterator[int]:
    """The pid of a program that has come up, in a session of its own."""
    with subprocess.Popen(argv, start_new_session=True, env=env) as process:
        try:
            assert eventually(lambda: not is_starting(process.pid) and command_of(process.pid).startswith(argv[0][:79]))
            yield process.pid
        finally:
            process.kill()


def row_of(pid: int) -> Process:
    return {row.pid: row for row in process_table()}[pid]


def test_names_with_parentheses_and_blanks(tmp_path: Path) -> None:
    odd = tmp_path / "a) b (c"
    odd.symlink_to("/bin/sleep")
    with running(str(odd), "60") as pid:
        assert (row_of(pid).parent, row_of(pid).group, row_of(pid).zombie) == (os.getpid(), pid, False)
        assert command_of(pid).startswith(str(odd)[:79])
        os.kill(pid, signal.SIGKILL)
        assert eventually(lambda: row_of(pid).zombie)


def test_the_listing_of_ps_says_the_same() -> None:
    with running("sleep", "60") as pid:
        [listed] = [row for row in _read_ps() if row.pid == pid]
        read = row_of(pid)
        assert (listed.parent, listed.group, listed.zombie) == (read.parent, read.group, read.zombie)


def test_long_commands_are_shortened() -> None:
    with running("sleep", "60", *["0"] * 100) as pid:
        assert len(command_of(pid)) == 80 and command_of(pid).endswith("…")


def test_a_process_is_starting_until_its_command_line_is_its_own() -> None:
    """The kernel lays out the command line some microseconds after it took the program's name. A program of its own
    forks, because it is small."""
    path = {"PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, "-S", "-c", MANY_STARTS], env=path, check=True)


def test_only_processes_that_began_later_can_carry_the_mark() -> None:
    since = ticks_now()
    with running("sleep", "60") as root, running("/bin/sleep", "60", env={MARK_VARIABLE: "here"}) as marked:
        assert {row.pid for row in Tree(root, "here", since).members()} == {root, marked}
        assert {row.pid for row in Tree(root, "there", since).members()} == {root}
        assert {row.pid for row in Tree(root, "here", since + 10_000).members()} == {root}


def test_a_reused_number_is_not_taken_for_the_old_group() -> None:
    with running("sleep", "60") as stranger:
        tree = Tree(stranger, "none", ticks_now() + 10_000)
        tree.root_reaped = True
        assert tree.members() == []


def test_a_terminal_s_process_ends_with_a_killed_agent(env: Mapping[str, str], tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    with subprocess.Popen([sys.executable, "-c", ORPHANING_AGENT, str(pid_file)], env=env) as agent:
        assert eventually(lambda: pid_file.exists() and pid_file.read_text().strip() != "")
        agent.send_signal(signal.SIGKILL)
    pid = int(pid_file.read_text())
    assert eventually(lambda: not alive(pid))


def test_a_pty_has_the_documented_size() -> None:
    assert (Pty().rows, Pty().columns) == (50, 200)
