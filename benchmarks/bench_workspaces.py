"""Workspaces: entering and leaving one of a large repository beside an empty one, as layers and as copies; the patch of
a small change; the memory of many sandboxes that are open at once, each in a workspace of its own.

Memory is what `smaps_rollup` says of this process and all below it.
"""

import asyncio
import os
import subprocess
import tempfile
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

from benchmarks.bench_containers import KIBIBYTES, descendants, proportional
from benchmarks.measure import Row, Work, bounded, in_turns, row
from ferrule import Toolset
from ferrule.workspaces import Empty, Mounts, Repository, Source, Workspaces, own_mounts

FILES, FILE_BYTES = 4000, 50_000
ROUNDS, COPIES = 60, 3
MANY, AT_ONCE = 200, 8
MODEL = "gpt-5.5"
SHORT = {"cmd": "echo changed >> new; wc -l new"}
LONG = {"cmd": "exec sleep 600", "yield_time_ms": 250}


def main() -> None:
    """Print one line a row."""
    mounts = own_mounts()
    with tempfile.TemporaryDirectory(prefix="ferrule-bench-", dir="/var/tmp") as base:
        for line in asyncio.run(compare(Path(base), mounts)):
            print(line, flush=True)


async def compare(base: Path, mounts: Mounts) -> list[Row]:
    """The rows."""
    large = Repository(str(repository(base / "large", FILES)))
    small = Repository(str(repository(base / "small", 1)))
    async with Workspaces.open(base / "layers", mounts) as layers, Workspaces.open(base / "copies") as copies:
        assert not layers.notice, layers.notice
        works: list[Work] = [partial(entered, layers, source) for source in (large, small, Empty())]
        (of_large, of_small, of_none) = await in_turns(works, ROUNDS)
        (copied,) = await in_turns([partial(entered, copies, large)], COPIES)
        async with layers.enter(large) as workspace:
            (workspace.path / "d1/1").write_text("changed\n")
            (patched,) = await in_turns([workspace.patch], COPIES)
        idle, busy = await memory_of_many(layers, small)
    size = f"{FILES * FILE_BYTES // 10**6} MB"
    return [
        row(f"a workspace of {size} in a layer, floor an empty one", of_large, of_none, 1.2, "ms", 1e3),
        row("a workspace of one file in a layer, floor an empty one", of_small, of_none, 1.2, "ms", 1e3),
        row(f"a workspace of {size} in a copy, floor an empty layer", copied, of_none, None, "ms", 1e3),
        bounded(f"the patch of one file of {FILES:,}", patched, None, "ms", 1e3),
        bounded(f"{MANY} sandboxes open at once, each in a workspace where a command has run", idle, 1024, "MiB"),
        bounded(f"{MANY} in which a command still runs", busy, 700, "MiB"),
    ]


def repository(folder: Path, files: int) -> Path:
    """Make a repository with this many files of random bytes."""
    for number in range(files):
        file = folder / f"d{number % 100}/{number}"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(os.urandom(FILE_BYTES))
    who = ("-c", "user.name=bench", "-c", "user.email=bench@localhost")
    for words in (("init", "--quiet"), ("add", "."), (*who, "commit", "--quiet", "--message=all")):
        subprocess.run(["git", "-C", folder, *words], check=True)
    return folder


async def entered(workspaces: Workspaces, source: Source) -> None:
    """Enter a workspace and leave it."""
    async with workspaces.enter(source):
        pass


async def memory_of_many(workspaces: Workspaces, source: Source) -> list[float]:
    """MiB of all when each has run a command, and while each runs one: without one a sandbox ends, but for a few."""
    async with AsyncExitStack() as stack:

        async def opened(_: int) -> Toolset:
            workspace = await stack.enter_async_context(workspaces.enter(source))
            tools = Toolset.for_model(MODEL, cwd=str(workspace.path), sandbox="workspace-write")
            return await stack.enter_async_context(tools)

        many = [await opened(number) for number in range(MANY)]
        found = []
        for command in (SHORT, LONG):
            for start in range(0, MANY, AT_ONCE):
                said = await asyncio.gather(*(tools.call("exec_command", command) for tools in many[start:][:AT_ONCE]))
                assert all(("1 new" in one.text) == (command is SHORT) for one in said), said
            found.append(sum(map(proportional, descendants(os.getpid()))) / KIBIBYTES)
        return found


if __name__ == "__main__":
    main()
