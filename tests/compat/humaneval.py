"""HumanEval's canonical solutions in one Python kernel, here or in a container. `scripts/humaneval` runs it."""

import asyncio
import gzip
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from ferrule.containers import Container
from ferrule.process.kernel import Kernel, KernelLost
from ferrule.process.plain import PlainLauncher
from ferrule.process.python_kernel import start_python

LIMIT_MS = 60_000


class Problem(msgspec.Struct, frozen=True):
    """One line of the data set: a function's head, its body, and a function `check` for it."""

    task_id: str
    prompt: str
    canonical_solution: str
    test: str
    entry_point: str

    @property
    def cells(self) -> tuple[str, str]:
        """The solution, and a check of it that gives "passed"."""
        return self.prompt + self.canonical_solution, f"{self.test}\ncheck({self.entry_point})\n'passed'"


@asynccontextmanager
async def a_kernel(contained: bool) -> AsyncIterator[Kernel]:
    """Start one here, or in a container."""
    if contained:
        async with Container.open() as container:
            yield await start_python(container, "/usr/bin/python3", container.environment, "/mnt/data")
        return
    with tempfile.TemporaryDirectory() as cwd:
        kernel = await start_python(PlainLauncher(), sys.executable, os.environ, cwd)
        yield kernel
        await kernel.kill()


async def main(path: Path, contained: bool) -> int:
    """Run all of a file in one kernel; return how many failed."""
    data = path.read_bytes()
    lines = (gzip.decompress(data) if path.suffix == ".gz" else data).splitlines()
    problems = [msgspec.json.decode(line, type=Problem) for line in lines if line]
    failed = 0
    async with a_kernel(contained) as kernel:
        for problem in problems:
            said = ""
            try:
                for cell in problem.cells:
                    result = await kernel.run(cell, LIMIT_MS)
                    said = result.inherited.text() + (result.error or "")
            except KernelLost as error:
                print(f"{problem.task_id}: the kernel {error}")
                return failed + 1
            if not said.endswith("'passed'\n"):
                failed += 1
                print(f"{problem.task_id}: {said}")
    print(f"{len(problems) - failed} of {len(problems)} solutions pass")
    return failed


if __name__ == "__main__":
    sys.exit(min(asyncio.run(main(Path(sys.argv[-1]), "--container" in sys.argv)), 1))
