"""Batches: tasks without a call, and tasks of ten commands; `ferrule batch` confines them, the others do not.

`FERRULE_WHOLE=1` does 10,000 and 1,000 of them, some minutes for each contestant; else a tenth.
"""

import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from benchmarks.measure import Row, is_installed, row
from ferrule.testing import ScriptedModel, function_call
from ferrule.testing.request import Request
from ferrule.testing.steps import Simple

SHARE = 1 if os.environ.get("FERRULE_WHOLE") else 10
WORKS = ((0, 10_000 // SHARE, "no calls"), (10, 1_000 // SHARE, "10 commands"))
LANES = 16
LOOK_SECONDS = 0.2
"""Between two looks at the memory of all processes."""


@contextmanager
def server(calls: int) -> Iterator[str]:
    """A model server in a process of its own, whose answers call so often before they say `Done`."""
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.bench_batch", str(calls)], stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().decode().strip()
        finally:
            process.kill()


def serve(calls: int) -> None:
    """Be that server."""

    def answer(request: Request) -> Simple:
        done = len(request.outputs)
        if done < calls:
            return function_call("shell_command", {"command": f"echo {done} >> out.txt"}, call_id=f"call_{done}")
        return "Done"

    with ScriptedModel(answer) as model:
        print(model.base_url, flush=True)
        while True:
            time.sleep(1)
            model.requests.clear()


def run(command: Sequence[str], cwd: Path) -> dict[str, float]:
    """Run a contestant; return its seconds, its processor time, and the most memory of it and all its children."""
    before, started = _processor_time(), time.perf_counter()
    with subprocess.Popen(command, cwd=cwd, stderr=subprocess.DEVNULL) as process:
        most = [0.0]
        over = threading.Event()
        watching = threading.Thread(target=_watch, args=(process.pid, most, over))
        watching.start()
        code = process.wait()
        over.set()
        watching.join()
    seconds = time.perf_counter() - started
    assert code == 0, command
    return {"seconds": seconds, "cpu": _processor_time() - before, "bytes": most[0]}


def _processor_time() -> float:
    """Seconds of all processes that have ended below this one."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _watch(pid: int, most: list[float], over: threading.Event) -> None:
    while not over.wait(LOOK_SECONDS):
        most[0] = max(most[0], sum(map(_memory, _family(pid))))


def _family(pid: int) -> list[int]:
    found = [pid]
    for one in found:
        with suppress(OSError):
            for thread in os.listdir(f"/proc/{one}/task"):
                found += map(int, Path(f"/proc/{one}/task/{thread}/children").read_text().split())
    return found


def _memory(pid: int) -> int:
    """Bytes of a process; what it shares counts in parts."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def contestants(url: str, tasks: int, folder: Path) -> dict[str, list[str]]:
    """The commands."""
    file = folder / "tasks.jsonl"
    file.write_text("".join(f'{{"id": {number}, "prompt": "go"}}\n' for number in range(tasks)))
    given = ["--base-url", url, "--wire", "chat", "-m", "scripted-model", "--workers", str(LANES)]
    loop = [sys.executable, "-m", "benchmarks.batch_loops"]
    found = {"ours": [sys.executable, "-m", "ferrule", "batch", str(file), "--out", str(folder / "out.jsonl"), *given]}
    for name, module in (("asyncio", "openai"), ("openai-agents", "agents")):
        if is_installed(module):
            found[name] = [*loop, name, url, str(tasks), str(LANES), str(folder)]
    return found


def measured(calls: int, tasks: int) -> dict[str, dict[str, float]]:
    """Each contestant, one after another, against the same server."""
    found = {}
    with server(calls) as url, tempfile.TemporaryDirectory(prefix="bench-batch-", dir=Path.home()) as folder:
        for name, command in contestants(url, tasks, Path(folder)).items():
            found[name] = run(command, Path(__file__).parents[1])
    return found


def rows() -> Iterator[Row]:
    """Throughput by the clock, processor time, memory."""
    for calls, tasks, what in WORKS:
        found = measured(calls, tasks)
        ours, floor = found.pop("ours"), found.pop("asyncio")
        for key, title, unit, scale in (
            ("seconds", "the clock, a task", "ms", 1000 / tasks),
            ("cpu", "processor time, a task", "ms", 1000 / tasks),
            ("bytes", "memory of all processes", "MiB", 2**-20),
        ):
            peers = {name: figures[key] for name, figures in found.items()}
            yield row(f"{tasks:,} tasks of {what}: {title}", ours[key], floor[key], None, unit, scale, peers)


def main() -> None:
    """Print the rows; with an argument, be the server of a contestant."""
    if len(sys.argv) > 1:
        serve(int(sys.argv[1]))
    for one in rows():
        print(one, flush=True)


if __name__ == "__main__":
    main()
