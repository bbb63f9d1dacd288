"""SIGKILL of every process of ours, each in turn, while containers work. `scripts/container_kills` runs it."""

import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from ferrule.containers import Container, ContainerSettings, LocalHost
from ferrule.process.kernel import Kernel, KernelLost
from ferrule.process.launcher import LaunchError
from ferrule.process.python_kernel import start_python
from tests.containers.leftovers import leftovers, ours
from tests.processes import alive, children_of

ROUNDS, PATIENCE = 3, 30.0
KERNEL = "import time; time.sleep(1000)"
GATEWAY = """
import asyncio, sys
from pathlib import Path
from tests.containers.kills import work
asyncio.run(work(Path(sys.argv[1])))
"""


makers = {os.getpid()}
"""The processes that have made containers: groups have their names."""


class Victims:
    """The processes of one container that works: a command, a service, a cell."""

    def __init__(self, container: Container) -> None:
        self.holder = container.holder_pid
        self.mother = _parent(self.holder)
        self.inits = children_of(self.holder)
        self.commands = [pid for init in self.inits for pid in children_of(init)]
        pythons = [pid for pid in self.commands if b"\0-I\0" in Path(f"/proc/{pid}/cmdline").read_bytes()]
        self.kinds = {
            "mother": self.mother,
            "holder": self.holder,
            "init of the kernel": _parent(pythons[0]),
            "kernel": pythons[0],
            "init of a command": next(_parent(pid) for pid in self.commands if pid not in pythons),
            "command": next(pid for pid in self.commands if pid not in pythons),
        }


async def busy(host: LocalHost) -> tuple[Container, list[asyncio.Task[object]]]:
    """A container with a service, a command that runs, and a cell that runs."""
    container = await host.create()
    await container.run("sleep 1000 > /dev/null 2>&1 & echo kept > file")
    kernel = await start_python(container.background, "/usr/bin/python3", container.environment, "/mnt/data")
    tasks: list[asyncio.Task[object]] = [
        asyncio.create_task(container.run("sleep 1000")),
        asyncio.create_task(_cell(kernel)),
    ]
    await until(lambda: len(commands_of(container)) >= 3)
    return container, tasks


def commands_of(container: Container) -> list[int]:
    return [pid for init in children_of(container.holder_pid) for pid in children_of(init)]


async def _cell(kernel: Kernel) -> object:
    return await kernel.run(KERNEL, 1_000_000)


async def work(place: Path) -> None:
    """A gateway that is going to be killed."""
    async with LocalHost.open(place) as host:
        made = [await busy(host) for _ in range(3)]
        print(made[0][0].id, flush=True)
        await asyncio.sleep(1000)


async def one_kill(place: Path, kind: str) -> str:
    """Kill one process; the container and another one go on. Returns what the container said."""
    async with LocalHost.open(place) as host:
        beside, tasks_beside = await busy(host)
        container, tasks = await busy(host)
        os.kill(Victims(container).kinds[kind], signal.SIGKILL)
        if kind != "mother":  # nobody misses it until it is needed
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED, timeout=PATIENCE)
        again = await container.run("cat file")
        assert again.stdout.text() == "kept\n", again
        assert (await beside.run("cat file")).stderr.text() == ""
        assert not any(task.done() for task in tasks_beside), "the other one is disturbed"
        more = await host.create(ContainerSettings(temporary=True))
        assert (await more.run("echo works")).stdout.text() == "works\n"
        told = again.stderr.text().strip()
        for one in (container, beside, more):
            await one.aclose()
        for outcome in await asyncio.gather(*tasks, *tasks_beside, return_exceptions=True):
            assert not isinstance(outcome, BaseException) or isinstance(outcome, LaunchError | KernelLost), outcome
    return told


async def gateway_kill(place: Path) -> str:
    """Kill the process above all; the next one takes the files over."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", GATEWAY, str(place), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    kept = (await process.stdout.readline()).decode().strip()
    theirs = ours(place, {process.pid})
    makers.add(process.pid)
    process.kill()
    await process.wait()
    await until(lambda: not any(map(alive, theirs)))
    async with LocalHost.open(place) as host:
        container = await host.get(kept)
        done = await container.run("cat file")
        assert done.stdout.text() == "kept\n", done
        for info in await host.list():
            await host.remove(info.id)
    return done.stderr.text().strip()


async def until(true: Callable[[], bool]) -> None:
    """Wait until something is so."""
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, "it takes too long"
        await asyncio.sleep(0.01)


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


async def main(rounds: int) -> int:
    """Kill everything in turn; print a table; return how many kills left something."""
    bad = 0
    kinds = ("mother", "holder", "init of the kernel", "kernel", "init of a command", "command", "gateway")
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        place = Path(folder, "place")
        os.environ["PYTHONPATH"] = str(Path(__file__).parents[2])
        async with LocalHost.open(place) as host:  # so that nothing is done for the first time later
            await (await host.create()).aclose()
        before = leftovers(place, makers).counts
        print(f"{'killed':<20} {'left: processes, mounts, groups, descriptors, folders':<56} told")
        for kind in kinds * rounds:
            told = await (gateway_kill(place) if kind == "gateway" else one_kill(place, kind))
            after = leftovers(place, makers).counts
            left = [now - then for now, then in zip(after, before, strict=True)]
            bad += any(left)
            print(f"{kind:<20} {left!s:<56} {told[:60]}", flush=True)
    return bad


if __name__ == "__main__":
    sys.exit(min(asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS)), 1))
