"""The programs that run beside the sessions: their folders, their environment, and whose processes are whose."""

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.cli.command import COMMAND, SOURCE
from tests.soak.census import HOME, LASTING_PROGRAMS

TOP = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class Household:
    """One user's folders, below the soak's."""

    root: Path

    @property
    def user(self) -> Path:
        """The user's home folder."""
        return self.root / "user"

    @property
    def home(self) -> Path:
        """FERRULE_HOME of everything that runs here."""
        return self.root / HOME

    def environment(self, temporary: Path) -> dict[str, str]:
        """What a program of the user's finds in its environment."""
        return {
            "PATH": os.environ["PATH"], "PYTHONPATH": os.pathsep.join((str(TOP), SOURCE)), "HOME": str(self.user),
            "FERRULE_HOME": str(self.home), "TMPDIR": str(temporary), "SHELL": "/bin/sh",
        }  # fmt: skip

    def start(self, words: Sequence[str], cwd: Path, log: Path, temporary: Path) -> "subprocess.Popen[bytes]":
        """Start `ferrule WORDS`; what it says goes to the end of `log`."""
        with log.open("ab") as said:
            return subprocess.Popen(
                [*COMMAND, *words],
                cwd=cwd, env=self.environment(temporary), stdin=subprocess.DEVNULL, stdout=said, stderr=said,
            )  # fmt: skip


class Upstream:
    """The servers in a process of their own."""

    def __init__(self, household: Household, seed: str) -> None:
        self._said = (household.root / "upstream.log").open("w+b")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.soak.upstream", seed],
            cwd=TOP, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._said,
        )  # fmt: skip
        LASTING_PROGRAMS.add(self._process.pid)
        assert self._process.stdout is not None
        places = json.loads(self._process.stdout.readline())
        self.model: str = places["model"]
        self.mcp: str = places["mcp"]

    def close(self) -> list[str]:
        """End it. Returns the requests that no model server would take, and what else it said. May be called twice."""
        if self._said.closed:
            return []
        said = b""
        with suppress(subprocess.TimeoutExpired):
            said, _ = self._process.communicate(timeout=30)
        self._process.kill()
        code = self._process.wait()
        with self._said:
            self._said.seek(0)
            said += self._said.read() if code else b""
        return [f"the model's server says: {said[-3000:].decode(errors='replace')}"] if code or said.strip() else []


def kill(pid: int, number: int) -> None:
    """Send a signal to a process that may have ended."""
    with suppress(ProcessLookupError):
        os.kill(pid, number)
