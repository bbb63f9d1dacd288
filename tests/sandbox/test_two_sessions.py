"""Two sessions in two processes on one workspace, one of them killed: the other works on, and nobody's work is lost."""

import asyncio
import fcntl
import os
import secrets
import subprocess
import sys
from pathlib import Path

import pytest

from ferrule.sandbox.ownership import OwnershipRecord
from ferrule.sandbox.plan import Level
from tests.processes import running, until
from tests.sandbox.conftest import OpenAt, require
from tests.sandbox.projects import LEVELS, READ_ONLY, every_file, git
from tests.sandbox.running import run

OTHER = """
import asyncio, os, sys
from pathlib import Path
from ferrule.process.launcher import Limits, Pipes
from ferrule.sandbox.plan import ConfinementPlan, Level, Root
from ferrule.sandbox.protection import Protection
from ferrule.sandbox.sandbox import Sandbox

async def main():
    home, workspace, level, *lines = sys.argv[1:]
    protection = Protection(ConfinementPlan((Root(workspace),)), Path(home))
    sandbox = Sandbox(protection, levels=[Level(int(level))])
    for line in lines:
        argv = ["/bin/bash", "-c", line]
        child = await sandbox.launch(argv, dict(os.environ), workspace, Pipes(merge=True), Limits())
        while said := await asyncio.to_thread(os.read, child.stdout, 100):
            os.write(1, said)
        await child.leftovers(False)

asyncio.run(main())
"""
MARK = f"86753.{secrets.randbelow(10**6):06}"
"""By which a test finds its own `sleep` again, beside a second run of these tests."""


class OtherSession:
    """Another process of ours that runs commands, one after another."""

    def __init__(self, home: Path, workspace: Path, level: Level, *lines: str) -> None:
        words = [sys.executable, "-c", OTHER, str(home), str(workspace), str(int(level)), *lines]
        self._process = subprocess.Popen(words, stdout=subprocess.PIPE)

    def wait_for(self, word: bytes) -> None:
        assert self._process.stdout is not None
        said = b""
        while word not in said:
            more = os.read(self._process.stdout.fileno(), 1000)
            assert more, said
            said += more

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()


@pytest.mark.parametrize("level", LEVELS)
async def test_attack_a_session_is_killed_before_it_records_its_work(
    open_at: OpenAt, home: Path, workspace: Path, reports: list[str], level: Level
) -> None:
    """What it recorded stays writable; what it had not recorded yet is the user's. Nothing is changed or left."""
    git(workspace, "init", "-q", "theirs")
    theirs = every_file(workspace / "theirs")
    here = await open_at(level)
    lines = ("git init -q recorded", f"git init -q unrecorded; echo made; exec sleep {MARK}")
    other = OtherSession(home, workspace, level, *lines)
    other.wait_for(b"made")
    other.kill()
    await until(lambda: not running(MARK))
    line = "for d in recorded unrecorded theirs; do git -C $d config user.name x && echo $d; done"
    outcome = await run(here, line, str(workspace))
    if level in READ_ONLY:
        assert outcome.output.count("recorded\n") == 1 and outcome.output.count("Read-only file system") == 2
        assert every_file(workspace / "theirs") == theirs
    else:
        assert outcome.output == "recorded\nunrecorded\ntheirs\n"
        assert outcome.left is not None and outcome.left.count(".git/config") == 2
    await here.close()
    assert {path.name for path in workspace.iterdir()} == {"recorded", "unrecorded", "theirs"}
    assert not [text for text in reports if "record" in text.replace("recorded", "")]


@pytest.mark.parametrize("level", READ_ONLY)
async def test_attack_a_session_is_killed_while_the_other_runs_a_command(
    open_at: OpenAt, home: Path, workspace: Path, level: Level
) -> None:
    """The placeholders of the other one stay, and so does what protects the user's repositories."""
    git(workspace, "init", "-q", "theirs")
    here = await open_at(level)
    other = OtherSession(home, workspace, level, f"echo runs; exec sleep {MARK}")
    other.wait_for(b"runs")
    line = """
    echo ready > up; until [ -e gone ]; do sleep 0.01; done
    for f in .codex/x theirs/.git/x; do touch $f; done; git init -q mine && git -C mine config user.name x && echo done
    """

    async def meanwhile() -> None:
        await until((workspace / "up").exists)
        other.kill()
        await until(lambda: not running(MARK))
        (workspace / "gone").touch()

    outcome, _ = await asyncio.gather(run(here, line, str(workspace)), meanwhile())
    assert outcome.output.count("Read-only file system") == 2 and outcome.output.endswith("done\n")
    assert (await run(here, "git -C mine config user.name y", str(workspace))).output == ""


async def test_attack_a_lock_and_a_record_that_a_kill_left(open_at: OpenAt, home: Path, workspace: Path) -> None:
    """Killed while it wrote: half a line, a new record that never took its place, a lock that a command holds."""
    await require(Level.NAMESPACES)
    record = home / "sandbox/own-repositories"
    first = await open_at(Level.NAMESPACES)
    await run(first, "git init -q old", str(workspace))
    await first.close()
    with record.open("a") as file:
        file.write('["/half')
    record.with_name(f"{record.name}.new").write_text("half of it")
    with record.with_name(f"{record.name}.lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        here = await open_at(Level.NAMESPACES)
        outcome = await run(here, "git -C old config user.name x && git init -q new", str(workspace))
        assert (outcome.output, outcome.status.code) == ("", 0)
        await here.close()
    again = OwnershipRecord(record)
    again.refresh()
    assert {Path(path).parent.name for path in again._entries} == {"old", "new"}
    (workspace / "new").rename(workspace / "moved")
    again.prune()
    assert sorted(os.listdir(record.parent)) == ["lock", "own-repositories", "own-repositories.lock"]
