"""SIGKILL at any moment: nothing is left after the next process, and what others do goes on."""

import asyncio
import os
import random
import subprocess
import sys
from pathlib import Path

from ferrule.workspaces import Workspaces
from tests.workspaces import churning
from tests.workspaces.places import contents, git, new_repository

KILLS = int(os.environ.get("FERRULE_KILLS", "3"))
LONGEST = 1.2
"""Seconds until a kill: a process needs half of it to start, and makes bases and workspaces in the other half."""


def start(scratch: Path, source: Path) -> "subprocess.Popen[str]":
    """Start a process that makes workspaces without end."""
    words = [sys.executable, churning.__file__, str(scratch), str(source)]
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


async def test_kills_leave_nothing(tmp_path: Path) -> None:
    source = new_repository(tmp_path / "source", {f"d{number}/a": b"x\n" * 1000 for number in range(50)})
    before = contents(source / ".git")
    chance = random.Random(os.environ.get("FERRULE_KILLS"))
    scratch = tmp_path / "scratch"
    with start(scratch, source) as steady:
        for _ in range(KILLS):
            with start(scratch, source) as doomed:
                await asyncio.sleep(chance.uniform(0.3, LONGEST))
                doomed.kill()
        said, _ = steady.communicate("end\n", timeout=50)
        assert steady.returncode == 0
        assert int(said) > 0
    async with Workspaces.open(scratch):
        assert len(os.listdir(scratch / "owners")) == 1
    assert os.listdir(tmp_path) == ["source"]
    assert contents(source / ".git") == before
    assert git(source, "fsck", "--strict") == b""
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()
