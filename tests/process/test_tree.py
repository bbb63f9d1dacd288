import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from ferrule.process.launcher import Pty
from ferrule.process.tree import MARK_VARIABLE, Tree, _read_ps, command_of, process_table, ticks_now

from .conftest import alive, eventually

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


def test_names_with_parentheses_and_blanks(tmp_path: Path) -> None:
    odd = tmp_path / "a) b (c"
    odd.symlink_to("/bin/sleep")
    with subprocess.Popen([odd, "60"]) as process:
        found = {row.pid: row for row in process_table()}[process.pid]
        assert (found.parent, found.zombie) == (os.getpid(), False)
        assert command_of(process.pid) == f"{odd} 60"
        process.kill()
        assert eventually(lambda: {row.pid: row for row in process_table()}[process.pid].zombie)


def test_the_listing_of_ps_says_the_same() -> None:
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as process:
        [listed] = [row for row in _read_ps() if row.pid == process.pid]
        [read] = [row for row in process_table() if row.pid == process.pid]
        assert (listed.parent, listed.group, listed.zombie) == (read.parent, read.group, read.zombie)
        process.kill()


def test_long_commands_are_shortened() -> None:
    with subprocess.Popen(["sleep", "60", *["0"] * 100]) as process:
        assert eventually(lambda: command_of(process.pid).startswith("sleep"))
        assert len(command_of(process.pid)) == 80 and command_of(process.pid).endswith("…")
        process.kill()


def test_only_processes_that_began_later_can_carry_the_mark() -> None:
    since = ticks_now()
    environment = {MARK_VARIABLE: "here"}
    with subprocess.Popen(["sleep", "60"]) as root, subprocess.Popen(["/bin/sleep", "60"], env=environment) as marked:
        assert eventually(lambda: command_of(marked.pid).startswith("/bin/sleep"))
        assert {row.pid for row in Tree(root.pid, "here", since).members()} == {root.pid, marked.pid}
        assert {row.pid for row in Tree(root.pid, "there", since).members()} == {root.pid}
        assert {row.pid for row in Tree(root.pid, "here", since + 1_000).members()} == {root.pid}
        for process in (root, marked):
            process.kill()


def test_a_reused_number_is_not_taken_for_the_old_group() -> None:
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as stranger:
        tree = Tree(stranger.pid, "none", ticks_now() + 1_000)
        tree.root_reaped = True
        assert tree.members() == []
        stranger.kill()


def test_a_terminal_s_process_ends_with_a_killed_agent(env: Mapping[str, str], tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    with subprocess.Popen([sys.executable, "-c", ORPHANING_AGENT, str(pid_file)], env=env) as agent:
        assert eventually(lambda: pid_file.exists() and pid_file.read_text().strip() != "")
        agent.send_signal(signal.SIGKILL)
    pid = int(pid_file.read_text())
    assert eventually(lambda: not alive(pid))


def test_a_pty_has_the_documented_size() -> None:
    assert (Pty().rows, Pty().columns) == (50, 200)
