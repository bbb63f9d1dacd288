"""Make, use and end many containers, several at once. `scripts/container_soak` runs it."""

import asyncio
import os
import random
import sys
import tempfile
import time
from pathlib import Path

from ferrule.containers import Container, ContainerSettings, HostLimits, LocalHost
from ferrule.process.python_kernel import start_python
from tests.containers.leftovers import Leftovers, leftovers
from tests.processes import until

CONTAINERS, AT_ONCE = 10_000, 8
COLUMNS = "{:>10} {:>8} {:>9} {:>6} {:>6} {:>11} {:>7} {:>10}"
HEAD = ("containers", "seconds", "processes", "mounts", "groups", "descriptors", "folders", "memory KiB")
SERVICE = "sleep 1000 > /dev/null 2>&1 &"


async def once(host: LocalHost, dice: random.Random) -> None:
    """The life of one container: a command, mostly a service, sometimes Python, sometimes an end by expiry."""
    expires = dice.random() < 0.1
    container = await host.create(ContainerSettings(idle_seconds=0.5 if expires else 1200))
    with container.in_use():
        await use(container, dice)
    if not expires:
        await container.aclose()
    await until(lambda: container.status == "expired")


async def use(container: Container, dice: random.Random) -> None:
    """Run a command, and sometimes Python."""
    done = await container.run(f"{SERVICE if dice.random() < 0.5 else ''} echo text > file; cat file")
    assert (done.stdout.text(), done.exit_code) == ("text\n", 0), done
    if dice.random() < 0.3:
        kernel = await start_python(container.background, "/usr/bin/python3", container.environment, "/mnt/data")
        result = await kernel.run("x = open('file').read(); x", 60_000)
        assert result.inherited.text() == "'text\\n'\n", result
        if dice.random() < 0.5:
            await kernel.kill()


async def soak(count: int, place: Path) -> tuple[Leftovers, Leftovers]:
    """Return what there was after the first hundred containers, and at the end."""
    dice = random.Random(count)
    started, done = time.monotonic(), 0
    turn = asyncio.Semaphore(AT_ONCE)
    marks: list[Leftovers] = []

    async def one(host: LocalHost) -> None:
        nonlocal done
        async with turn:
            await once(host, dice)
        done += 1

    print(COLUMNS.format(*HEAD))
    async with LocalHost.open(place, limits=HostLimits(spares=1)) as host:
        for wave in range(0, count, 100):
            async with asyncio.TaskGroup() as tasks:
                for _ in range(min(100, count - wave)):
                    tasks.create_task(one(host))
            found = leftovers(place, {os.getpid()})
            marks.append(found)
            if wave % 500 == 0 or done == count:
                print(COLUMNS.format(done, round(time.monotonic() - started), *found.counts, found.memory), flush=True)
    return marks[0], marks[-1]


def main(count: int) -> int:
    """Soak; return 1 if something is left or the memory has grown."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        place = Path(folder, "place")
        before = leftovers(place, {os.getpid()})
        first, last = asyncio.run(soak(count, place))
        after = leftovers(place, {os.getpid()})
    print("before", *before.counts, "after", *after.counts)
    grown = last.memory - first.memory
    print(f"memory grew by {grown} KiB from the first hundred to the last")
    return int(after.counts != before.counts or grown > max(10_000, 2 * count))


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else CONTAINERS))
