"""SIGKILL of the driver and of workers at random moments, again and again: every task has exactly one result.

`python -m tests.batch.kills [KILLS] [SEED]`, or scripts/batch_kills.
"""

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from ferrule.testing import ScriptedModel, function_call, step
from ferrule.testing.request import Request
from ferrule.testing.steps import Simple
from tests.cli.command import Place
from tests.processes import children_of

TASKS_A_KILL = 12
"""So many tasks for each kill: the batch lasts until all kills were made."""
BY_COMMAND = "make it by a command of the shell"
"""The prompt of the tasks whose model runs a command."""
LONGEST_PAUSE = 1.5
"""Seconds between two kills: a worker takes a second to start."""


def _answer(request: Request) -> Simple:
    if BY_COMMAND.encode() in request.raw and not request.outputs:
        return function_call("shell_command", {"command": "echo made > made"})
    return step("done", delay=0.05)


def _kill(driver: "subprocess.Popen[bytes]", chance: random.Random) -> str:
    """Kill the driver, a worker, or all of them; say whom."""
    workers = children_of(driver.pid)
    victims = chance.choice([[driver.pid], workers[:1], workers[-1:], [driver.pid, *workers]])
    for victim in victims:
        with suppress(ProcessLookupError):
            os.kill(victim, signal.SIGKILL)
    return "the driver" if victims == [driver.pid] else f"{len(victims)} processes"


def rounds(folder: Path, kills: int, seed: int) -> str:
    """Run a batch under so many kills. Return what was seen, in words; raise `AssertionError` for what must not be."""
    chance = random.Random(seed)
    work = folder / "work"
    work.mkdir()
    place = Place(work, folder / "home")
    tasks, out = work / "tasks.jsonl", work / "out.jsonl"
    count = TASKS_A_KILL * kills + 20
    tasks.write_text(
        "".join(json.dumps({"id": n, "prompt": BY_COMMAND if n % 10 == 0 else "say done"}) + "\n" for n in range(count))
    )
    starts, made, before = 0, 0, b""
    with ScriptedModel(_answer) as model:
        given = ["--base-url", model.base_url, "--wire", "chat", "-m", "scripted-model", "--workers", "4"]
        code = None
        while code != 0:
            starts += 1
            driver = place.start("batch", str(tasks), "--out", str(out), *given)
            while driver.poll() is None and made < kills:
                with suppress(subprocess.TimeoutExpired):
                    driver.wait(chance.uniform(0.0, LONGEST_PAUSE))
                if driver.poll() is None:
                    _kill(driver, chance)
                    made += 1
            _, said = driver.communicate(timeout=600)
            code = driver.returncode
            assert code in (0, -signal.SIGKILL), said.decode()
            now = out.read_bytes() if out.exists() else b""
            whole = before[: before.rfind(b"\n") + 1]
            assert now.startswith(whole), "a line has changed"
            before = now
            model.requests.clear()
    results = [json.loads(line) for line in before.splitlines()]
    assert sorted(result["id"] for result in results) == [*range(count)]
    assert {result["status"] for result in results} == {"done"}
    assert all(("+made" in result["patch"]) == (result["id"] % 10 == 0) for result in results)
    left = sorted(path.name for path in work.iterdir())
    assert left == ["out.jsonl", "out.jsonl.rollouts", "tasks.jsonl"], left
    again = sum(result["attempts"] > 1 for result in results)
    return f"{count} tasks, {made} kills, {starts} starts, {again} tasks tried more than once"


def main() -> None:
    """Run as many kills as the arguments say."""
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 50
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else time.time_ns() % 1_000_000
    print(f"seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="batch-kills-") as folder:
        print(rounds(Path(folder), kills, seed))


if __name__ == "__main__":
    main()
