"""What the benchmarks share: works measured in turns, and the one form of a row.

A row is one line: `NAME: ours 9.1 us, floor 2.5 us, ratio 3.64 (aim 4x); peer openai-agents 26 us`. Its aim is a ratio
to the floor (`4x`, `at least 0.7x`) or an amount (`15 us`); a row without an aim only shows a figure.
"""

import asyncio
import gc
import importlib.util
import os
import re
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import CoroutineType

Work = Callable[[], object]
"""What is measured: a plain function, or one that returns a coroutine."""

Sample = Callable[[], Awaitable[float]]
"""Something that measures itself once, in any unit."""


async def medians(samples: Sequence[Sample], rounds: int, pause: float = 0) -> list[float]:
    """The median of each sample. They alternate, so a drift of the machine meets all; the first round does not count.
    `pause`: seconds before each."""
    taken: list[list[float]] = [[] for _ in samples]
    gc.collect()
    for _ in range(rounds + 1):
        for sample, kept in zip(samples, taken, strict=True):
            await asyncio.sleep(pause)
            kept.append(await sample())
    return [statistics.median(kept[1:]) for kept in taken]


async def in_turns(
    works: Sequence[Work],
    rounds: int,
    repeat: int = 1,
    clock: Callable[[], float] = time.perf_counter,
    pause: float = 0,
) -> list[float]:
    """Median seconds of one call of each work. `time.process_time` as the clock suits a work that never waits: what
    else runs on the machine does not count."""
    return await medians([partial(_sample, work, repeat, clock) for work in works], rounds, pause)


async def _sample(work: Work, repeat: int, clock: Callable[[], float]) -> float:
    started = clock()
    for _ in range(repeat):
        done = work()
        if type(done) is CoroutineType:
            await done
    return (clock() - started) / repeat


def cpu_in_turns(works: Sequence[Work], rounds: int, repeat: int = 1) -> list[float]:
    """Median seconds of CPU time of one call of each plain work."""
    return asyncio.run(in_turns(works, rounds, repeat, time.process_time))


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table; the figures are in `unit`."""

    name: str
    ours: float
    unit: str
    floor: float | None = None
    aim: str = ""
    missed: bool = False
    peers: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        line = f"{self.name}: ours {self.ours:.2f} {self.unit}"
        if self.floor is not None:
            line += f", floor {self.floor:.2f} {self.unit}, ratio {self.ours / self.floor:.2f}"
        if self.aim:
            line += f" (aim {self.aim})" + " MISSED" * self.missed
        return line + "".join(f"; peer {name} {figure:.2f} {self.unit}" for name, figure in self.peers.items())


def row(
    name: str,
    ours: float,
    floor: float,
    aim: float | None,
    unit: str = "us",
    scale: float = 1e6,
    peers: Mapping[str, float] | None = None,
) -> Row:
    """A row whose aim is a ratio: at most `aim` times the floor. `scale` makes the unit of the figures given."""
    missed = aim is not None and ours > aim * floor
    return Row(
        name, ours * scale, unit, floor * scale, "" if aim is None else f"{aim:.3g}x", missed, _scaled(peers, scale)
    )


def at_least(name: str, ours: float, floor: float, aim: float, unit: str) -> Row:
    """A row of a rate: at least `aim` times the floor's."""
    return Row(name, ours, unit, floor, f"at least {aim:g}x", ours < aim * floor)


def bounded(
    name: str,
    value: float,
    limit: float | None,
    unit: str,
    scale: float = 1,
    floor: float | None = None,
    peers: Mapping[str, float] | None = None,
) -> Row:
    """A row whose aim is an amount: at most `limit`, which is in `unit` already."""
    ours = value * scale
    missed = limit is not None and ours > limit
    least = None if floor is None else floor * scale
    return Row(name, ours, unit, least, "" if limit is None else f"{limit:g} {unit}", missed, _scaled(peers, scale))


def _scaled(peers: Mapping[str, float] | None, scale: float) -> dict[str, float]:
    return {name: figure * scale for name, figure in (peers or {}).items()}


def undisturbed() -> None:
    """Take real-time priority, also for what is started from now on, so that other programs on the machine disturb no
    side; as root only."""
    if os.getuid() == 0:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))


def is_installed(module: str) -> bool:
    """Whether a peer is there to be measured: `scripts/bench --peers` installs them."""
    return importlib.util.find_spec(module) is not None


LINE = re.compile(
    r"(?P<name>.+?): ours (?P<ours>[^,(;]+?)(, floor (?P<floor>[^,]+), ratio (?P<ratio>[\d.]+))?"
    r"( \(aim (?P<aim>[^)]+)\)(?P<missed> MISSED)?)?(?P<peers>(; peer [^;]+)*)"
)
"""A printed row, taken apart again."""
