"""What the benchmarks share: works measured in turns, and one line a row."""

import gc
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence

Work = Callable[[], Awaitable[object]]


async def in_turns(works: Sequence[Work], rounds: int, repeat: int = 1) -> list[float]:
    """Median seconds of one call of each work; the works alternate, so that a drift of the machine meets all."""
    times: list[list[float]] = [[] for _ in works]
    gc.collect()
    for _ in range(rounds):
        for spent, work in zip(times, works, strict=True):
            started = time.perf_counter()
            for _ in range(repeat):
                await work()
            spent.append((time.perf_counter() - started) / repeat)
    return [statistics.median(spent) for spent in times]


def row(name: str, ours: float, floor: float, aim: float, unit: str = "us", scale: float = 1e6) -> str:
    """One row: ours, its floor, the ratio, and the ratio that we aim at."""
    ratio = ours / floor
    verdict = "" if ratio <= aim else "  <-- above the aim"
    figures = f"ours {ours * scale:.2f} {unit}, floor {floor * scale:.2f} {unit}, ratio {ratio:.2f}"
    return f"{name}: {figures} (aim {aim:g}){verdict}"


def bounded(name: str, value: float, limit: float, unit: str) -> str:
    """One row that has an absolute limit."""
    verdict = "" if value <= limit else "  <-- above the limit"
    return f"{name}: {value:.2f} {unit} (limit {limit:g}){verdict}"
