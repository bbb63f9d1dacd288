"""Bash itself against the reader: what a script runs is among what was named, or it is said to be unread.

Random scripts are really run, in a scratch folder, with marker programs that write down who they are.
`scripts/fuzz 20000 -k bash` runs many more of them.
"""

import os
import random
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from ferrule.execpolicy.commands import take_apart
from ferrule.execpolicy.programs import base_name
from tests.execpolicy.bash_scripts import PROGRAMS, WRAPPERS, Generator

EXAMPLES = int(os.environ.get("FERRULE_FUZZ_EXAMPLES", "60"))
SEED = os.environ.get("FERRULE_FUZZ_SEED", "ferrule")
SHELL_WORDS = {"builtin", "command", "time"}
# Wrappers that start helpers of their own, or cannot be traced within a trace.
UNTRACED = frozenset(["fakeroot", "strace", "script", "su", "runuser", "sg", "watch", "sudo"])
SHELLS = {"bash", "sh", "dash"}
EXECUTED = re.compile(r'execve\("([^"]+)".*\) = 0$')


@dataclass(frozen=True)
class Place:
    """A scratch folder with the marker programs, and their log."""

    root: Path

    @property
    def log(self) -> Path:
        return self.root / "log"

    def prepare(self) -> None:
        (self.root / "bin").mkdir()
        for name in PROGRAMS:
            program = self.root / "bin" / name
            program.write_text(f'#!/bin/sh\necho "${{0##*/}}" >> {self.log}\n')
            program.chmod(0o755)

    def run(self, script: str, *before: str) -> bytes:
        """Run it to the end of its last process; what it wrote to its standard error."""
        work = self.root / "work"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        self.log.write_text("")
        path = f"{self.root}/bin:/usr/bin:/bin:/usr/sbin:/sbin"
        alive, held = os.pipe()  # held by every process of the script
        try:
            done = subprocess.run(
                [*before, "bash", "--norc", "-c", script],
                cwd=work,
                env={"PATH": path, "HOME": str(self.root), "LC_ALL": "C.UTF-8"},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                timeout=50,
                pass_fds=(held,),
                start_new_session=True,
            )
        finally:
            os.close(held)
            while os.read(alive, 1):
                pass
            os.close(alive)
        return done.stderr


@pytest.fixture
def place(tmp_path: Path) -> Place:
    made = Place(tmp_path)
    made.prepare()
    return made


def available(without: frozenset[str]) -> frozenset[str]:
    names = {wrapper.split()[0] for wrapper in WRAPPERS} - without
    return frozenset(name for name in names if shutil.which(name) or name in SHELL_WORDS)


def scripts(kind: str, count: int, *, dynamic: bool = False, without: frozenset[str] = frozenset()) -> list[str]:
    found = available(without)
    return [Generator(random.Random(f"{SEED}:{kind}:{n}"), found, dynamic).script() for n in range(count)]


def unseen(script: str, ran: set[str]) -> set[str] | None:
    """What ran without being named; None if the script is unread."""
    facts = take_apart(("bash", "-c", script))
    if facts.unread:
        return None
    return ran - {base_name(seen.command.argv[0]) for seen in facts.seen if seen.command.argv}


@pytest.mark.timeout(600 if EXAMPLES <= 60 else 0)
def test_every_program_that_a_static_script_runs_was_named(place: Place) -> None:
    unread = wrong = 0
    for script in scripts("static", EXAMPLES):
        complaints = place.run(script)
        found = unseen(script, set(place.log.read_text().split()))
        assert not found, f"{found} ran unseen in {script!r}"
        faulty = b"syntax error" in complaints or b"unexpected" in complaints
        wrong += faulty
        unread += found is None and not faulty
    assert unread <= max(EXAMPLES * 0.05, 3), f"{unread} of {EXAMPLES} scripts are unread"
    assert wrong <= max(EXAMPLES * 0.15, 9), f"{wrong} of {EXAMPLES} scripts are none"


@pytest.mark.timeout(600 if EXAMPLES <= 60 else 0)
def test_every_program_that_a_dynamic_script_runs_was_named_or_the_script_is_unread(place: Place) -> None:
    for script in scripts("dynamic", EXAMPLES, dynamic=True):
        place.run(script)
        found = unseen(script, set(place.log.read_text().split()))
        assert not found, f"{found} ran unseen in {script!r}"


def can_trace() -> bool:
    if shutil.which("strace") is None:
        return False
    return subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not can_trace(), reason="needs strace, and leave to trace")
@pytest.mark.timeout(600 if EXAMPLES <= 60 else 0)
def test_every_execve_of_a_static_script_was_named(place: Place) -> None:
    """All programs, not only the markers: what the kernel was asked to execute."""
    trace = place.root / "trace"
    for script in scripts("traced", max(EXAMPLES // 6, 5), without=UNTRACED):
        place.run(script, "strace", "-f", "-qq", "-e", "trace=execve", "-e", "signal=none", "-o", str(trace))
        ran = {Path(found[1]).name for found in map(EXECUTED.search, trace.read_text().splitlines()) if found}
        found = unseen(script, ran - SHELLS)
        assert not found, f"{found} ran unseen in {script!r}"
