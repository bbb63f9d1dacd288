"""Row "spawn `true` confined": ours beside `posix_spawn`, and beside `bwrap` with the same rights if it is there.

    python benchmarks/bench_sandbox.py [ROUNDS]

Every round runs each contestant once, in turn. As root the run has real-time priority, so that other programs on the
machine disturb neither side. Figures are medians; memory is what `smaps_rollup` says of an idle zygote.
"""

import asyncio
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from ferrule.process.launcher import Launcher, LaunchError, Limits, Pipes
from ferrule.sandbox.linux.bwrap import BwrapLauncher
from ferrule.sandbox.plan import ConfinementPlan, Root
from ferrule.sandbox.pool import Pool, ZygoteKey, ZygoteLauncher, pool_of_this_loop
from ferrule.sandbox.protect import covers_of

ROUNDS = 150
PAUSE = 0.02
"""Seconds between two commands, in which spares are made."""
ENV = {"PATH": "/usr/bin:/bin"}
MEGABYTE = 1024


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    if os.getuid() == 0:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    asyncio.run(compare(rounds))


async def compare(rounds: int) -> None:
    base = Path(tempfile.mkdtemp(prefix="ferrule-bench-", dir="/var/tmp"))
    try:
        (base / "ws" / ".git").mkdir(parents=True)
        plan = ConfinementPlan((Root("/tmp", reserve=False), Root(str(base / "ws"))))
        pool = pool_of_this_loop()
        key = ZygoteKey(plan, base / "state")
        started = time.perf_counter()
        warm = ZygoteLauncher(pool, key)
        opened = time.perf_counter()
        await warm.ready()
        print(f"sandbox start: opening returns after {1e3 * (opened - started):.1f} ms, ready after ", end="")
        print(f"{1e3 * (time.perf_counter() - started):.0f} ms")
        cwd = str(base / "ws")
        contestants: dict[str, Callable[[], Awaitable[None]]] = {
            "posix_spawn": spawn_plainly,
            "warm": lambda: spawn(warm, cwd),
            "cold": lambda: spawn_cold(pool, key, warm, cwd),
        }
        try:
            bwrap = BwrapLauncher(plan, base / "state", ())
            words = bwrap.words(["/bin/true"], cwd, [cover for cover in covers_of(plan) if cover.kind != "empty"])
            contestants["bwrap"] = lambda: spawn_bwrap(words)
        except LaunchError:
            bwrap = None
        times = await measure(contestants, rounds)
        report(times)
        print_memory(await asyncio.to_thread(zygotes), pool.spares)
        await warm.close()
        if bwrap is not None:
            await bwrap.close()
    finally:
        shutil.rmtree(base)


async def measure(contestants: dict[str, Callable[[], Awaitable[None]]], rounds: int) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, contestant in contestants.items():
            await asyncio.sleep(PAUSE)
            started = time.perf_counter()
            await contestant()
            times[name].append(time.perf_counter() - started)
    return {name: 1e3 * statistics.median(one) for name, one in times.items()}


async def spawn_plainly() -> None:
    wait(os.posix_spawn("/bin/true", ["true"], ENV))  # noqa: ASYNC221


def wait(pid: int) -> None:
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


async def spawn_bwrap(words: list[str]) -> None:
    """Without our launcher around it."""
    wait(os.posix_spawn(words[0], words, ENV))  # noqa: ASYNC221


async def spawn(launcher: Launcher, cwd: str) -> None:
    child = await launcher.launch(["/bin/true"], ENV, cwd, Pipes(merge=True), Limits())
    status = await child.wait()
    assert status.code == 0
    os.close(child.stdout)


async def spawn_cold(pool: Pool, key: ZygoteKey, launcher: Launcher, cwd: str) -> None:
    """No spare is there: the init is made while we wait."""
    pool.drop_spares(key)
    await spawn(launcher, cwd)


def report(times: dict[str, float]) -> None:
    floor = times["posix_spawn"]
    rows = [("warm", "posix_spawn", "3"), ("cold", "posix_spawn", "no worse than bwrap")]
    if "bwrap" in times:
        rows += [("bwrap", "posix_spawn", "peer"), ("cold", "bwrap", "1")]
    for name, other, aim in rows:
        print(
            f"spawn true confined, {name}: ours {times[name]:.2f} ms, {other} {times[other]:.2f} ms, "
            f"ratio {times[name] / times[other]:.2f} (aim {aim})"
        )
    assert floor > 0


def zygotes() -> list[str]:
    return subprocess.run(
        ["pgrep", "-P", str(os.getpid()), "-f", "linux.zygote"], capture_output=True, text=True, check=True
    ).stdout.split()


def print_memory(pids: list[str], spares: int) -> None:
    for pid in pids:
        fields = dict(line.split()[:2] for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
        pss, private = int(fields["Pss:"]) / MEGABYTE, int(fields["Private_Dirty:"]) / MEGABYTE
        print(f"idle zygote: {pss:.1f} MiB PSS (aim 5), {private:.1f} MiB of it private; {spares} spares")


if __name__ == "__main__":
    main()
