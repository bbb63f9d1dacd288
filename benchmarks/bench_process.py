"""Starting commands and reading their output, beside what any program must do."""

import asyncio
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable

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


async def alternate(*works: Callable[[], Awaitable[None]]) -> list[float]:
    """Median milliseconds of each, in turns."""
    times: list[list[float]] = [[] for _ in works]
    for _ in range(ROUNDS):
        for spent, work in zip(times, works, strict=True):
            started = time.perf_counter()
            await work()
            spent.append((time.perf_counter() - started) * 1000)
    return [statistics.median(spent) for spent in times]


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


def row(name: str, value: float, floor: float, unit: str, aim: str) -> None:
    print(f"{name}: ours {value:.2f} {unit}, floor {floor:.2f} {unit}, ratio {value / floor:.2f} (aim {aim})")


def main() -> None:
    floor, pipes, pty = asyncio.run(alternate(floor_asyncio, lambda: ours(TRUE, Pipes()), lambda: ours(TRUE, Pty())))
    row("bash -c true through pipes, floor asyncio's own", pipes, floor, "ms", "at most 1.5")
    row("bash -c true on a terminal, floor our pipes", pty, pipes, "ms", "at most 1.5")
    growth, floors, rates = 0.0, [], []
    for _ in range(3):
        floors.append(floor_read_loop())
        rate, grown = ours_flood()
        rates.append(rate)
        growth = max(growth, grown)
    name = "1 GB into bounded buffers (stdout, and both streams together), floor a blocking loop"
    row(name, statistics.median(rates), statistics.median(floors), "MB/s", "at least 0.7")
    print(f"growth of memory meanwhile: ours {growth:.1f} MB (aim under 20)")


if __name__ == "__main__":
    main()
