"""A cell of the Python kernel beside what the interpreter itself takes to compile and evaluate it."""

import asyncio
import os
import sys
import tempfile
import time

from benchmarks.measure import bounded, medians, row
from ferrule.process.kernel import Kernel
from ferrule.process.plain import PlainLauncher
from ferrule.process.python_kernel import start_python

ROUNDS = 300
LIMIT_MS = 60_000
CELL = "rows = [{'n': n, 'square': n * n} for n in range(100)]\nrows[-1]['square'] + 1"
FLOOR = f"""
import time
def floor():
    started = time.perf_counter()
    exec(compile({CELL.partition(chr(10))[0]!r}, "floor", "exec"), globals())
    repr(eval(compile({CELL.partition(chr(10))[2]!r}, "floor", "eval"), globals()))
    return time.perf_counter() - started
"""


async def answer(kernel: Kernel, code: str) -> str:
    return (await kernel.run(code, LIMIT_MS)).inherited.text().strip()


async def measure(cwd: str) -> tuple[list[float], list[float]]:
    """Median seconds of the evaluation alone and of a cell; of an interpreter's start and of a kernel's."""
    launcher = PlainLauncher()
    kernel = await start_python(launcher, sys.executable, os.environ, cwd)
    await answer(kernel, FLOOR)

    async def floor() -> float:
        return float(await answer(kernel, "floor()"))

    async def cell() -> float:
        started = time.perf_counter()
        assert await answer(kernel, CELL) == "9802"
        return time.perf_counter() - started

    async def interpreter() -> float:
        started = time.perf_counter()
        child = await asyncio.create_subprocess_exec(sys.executable, "-I", "-c", "import ast, json, traceback, select")
        await child.wait()
        return time.perf_counter() - started

    async def start() -> float:
        started = time.perf_counter()
        another = await start_python(launcher, sys.executable, os.environ, cwd)
        spent = time.perf_counter() - started
        await another.kill()
        return spent

    cells = await medians([floor, cell], ROUNDS)
    starts = await medians([interpreter, start], ROUNDS // 20)
    await kernel.kill()
    return cells, starts


def main() -> None:
    with tempfile.TemporaryDirectory() as cwd:
        (least, ours), (interpreter, start) = asyncio.run(measure(cwd))
    print(bounded("Python kernel, a cell over its evaluation", ours - least, 1, "ms", 1e3), flush=True)
    print(
        row("Python kernel ready, over an interpreter with its imports", start, interpreter, 2, "ms", 1e3), flush=True
    )


if __name__ == "__main__":
    main()
