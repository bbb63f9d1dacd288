"""`ferrule batch` beside the sessions: tasks in workspaces, killed and filled disks, and what its results say."""

import json
import random
import signal
import subprocess
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ferrule.history.pairs import settled
from ferrule.session.rollout import read_rollout
from tests.processes import children_of
from tests.soak.disks import fill, let_go, small_disk
from tests.soak.estate import REPOSITORIES
from tests.soak.history import wrong_order
from tests.soak.household import Household, Upstream, kill
from tests.soak.upstream import told

TASKS, WORKERS = 6, "3"
FAULTS = 0.08
"""The share of the model's answers that go wrong."""
LONGEST_PAUSE = 3.0
"""Seconds between two kills: a worker takes some to start."""
MOST_STARTS = 12
"""Of the same batch, each after a kill."""
END_SECONDS = 240.0
"""For all tasks when nobody is killed any more, on a busy machine."""
DISK = "size=8m"
FULL_SECONDS = 3.0

QUIET, BUSY, FOLDER, EMPTY = "quiet", "busy", "folder", "empty"


@dataclass(frozen=True, slots=True)
class Chore:
    """One task: what it starts from, how its model makes a file, and whether the check finds it."""

    source: str
    by_patch: bool
    passes: bool
    sandbox: str | None


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """The batch of a round: its tasks, how often it or its workers are killed, whether its disk is full at times."""

    chores: tuple[Chore, ...]
    wire: str
    kills: int
    full: bool


def draw_batch(seed: str, number: int, *, root: bool) -> BatchPlan:
    """The batch of round `number`."""
    rng = random.Random(f"{seed}/batch/{number}")
    chores = tuple(
        Chore(
            source=rng.choice((QUIET, QUIET, BUSY, FOLDER, EMPTY)),
            by_patch=rng.random() < 0.5,
            passes=rng.random() < 0.7,
            sandbox=rng.choice((None, None, None, "container")),
        )
        for _ in range(TASKS)
    )
    kills = rng.choice((0, 0, 1, 3))
    return BatchPlan(
        chores, rng.choice(("chat", "responses", "messages")), kills, root and not kills and rng.random() < 0.3
    )


class Batch:
    """One batch, from the first start to its last result."""

    def __init__(self, household: Household, upstream: Upstream, plan: BatchPlan, seed: str, number: int) -> None:
        self._household = household
        self._upstream = upstream
        self._plan = plan
        self._rng = random.Random(f"{seed}/batch/{number}/troubles")
        self._folder = household.root / f"batch-{number}"
        self._out = self._folder / "out.jsonl"
        self._log = household.root / f"batch-{number}.log"
        self.faults: Counter[str] = Counter()
        self.problems: list[str] = []

    def play(self) -> list[str]:
        """Do all tasks, under faults. Returns what was wrong. Blocks."""
        self._folder.mkdir()
        with self._disk():
            self._write_tasks()
            self._drive()
            self._judge()
        return self.problems

    @contextmanager
    def _disk(self) -> Iterator[None]:
        if self._plan.full:
            small_disk(self._folder, DISK)
        try:
            yield
        finally:
            problem = let_go(self._folder)
            self.problems += [problem] if problem else []
            self._log.unlink(missing_ok=True)

    def _write_tasks(self) -> None:
        copied = self._folder / "given"
        copied.mkdir()
        (copied / "given.txt").write_text("given\n")
        lines = (json.dumps(self._task(number, chore)) for number, chore in enumerate(self._plan.chores))
        (self._folder / "tasks.jsonl").write_text("".join(f"{line}\n" for line in lines))

    def _task(self, number: int, chore: Chore) -> dict[str, Any]:
        patch = f"*** Begin Patch\n*** Add File: made{number}\n+made\n*** End Patch\n"
        call = ("apply_patch", {"input": patch}) if chore.by_patch else (
            "shell_command", {"command": f"echo made > made{number}; sleep 60 & git status || true"})  # fmt: skip
        task: dict[str, Any] = {
            "id": number,
            "prompt": told([call], "Made.", FAULTS, slow=0.1),
            "check": f"test -f made{number}" if chore.passes else "exit 3",
        }
        if chore.source == QUIET:
            task["repository"] = str(self._household.user / REPOSITORIES[number % len(REPOSITORIES)])
        elif chore.source == BUSY:
            task["repository"] = str(self._household.root / "repos" / "busy")
        elif chore.source == FOLDER:
            task["folder"] = "given"
        return task | ({"sandbox": chore.sandbox} if chore.sandbox else {})

    def _drive(self) -> None:
        """Start it, kill it or its workers, start it again, until it says that all is done."""
        before = b""
        kills = self._plan.kills
        for start in range(MOST_STARTS):
            driver = self._start()
            while kills and driver.poll() is None:
                self._wait(driver, self._rng.uniform(0.3, LONGEST_PAUSE))
                self._strike(driver)
                kills -= 1
            if self._plan.full and start == 0:
                self._fill_up(driver)
            self._wait(driver, END_SECONDS)
            if driver.poll() is None:
                self.problems.append(f"the batch hangs: {self._said()}")
                driver.kill()
            code = driver.wait()
            now = self._out.read_bytes() if self._out.exists() else b""
            if not now.startswith(before[: before.rfind(b"\n") + 1]):
                self.problems.append("a line of the batch's results has changed")
            before = now
            if code in (0, 1) and not (code and self._plan.full and start == 0):
                return
            if code != -signal.SIGKILL and not self._plan.full:
                self.problems.append(f"the batch ends with {code}: {self._said()}")
                return
        self.problems.append(f"the batch does not end: {self._said()}")

    def _start(self) -> "subprocess.Popen[bytes]":
        words = ("batch", str(self._folder / "tasks.jsonl"), "--out", str(self._out), "--workers", WORKERS,
                 "--base-url", self._upstream.model, "--wire", self._plan.wire, "-m", "scripted-model")  # fmt: skip
        return self._household.start(words, self._folder, self._log, self._household.root / "tmp")

    def _wait(self, driver: "subprocess.Popen[bytes]", seconds: float) -> None:
        try:
            driver.wait(seconds)
        except subprocess.TimeoutExpired:
            return

    def _strike(self, driver: "subprocess.Popen[bytes]") -> None:
        """Kill the driver, a worker, or all of them."""
        if driver.poll() is not None:
            return
        workers = children_of(driver.pid)
        victims = self._rng.choice([[driver.pid], workers[:1], workers[-1:], [driver.pid, *workers]])
        self.faults["kill_batch"] += 1
        for victim in victims:
            kill(victim, signal.SIGKILL)

    def _fill_up(self, driver: "subprocess.Popen[bytes]") -> None:
        """The disk of the results is full for some seconds."""
        self.faults["full_disk_of_batch"] += 1
        filler = self._folder / "filler"
        self._wait(driver, self._rng.uniform(0.5, 4.0))
        fill(filler)
        self._wait(driver, FULL_SECONDS)
        filler.unlink(missing_ok=True)

    def _said(self) -> str:
        return self._log.read_text(errors="replace")[-3000:]

    def _judge(self) -> None:
        """Exactly one result for each task, each as it must be; nothing else is left."""
        lines = self._out.read_bytes().splitlines() if self._out.exists() else []
        results = {result["id"]: result for result in map(json.loads, lines)}
        if sorted(results) != [*range(TASKS)] or len(lines) != TASKS:
            self.problems.append(f"the batch has results of {sorted(results)} in {len(lines)} lines: {self._said()}")
        for number, result in results.items():
            self._judge_one(number, self._plan.chores[number], result)
        left = {path.name for path in self._folder.iterdir()} - {
            "tasks.jsonl",
            "given",
            "out.jsonl",
            "out.jsonl.rollouts",
        }
        self.problems += [f"the batch leaves {name}" for name in left]
        if "Traceback" in (said := self._said()) and not self._plan.full:
            self.problems.append(f"the batch says: {said}")

    def _judge_one(self, number: int, chore: Chore, result: dict[str, Any]) -> None:
        if result["status"] == "error" and (chore.source == BUSY or self._plan.full or self._plan.kills > 1):
            return  # its repository was away, or there was no space, or its workers died again and again
        verdict = "pass" if chore.passes else "fail"
        wrong = [
            f"{name} is {result[name]!r}"
            for name, expected in (("status", "done"), ("verdict", verdict), ("last_message", "Made."))
            if result[name] != expected
        ]
        wrong += [] if f"made{number}" in result["patch"] else [f"the patch is {result['patch'][:300]!r}"]
        if wrong and not self._plan.full:
            self.problems.append(f"task {number} ({chore}): {wrong} {result['error']}; {self._said()}")
        stored = read_rollout(Path(result["rollout"]))
        self.problems += [f"task {number}: {fault}" for fault in wrong_order(settled(stored.responses))]
