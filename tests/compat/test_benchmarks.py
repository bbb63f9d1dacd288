"""The benchmarks print rows that the table can read; nothing is measured here."""

import asyncio
import importlib
from pathlib import Path

import pytest
from benchmarks.__main__ import HERE, table
from benchmarks.measure import Row, at_least, bounded, in_turns, row

PEERS = {"x": 1e-6, "y z": 2e-6}
ROWS = [
    (row("a (b): c", 3e-6, 1e-6, 4, peers=PEERS), "a (b): c | 3.00 us | 1.00 us | 3.00 | 4x | x 1.00 us, y z 2.00 us"),
    (row("a", 0.005, 0.001, 4, "ms", 1e3), "a | 5.00 ms | 1.00 ms | 5.00 | 4x; missed | "),
    (row("no aim", 2, 1, None, "s", 1), "no aim | 2.00 s | 1.00 s | 2.00 |  | "),
    (bounded("amount", 3, 2, "ms"), "amount | 3.00 ms |  |  | 2 ms; missed | "),
    (bounded("amount", 3, 4, "MB", floor=2), "amount | 3.00 MB | 2.00 MB | 1.50 | 4 MB | "),
    (bounded("figure", 3, None, "MiB", peers={"x": 9}), "figure | 3.00 MiB |  |  |  | x 9.00 MiB"),
    (at_least("rate", 1, 2, 0.7, "MB/s"), "rate | 1.00 MB/s | 2.00 MB/s | 0.50 | at least 0.7x; missed | "),
]


@pytest.mark.parametrize(("given", "line"), ROWS)
def test_a_row_in_the_table(given: Row, line: str) -> None:
    assert table([str(given), "something else that was printed"]) == [f"| {line} |"]


@pytest.mark.parametrize("path", sorted(HERE.glob("bench_*.py")), ids=lambda path: path.stem)
def test_every_benchmark_has_a_main_and_shared_rows(path: Path) -> None:
    module = importlib.import_module(f"benchmarks.{path.stem}")
    assert callable(module.main)
    assert "from benchmarks.measure import" in path.read_text()


def test_works_alternate_and_the_first_round_does_not_count() -> None:
    calls: list[str] = []
    now = iter([0, 100, 100, 300, 300, 301, 301, 303, 303, 306, 306, 310])

    async def second() -> None:
        calls.append("second")

    times = asyncio.run(in_turns([lambda: calls.append("first"), second], 2, 1, lambda: float(next(now))))
    assert calls == ["first", "second"] * 3
    assert times == [2, 3]
