"""Starting commands and reading their output, beside what any program must do."""

import asyncio
import os
import resource
import subprocess
import sys
import time
from functools import partial
from statistics import median

from benchmarks.measure import Row, Work, at_least, bounded, in_turns, row
from ferrule.process.launcher import Pipes, Pty, Stdio
from ferrule.process.plain import PlainLauncher
from ferrule.process.run import run

ROUNDS = 150
FLOOD_BYTES = 1_000_000_000
TRUE = ["bash", "-c", "true"]
FLOOD = ["head", "-c", str(FLOOD_BYTES), "/dev/zero"]


async def ours(argv: list[str], stdio: Stdio) -> None:
    done = await run(PlainLauncher(), argv, env=os.environ, cwd="/", stdio=stdio)
    assert done.exit_code == 0


async def floor_asyncio() -> None:
    process = await asyncio.create_subprocess_exec(
        *TRUE, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    await process.communicate()


def floor_read_loop() -> float:
    """Megabytes a second of a blocking loop."""
    started = time.perf_counter()
    with subprocess.Popen(FLOOD, stdout=subprocess.PIPE, bufsize=0) as process:
        assert process.stdout is not None
        while os.read(process.stdout.fileno(), 64 * 1024):
            pass
    return FLOOD_BYTES / 1e6 / (time.perf_counter() - started)


def ours_flood() -> tuple[float, float]:
    """Megabytes a second, and megabytes of growth."""
    before = peak_megabytes()
    started = time.perf_counter()
    asyncio.run(ours(FLOOD, Pipes()))
    return FLOOD_BYTES / 1e6 / (time.perf_counter() - started), peak_megabytes() - before


def peak_megabytes() -> float:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (1024 if sys.platform == "linux" else 1024 * 1024)


async def commands() -> list[Row]:
    """The rows of short commands."""
    works: list[Work] = [floor_asyncio, partial(ours, TRUE, Pipes()), partial(ours, TRUE, Pty())]
    floor, pipes, pty = await in_turns(works, ROUNDS)
    return [
        row("bash -c true through pipes, floor asyncio's own", pipes, floor, 1.5, "ms", 1e3),
        row("bash -c true on a terminal, floor our pipes", pty, pipes, 1.5, "ms", 1e3),
    ]


def flood() -> list[Row]:
    """The rows of much output."""
    growth, floors, rates = 0.0, [], []
    for _ in range(3):
        floors.append(floor_read_loop())
        rate, grown = ours_flood()
        rates.append(rate)
        growth = max(growth, grown)
    return [
        at_least("1 GB of output, floor a blocking loop", median(rates), median(floors), 0.7, "MB/s"),
        bounded("1 GB of output, growth of memory", growth, 20, "MB"),
    ]


def main() -> None:
    """Print one line a row."""
    for line in (*asyncio.run(commands()), *flood()):
        print(line, flush=True)


if __name__ == "__main__":
    main()
