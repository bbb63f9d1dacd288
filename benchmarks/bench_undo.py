"""Snapshots of a workspace of 10,000 files: the first, the second, and the look after a turn.

The floor is `os.walk` with a stat of each file: what any program does that looks for changes.
"""

import asyncio
import os
import tempfile
from pathlib import Path
from threading import Event

from benchmarks.measure import in_turns, row
from ferrule.undo.snapshots import Bounds, Snapshots

FILES = 10_000
IGNORED = [
    "node_modules/",
    "*.py[cod]",
    "__pycache__/",
    "/build/",
    "dist/",
    "*.egg-info",
    ".venv/",
    "*.log",
    "!keep.log",
]
BOUNDS = Bounds(bytes=1 << 30, files=100_000, seconds=120)
SETTLED = 0.2
"""Seconds after which the files are no longer so new that they are read again."""


def main() -> None:
    """Print one line a row."""
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(rows(Path(folder)))


def corpus(root: Path) -> None:
    """Make a repository's files, without a repository."""
    root.mkdir()
    (root / ".gitignore").write_text("\n".join(IGNORED))
    for number in range(FILES):
        path = root / f"package{number % 20}" / f"module{number % 400}" / f"file{number}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"print({number})\n" * 100)


async def rows(folder: Path) -> None:
    """Measure and print."""
    root = folder / "work"
    corpus(root)
    await asyncio.sleep(SETTLED)
    homes = iter(range(1000))
    kept = Snapshots(str(folder / "kept"), str(root), BOUNDS)
    kept.take(Event())

    async def floor() -> None:
        found = 0
        for path, folders, files in os.walk(root):
            for name in (*folders, *files):
                os.lstat(f"{path}/{name}")
                found += 1
        assert found > FILES

    async def first() -> None:
        made = Snapshots(str(folder / f"home{next(homes)}"), str(root), BOUNDS)
        made.take(Event())
        made.close()

    async def again() -> None:
        kept.take(Event())

    async def after() -> None:
        assert kept.compare(Event()) == []

    for name, work, rounds, aim in (
        ("first snapshot of 10,000 files over os.walk and lstat", first, 5, 15),
        ("second snapshot, nothing changed", again, 11, 5),
        ("look after a turn, nothing changed", after, 11, 2.5),
    ):
        ours, least = await in_turns([work, floor], rounds)
        print(row(name, ours, least, aim, "ms", 1e3))
    kept.close()


if __name__ == "__main__":
    main()
