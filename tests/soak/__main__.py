"""Runs rounds of conversations until the time is over; after each, nothing may be left. See docs/soak.md."""

import argparse
import asyncio
import importlib.util
import os
import secrets
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from itertools import count
from pathlib import Path

from tests.soak.census import growth_per_session
from tests.soak.plan import ROUND, offer
from tests.soak.rounds import Round, Stage

LARGEST_GROWTH = 32 * 1024
"""Bytes of memory that a session may leave on average, measured in the later half: below it is fragmentation."""
FEWEST_SESSIONS = 200
"""In an hour."""
JUDGED_SESSIONS, JUDGED_RESPONSES = 500, 300
"""From which on growth is judged: before, what is made once hides it."""


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="scripts/soak", description="Many sessions under faults; nothing may be left."
    )
    parser.add_argument("--minutes", type=float, default=60, help="how long at least (default: 60)")
    parser.add_argument("--sessions", type=int, help="how many sessions at least (default: 200 in an hour)")
    parser.add_argument("--seed", default=secrets.token_hex(3), help="what the sessions are drawn from")
    parser.add_argument("--replay", metavar="FIRST-LAST", help="only these sessions, in one round after a first one")
    given = parser.parse_args(argv)
    if given.sessions is None:
        given.sessions = round(min(given.minutes / 60, 1) * FEWEST_SESSIONS)
    return given


async def soak(given: argparse.Namespace, stage: Stage) -> int:
    """Run rounds; returns how many problems there were."""
    started, samples, problems = time.monotonic(), [], 0
    replayed = [range(int(a), int(b or a) + 1) for a, _, b in [given.replay.partition("-")]] if given.replay else None
    for number in count():
        numbers = range(number * ROUND, (number + 1) * ROUND)
        if replayed and number:
            numbers = replayed.pop()
        done = await Round(stage, numbers).run(warm=number == 0)
        samples.append((done.sessions_so_far, done.resident))
        print(f"{time.monotonic() - started:6.0f} s  {done}", flush=True)
        for problem, times in Counter(done.problems).items():
            print(f"  ! {problem}" + (f" ({times} times)" if times > 1 else ""))
        if done.problems:
            print(f"    again: scripts/soak --seed {given.seed} --replay {numbers[0]}-{numbers[-1]}", flush=True)
        problems += len(done.problems)
        enough = time.monotonic() - started >= given.minutes * 60 and stage.sessions >= given.sessions
        if (number and replayed == []) or (replayed is None and enough):
            break
    at_end = await asyncio.to_thread(stage.end)
    print("".join(f"  ! {problem}\n" for problem in at_end), end="")
    problems += len(at_end) + _grown(stage)
    print(f"FERRULE_HOME has {_kept(stage.household.home)} bytes")
    growth = growth_per_session(samples)
    print(f"{stage.sessions} sessions, {stage.totals()}; {growth / 1024:.1f} KiB of memory a session")
    if stage.sessions >= JUDGED_SESSIONS and growth > LARGEST_GROWTH:
        print(f"  ! memory grows: {samples}")
        problems += 1
    return problems


def _kept(home: Path) -> str:
    """What FERRULE_HOME holds at the end, in bytes."""
    sizes = {
        entry.name: sum(file.lstat().st_size for file in (entry, *entry.rglob("*")) if not file.is_dir())
        for entry in sorted(home.iterdir())
    }
    return ", ".join(f"{name} {size}" for name, size in sizes.items())


def _grown(stage: Stage) -> int:
    """Judge the memory of the gateway: by the oldest life of a server, as that of this process."""
    oldest = max(stage.service.lives, key=len)
    growth = growth_per_session(oldest)
    print(f"the gateway: {stage.service.asked} responses; {growth / 1024:.1f} KiB of memory a response, {oldest}")
    if oldest[-1][0] - oldest[0][0] >= JUDGED_RESPONSES and growth > LARGEST_GROWTH:
        print("  ! the memory of the gateway grows")
        return 1
    return 0


def main(argv: Sequence[str]) -> int:
    """The command: 0 if nothing was wrong."""
    given = arguments(argv)
    # Started in the background of a script it is ignored, and so it would be by every unconfined command.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    can = offer(
        root=os.geteuid() == 0,
        node=shutil.which("node") is not None,
        mcp=importlib.util.find_spec("mcp") is not None,
    )
    print(f"seed {given.seed}; at least {given.minutes:g} minutes and {given.sessions} sessions")
    if can.missing:
        print(f"{len(can.missing)} left out, for want of a tool or of rights: {', '.join(can.missing)}")
    root = Path(tempfile.mkdtemp(prefix="ferrule-soak-", dir="/var/tmp")).resolve()  # /tmp would be a writable root
    with closing(Stage(root, given.seed, can)) as stage:
        problems = asyncio.run(soak(given, stage))
    print(f"{problems} problems, seed {given.seed}" if problems else "nothing left over, every history valid")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
