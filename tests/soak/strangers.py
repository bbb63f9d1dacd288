"""Other programs of the user that work with repositories: they change, collect, move and delete them."""

import os
import random
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.churn import churner
from tests.soak.estate import git, make_repository

LONGEST_PAUSE = 0.6
MOVED = "moved away"


@contextmanager
def churning(folder: Path, seed: int, problems: list[str]) -> Iterator[None]:
    """A program that makes, moves and deletes repositories in `folder`, and looks whether somebody changes them."""
    folder.mkdir()
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder)}
    program = subprocess.Popen(
        [sys.executable, churner.__file__, str(folder), str(seed)],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        yield
    finally:
        with suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)  # also a git that it waits for
        said, _ = program.communicate()
        shutil.rmtree(folder, ignore_errors=True)  # of a small disk, which others need
        if said:
            problems.append(f"another program's repositories: {said.decode()}")


class Strangers:
    """Somebody who works on one repository all the time: commits, branches, collects, moves it away and back."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._busy = folder / "busy"
        folder.mkdir()
        make_repository(self._busy)

    @contextmanager
    def at_work(self, seed: str) -> Iterator[None]:
        """Work until the block ends."""
        over = threading.Event()
        worker = threading.Thread(target=self._work, args=(random.Random(seed), over))
        worker.start()
        try:
            yield
        finally:
            over.set()
            worker.join()

    def _work(self, rng: random.Random, over: threading.Event) -> None:
        ways = (self._commit, self._collect, self._branch, self._move, self._configure, self._worktree)
        number = 0
        while not over.wait(rng.uniform(0.05, LONGEST_PAUSE)):
            number += 1
            rng.choice(ways)(number, over)

    def _commit(self, number: int, _: threading.Event) -> None:
        (self._busy / "src" / f"new{number % 5}.txt").write_text(f"{number}\n")
        git(self._busy, "add", "-A", check=False)
        git(self._busy, "commit", "-q", "-m", f"change {number}", check=False)

    def _collect(self, number: int, _: threading.Event) -> None:
        how = ("--aggressive",) if number % 3 == 0 else ()
        git(self._busy, "-c", "gc.pruneExpire=now", "gc", "-q", *how, check=False)

    def _branch(self, number: int, _: threading.Event) -> None:
        git(self._busy, "checkout", "-q", "-B", f"branch{number % 3}", check=False)
        git(self._busy, "pack-refs", "--all", check=False)

    def _move(self, _: int, over: threading.Event) -> None:
        self._busy.rename(self._folder / MOVED)
        over.wait(0.2)
        (self._folder / MOVED).rename(self._busy)

    def _configure(self, number: int, _: threading.Event) -> None:
        git(self._busy, "config", "soak.number", str(number), check=False)

    def _worktree(self, number: int, _: threading.Event) -> None:
        tree = self._folder / f"tree{number}"
        git(self._busy, "worktree", "add", "-q", "--detach", str(tree), check=False)
        shutil.rmtree(tree, ignore_errors=True)
        git(self._busy, "worktree", "prune", check=False)
