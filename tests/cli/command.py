"""The real command as a child process."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ferrule

COMMAND = (sys.executable, "-m", "ferrule.cli.main")
SOURCE = os.pathsep.join(filter(None, (str(Path(ferrule.__file__).parents[1]), os.environ.get("PYTHONPATH"))))
"""A PYTHONPATH with Ferrule and, where these tests were started with one, what it needs."""
FULL_ACCESS = ("-s", "danger-full-access")


@dataclass(frozen=True, slots=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Standard output as JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]

    def items(self, kind: str = "item.completed") -> list[dict[str, Any]]:
        """The items of the lines of one type."""
        return [line["item"] for line in self.lines if line["type"] == kind]


@dataclass(frozen=True, slots=True)
class Place:
    """A working directory and a home of Ferrule, both empty at first."""

    cwd: Path
    home: Path

    def env(self, more: Mapping[str, str] | None = None) -> dict[str, str]:
        """The environment of a command: nothing of the user's, no key."""
        kept = {"PATH": os.environ["PATH"], "PYTHONPATH": SOURCE, "HOME": str(self.home.parent)}
        return kept | {"FERRULE_HOME": str(self.home), "SHELL": "/bin/sh"} | dict(more or {})

    def run(
        self, *arguments: str, stdin: bytes = b"", env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> Done:
        """Run `ferrule ARGUMENTS` and wait."""
        done = subprocess.run(
            [*COMMAND, *arguments],
            cwd=cwd or self.cwd, env=self.env(env), input=stdin, capture_output=True, timeout=50, check=False,
        )  # fmt: skip
        return Done(done.returncode, done.stdout.decode(), done.stderr.decode())

    def start(self, *arguments: str) -> "subprocess.Popen[bytes]":
        """Start `ferrule ARGUMENTS`, deaf to no signal, even where the tests run in a shell's background."""
        if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
            signal.signal(signal.SIGINT, signal.default_int_handler)  # What is ignored here is ignored in a child.
        return subprocess.Popen(
            [*COMMAND, *arguments],
            cwd=self.cwd, env=self.env(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def rollout(self) -> list[dict[str, Any]]:
        """The lines of the only session on disk."""
        (path,) = self.home.glob("sessions/*/*/*/rollout-*.jsonl")
        return [json.loads(line) for line in path.read_text().splitlines()]


def kinds(rollout: Sequence[Mapping[str, Any]]) -> list[str]:
    """What each line of a rollout is: the type of its item or event, else of the line."""
    return [line["payload"].get("type", line["type"]) for line in rollout]


def wait_until(condition: Callable[[], object], seconds: float = 20) -> None:
    """Until it holds; fails after a deadline."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.01)
