"""Tools that look: searching 20,000 files, 100 lines deep in a gigabyte, a tree of 100,000 entries.

    python -m benchmarks.bench_files [FOLDER]

The corpus (about 1.2 GB) is made in FOLDER once and used again, else in a temporary folder.
"""

import asyncio
import os
import random
import resource
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from benchmarks.measure import Row, Work, bounded, in_turns, row
from ferrule import Toolset
from ferrule.builtin.searching.ripgrep import find_ripgrep

FILES = 20_000
LARGE_LINES = 10_500_000
LARGE_LINE = b"%09d a line of a log that is about as long as lines are, with some words and 4 numbers: 1 2 3 4\n"
ENTRIES = 100_000


def main() -> None:
    """Print one line a row."""
    if len(sys.argv) > 1:
        corpus(Path(sys.argv[1]))
        asyncio.run(rows(Path(sys.argv[1])))
        return
    with tempfile.TemporaryDirectory() as folder:
        corpus(Path(folder))
        asyncio.run(rows(Path(folder)))


def corpus(folder: Path) -> None:
    """Make what is not there yet."""
    if not (folder / "tree").exists():
        _tree(folder / "tree")
    if not (folder / "large.log").exists():
        with (folder / "large.log").open("wb") as file:
            for start in range(0, LARGE_LINES, 10_000):
                file.write(b"".join(LARGE_LINE % number for number in range(start, start + 10_000)))
    if not (folder / "wide").exists():
        _wide(folder / "wide")


def _tree(folder: Path) -> None:
    rnd = random.Random(1)
    words = ["".join(rnd.choices("abcdefghijklmnopqrstuvwxyz", k=rnd.randint(2, 9))) for _ in range(3000)]
    for number in range(FILES):
        path = folder / f"package{number % 20}" / f"module{number % 400}" / f"file{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = [" ".join(rnd.choices(words, k=8)) for _ in range(rnd.randint(20, 200))]
        lines += ["common_word"] * (rnd.random() < 0.6) + ["rare_needle"] * (rnd.random() < 0.001)
        path.write_text("\n".join(lines) + "\n")


def _wide(folder: Path) -> None:
    """Five levels; ten folders in each but the last, the rest files."""
    folders = [folder]
    for _ in range(3):
        folders = [below / f"folder{number}" for below in folders for number in range(10)]
    for below in folders:
        below.mkdir(parents=True)
        for number in range(ENTRIES // len(folders)):
            (below / f"file{number}").touch()


async def rows(folder: Path) -> None:
    """Measure and print."""
    ripgrep = find_ripgrep(os.environ).path
    for sandbox in ("danger-full-access", "workspace-write"):
        async with Toolset.for_model("gpt-5.5", cwd=folder, sandbox=sandbox, tools=["grep_files"]) as tools:
            for pattern in ("rare_needle", "common_word"):
                arguments = {"pattern": pattern, "path": str(folder / "tree"), "limit": 2000}
                ours = call(tools, "grep_files", **arguments)
                floor = command(ripgrep or "rg", "-l", pattern, str(folder / "tree"))
                print(await ratio(f"grep_files {pattern}, {sandbox}, over rg -l", ours, floor, 15, 1.25))
    async with Toolset.for_model("gpt-5.5", cwd=folder, tools=["read_file", "list_dir"]) as tools:
        await read_row(tools, str(folder / "large.log"))
        await list_rows(tools, str(folder / "wide"))


async def read_row(tools: Toolset, path: str) -> None:
    """100 lines at line 5,000,000; `sed` quits after them."""
    ours = call(tools, "read_file", file_path=path, offset=5_000_000, limit=100)
    floor = command("sed", "-n", "5000000,5000099p;5000099q", path)
    await call(tools, "read_file", file_path=path, offset=5_000_000, limit=100)()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(await ratio("read_file at line 5,000,000 over sed -n", ours, floor, 5, 1.2))
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    print(bounded("read_file, growth of memory", grown, 5, "MB"))


async def list_rows(tools: Toolset, path: str) -> None:
    """The first page, and the last, for which the whole tree is read."""

    async def floor() -> int:
        return _scan(path)

    for name, offset in (("first", 1), ("last", ENTRIES)):
        ours = call(tools, "list_dir", dir_path=path, depth=5, offset=offset, limit=100)
        print(await ratio(f"list_dir, {name} page of 100,000 entries over os.scandir", ours, floor, 7, 2))


async def ratio(name: str, ours: Work, floor: Work, rounds: int, aim: float) -> Row:
    """Both measured in turns, in milliseconds."""
    mine, least = await in_turns([ours, floor], rounds)
    return row(name, mine, least, aim, "ms", 1e3)


def _scan(path: str) -> int:
    count = 0
    with os.scandir(path) as entries:
        for entry in entries:
            count += 1
            if entry.is_dir(follow_symlinks=False):
                count += _scan(entry.path)
    return count


def call(tools: Toolset, name: str, **arguments: object) -> Callable[[], Awaitable[None]]:
    """One call of a tool, checked."""
    raw = msgspec.json.encode(arguments).decode()
    item = {"type": "function_call", "call_id": "1", "name": name, "arguments": raw}

    async def work() -> None:
        (answer,) = await tools.run([item])
        assert "/" in str(answer["output"]) or "L5000000: " in str(answer["output"]), answer

    return work


def command(*argv: str) -> Work:
    """A process whose output is read."""

    async def work() -> None:
        process = await asyncio.create_subprocess_exec(*argv, stdout=asyncio.subprocess.PIPE)
        output, _ = await process.communicate()
        assert output

    return work


if __name__ == "__main__":
    main()
