"""Containers: ready with a first command, beside one `bwrap` with a like root; a command in one, beside `posix_spawn`;
memory of many, with Python and without; entering an image beside an empty one.

As root the run has real-time priority, so that other programs on the machine disturb no side. Memory is what
`smaps_rollup` says of the idle containers' processes.
"""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from benchmarks.bench_sandbox import ENV, run, spawn_plainly
from benchmarks.measure import Row, Work, bounded, in_turns, row
from ferrule.containers import Container, ContainerSettings, HostLimits, LocalHost
from ferrule.process.launcher import Limits, Pipes
from ferrule.process.python_kernel import start_python
from ferrule.sandbox.linux.root import DATA, HOME, PrivateRoot

ROUNDS = 60
MANY, KERNELS = 200, 50
PAUSE = 0.02
"""Seconds between two commands, in which the next init is made."""
KIBIBYTES = 1024
IMAGE_FILES, FILE_BYTES = 4000, 50_000
SETTINGS = ContainerSettings(temporary=True)


def main() -> None:
    """Print one line a row."""
    if os.getuid() == 0:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    with tempfile.TemporaryDirectory(prefix="ferrule-bench-", dir="/var/tmp") as base:
        for line in asyncio.run(compare(Path(base))):
            print(line, flush=True)


async def compare(base: Path) -> list[Row]:
    """The rows."""
    async with LocalHost.open(base / "containers", limits=HostLimits(containers=MANY + 10)) as host:
        container = await host.create(SETTINGS)
        works: dict[str, Work] = {
            "posix_spawn": spawn_plainly,
            "spare": lambda: true_in(container),
            "ready": lambda: made_and_used(host),
            "empty": partial(entered, host, filled(base / "empty", 0)),
            "large": partial(entered, host, filled(base / "large", IMAGE_FILES)),
        }
        if bwrap := shutil.which("bwrap"):
            works["bwrap"] = partial(run, [bwrap, *bwrap_words(base), "--", "/bin/true"], ENV)
        times = dict(zip(works, await in_turns([*works.values()], ROUNDS, pause=PAUSE), strict=True))
        memory = await memory_of_many(host)
        memory_with_python = await memory_of_kernels(host)
    floor = times["posix_spawn"]
    peers = {name: times[name] for name in ("bwrap",) if name in times}
    return [
        row("true in a container, a spare init ready, floor posix_spawn", times["spare"], floor, 4, "ms", 1e3),
        row(
            "a container made and its first command ended, floor one bwrap with a like root",
            times["ready"],
            peers.get("bwrap", floor),
            1.5 if peers else None,
            "ms",
            1e3,
        ),
        row("entering an image of 200 MB, floor an empty one", times["large"], times["empty"], 1.2, "ms", 1e3),
        bounded(f"one of {MANY} idle containers", memory, 1.5, "MiB"),
        bounded(f"one of {KERNELS} idle containers with Python", memory_with_python, 12, "MiB"),
    ]


async def true_in(container: Container) -> None:
    """Run `true` with its output on a pipe, as any command."""
    child = await container.launch(["/bin/true"], ENV, DATA, Pipes(merge=True), Limits())
    os.close(child.stdout)
    await child.wait()


async def made_and_used(host: LocalHost) -> None:
    """A whole container for one command; its end is not waited for, as with the other side."""
    container = await host.create(SETTINGS)
    await true_in(container)
    ENDING.append(asyncio.create_task(container.aclose()))


def filled(root: Path, files: int) -> ContainerSettings:
    """A container on a root with many files."""
    for number in range(files):
        file = root / f"usr/lib/{number % 100}/{number}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(os.urandom(FILE_BYTES))
    root.mkdir(exist_ok=True)
    return ContainerSettings(root=str(root), temporary=True)


async def entered(host: LocalHost, settings: ContainerSettings) -> None:
    """A container on a root that is ready for commands."""
    container = await host.create(settings)
    ENDING.append(asyncio.create_task(container.aclose()))


ENDING: list[asyncio.Task[None]] = []


def bwrap_words(base: Path) -> list[str]:
    """The same root, as bwrap builds it."""
    folders = {name: str(base / name) for name in ("data", "tmp", "home")}
    for folder in folders.values():
        os.mkdir(folder)
    root = PrivateRoot(data=folders["data"], tmp=folders["tmp"], home=folders["home"])
    words = ["--unshare-all", "--uid", "1000", "--gid", "1000", "--hostname", "container", "--die-with-parent"]
    wire = root.wire()
    for source, target, writable in wire["binds"]:  # type: ignore[attr-defined]
        words += ["--bind" if writable else "--ro-bind", os.fsdecode(source), os.fsdecode(target)]
    for path, target in wire["links"]:  # type: ignore[attr-defined]
        words += ["--symlink", os.fsdecode(target), os.fsdecode(path)]
    return [*words, "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/dev/shm", "--chdir", HOME]


async def memory_of_many(host: LocalHost) -> float:
    """MiB of each of many containers that nobody has used for a while."""
    await asyncio.gather(*ENDING)
    many = await asyncio.gather(*(host.create(SETTINGS) for _ in range(MANY)))
    await asyncio.gather(*(true_in(container) for container in many))
    await asyncio.sleep(1)  # until the next inits are there
    for container in many:
        container.drop_spares()
    await asyncio.sleep(1)  # until those have ended
    memory = memory_of(many)
    await asyncio.gather(*(container.aclose() for container in many))
    return memory


async def memory_of_kernels(host: LocalHost) -> float:
    """MiB of each of some containers in which Python waits for a cell."""
    many = await asyncio.gather(*(host.create(SETTINGS) for _ in range(KERNELS)))
    for container in many:
        kernel = await start_python(container.background, "/usr/bin/python3", container.environment, DATA)
        await kernel.run("1 + 1", 60_000)
    await asyncio.sleep(1)  # until the next inits are there
    for container in many:
        container.drop_spares()
    await asyncio.sleep(1)  # until those have ended
    return memory_of(many)


def memory_of(containers: Sequence[Container]) -> float:
    """MiB of each."""
    total = sum(proportional(pid) for container in containers for pid in descendants(container.holder_pid))
    return total / KIBIBYTES / len(containers)


def descendants(pid: int) -> Iterator[int]:
    """A process, and all below it."""
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in children.read_text().split():
            yield from descendants(int(child))


def proportional(pid: int) -> int:
    """KiB of a process, shared pages divided among those that share them."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1])
    return 0


if __name__ == "__main__":
    main()
