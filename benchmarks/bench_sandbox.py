"""Spawning `true` confined: ours beside `posix_spawn`, and beside `bwrap` with the same rights and `codex sandbox`
where they are installed.

As root the run has real-time priority, and its files lie in memory, so that other programs on the machine disturb no
side. Memory is what `smaps_rollup` says of an idle zygote.
"""

import asyncio
import os
import shutil
import subprocess
import tempfile
import time
from functools import partial
from pathlib import Path

from benchmarks.headless import environment
from benchmarks.measure import Row, Work, bounded, in_turns, row, undisturbed
from ferrule.process.launcher import Launcher, LaunchError, Limits, Pipes
from ferrule.sandbox.boundary import boundary_of
from ferrule.sandbox.linux import kernel
from ferrule.sandbox.linux.bwrap import BwrapLauncher
from ferrule.sandbox.linux.mount_table import RootMounts
from ferrule.sandbox.plan import ConfinementPlan, Root
from ferrule.sandbox.pool import Pool, ZygoteKey, ZygoteLauncher, pool_of_this_loop
from ferrule.sandbox.protection import Protection
from ferrule.sandbox.sandbox import Sandbox
from ferrule.workspaces import own_mounts

ROUNDS = 150
PEER_ROUNDS = 15
REPOSITORIES = 100
TEMPORARY = 1000
PAUSE = 0.02
"""Seconds between two commands, in which spares are made."""
ENV = {"PATH": "/usr/bin:/bin"}
KIBIBYTES = 1024


def main() -> None:
    """Print one line a row."""
    undisturbed()
    in_memory = os.getuid() == 0 and not own_mounts().problem
    with tempfile.TemporaryDirectory(prefix="ferrule-bench-", dir="/var/tmp") as base:
        if in_memory:
            kernel.mount(b"tmpfs", os.fsencode(base), b"tmpfs")
        for line in asyncio.run(compare(Path(base))):
            print(line, flush=True)
        if in_memory:
            kernel.unmount(os.fsencode(base))


async def compare(base: Path) -> list[Row]:
    """The rows."""
    (base / "ws" / ".git").mkdir(parents=True)
    plan = ConfinementPlan((Root("/tmp", reserve=False), Root(str(base / "ws"))))
    pool = pool_of_this_loop()
    key = ZygoteKey(plan, base / "state", mounts=RootMounts(plan.roots).current())
    started = time.perf_counter()
    launcher = ZygoteLauncher(pool, key, lambda: boundary_of(plan).covers)
    opened = time.perf_counter()
    await launcher.ready()
    ready = time.perf_counter()
    cwd = str(base / "ws")
    ours: dict[str, Work] = {
        "warm": lambda: spawn(launcher, cwd),
        "cold": lambda: spawn_cold(pool, key, launcher, cwd),
    }
    times = await beside_peers(ours, plan, base)
    memory, spares = await asyncio.to_thread(zygotes), pool.spares
    beside = await beside_repositories(pool, base)
    sessions = await whole_commands(base)
    await launcher.close()
    return [
        bounded("opening a sandbox, until it returns", opened - started, 5, "ms", 1e3),
        bounded("opening a sandbox, until it is ready", ready - started, None, "ms", 1e3),
        *spawns(times),
        row(
            f"spawn true confined, warm, {REPOSITORIES} repositories below a root, floor without them",
            beside,
            times["warm"],
            None,
            "ms",
            1e3,
        ),
        row(
            f"a session's command, {TEMPORARY} repositories below /tmp, floor without them",
            sessions["many"],
            sessions["none"],
            1.1,
            "ms",
            1e3,
        ),
        *(bounded(f"idle zygote with {spares} spares", size, 5, "MiB") for size in memory),
    ]


async def beside_peers(ours: dict[str, Work], plan: ConfinementPlan, base: Path) -> dict[str, float]:
    """The seconds of our spawns, and of those of whoever is here."""
    cwd = str(base / "ws")
    works: dict[str, Work] = {"posix_spawn": spawn_plainly, **ours}
    bwrap = bubblewrap(plan, base)
    if bwrap is not None:
        words = bwrap.words(["/bin/true"], cwd, [cover for cover in boundary_of(plan).covers if cover.kind != "empty"])
        works["bwrap"] = partial(run, without_descriptors(words), ENV)
    times = dict(zip(works, await in_turns([*works.values()], ROUNDS, pause=PAUSE), strict=True))
    if bwrap is not None:
        await bwrap.close()
    if codex := shutil.which("codex"):
        words = [codex, "sandbox", "-P", ":workspace", "-C", cwd, "--", "/bin/true"]
        [times["codex"]] = await in_turns([partial(run, words, environment(base))], PEER_ROUNDS)
    return times


def spawns(times: dict[str, float]) -> list[Row]:
    """The rows of `true`."""
    floor, warm, cold = (times[name] for name in ("posix_spawn", "warm", "cold"))
    peers = {name: spent for name, spent in times.items() if name in ("bwrap", "codex")}
    aim = peers["bwrap"] / floor if "bwrap" in peers else None
    return [
        row("spawn true confined, warm, floor posix_spawn", warm, floor, 2.5, "ms", 1e3, peers),
        row("spawn true confined, cold, no worse than bwrap", cold, floor, aim, "ms", 1e3, peers),
    ]


async def beside_repositories(pool: Pool, base: Path) -> float:
    """Seconds of a warm spawn where each of many repositories is protected."""
    repositories = [base / "many" / str(number) / ".git" for number in range(REPOSITORIES)]
    for folder in repositories:
        folder.mkdir(parents=True)
    plan = ConfinementPlan((Root(str(base / "many")),))
    boundary = boundary_of(plan, map(str, repositories))
    launcher = ZygoteLauncher(pool, ZygoteKey(plan, base / "other"), lambda: boundary.covers)
    await launcher.ready()
    [spent] = await in_turns([lambda: spawn(launcher, str(base / "many"))], ROUNDS // 5, pause=PAUSE)
    await launcher.close()
    return spent


async def whole_commands(base: Path) -> dict[str, float]:
    """Seconds of `true` in a session, with the looks before and after it: temporary folder empty, and full."""
    sandboxes = {}
    for name in ("none", "many"):
        temporary, workspace = base / f"tmp-{name}", base / f"ws-{name}"
        for number in range(TEMPORARY if name == "many" else 0):
            (temporary / str(number) / ".git/objects").mkdir(parents=True)
        temporary.mkdir(exist_ok=True)
        workspace.mkdir()
        roots = (Root(str(temporary), reserve=False, scan=False), Root(str(workspace)))
        sandboxes[name] = Sandbox(Protection(ConfinementPlan(roots), base / f"home-{name}"))
        await sandboxes[name].level()
    works = [partial(spawn, sandbox, str(base / f"ws-{name}")) for name, sandbox in sandboxes.items()]
    times = await in_turns(works, ROUNDS // 2, pause=PAUSE)
    for sandbox in sandboxes.values():
        await sandbox.close()
    return dict(zip(sandboxes, times, strict=True))


def bubblewrap(plan: ConfinementPlan, base: Path) -> BwrapLauncher | None:
    """The same rights by `bwrap`; None where it is not installed."""
    try:
        return BwrapLauncher(plan, base / "state")
    except LaunchError:
        return None


def spawn_plainly() -> None:
    """The floor."""
    run(["/bin/true"], ENV)


def without_descriptors(words: list[str]) -> list[str]:
    """The command line without what bwrap reads from descriptors (variables and filter): a plain start has none."""
    kept = list(words)
    for option in ("--args", "--seccomp"):
        place = kept.index(option)
        del kept[place : place + 2]
    return kept


def run(words: list[str], env: dict[str, str]) -> None:
    """Without any launcher around it."""
    pid = os.posix_spawn(words[0], words, env)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


async def spawn(launcher: Launcher, cwd: str) -> None:
    child = await launcher.launch(["/bin/true"], ENV, cwd, Pipes(merge=True), Limits())
    status = await child.wait()
    assert status.code == 0
    await child.leftovers(False)
    os.close(child.stdout)


async def spawn_cold(pool: Pool, key: ZygoteKey, launcher: Launcher, cwd: str) -> None:
    """No spare is there: the init is made while we wait."""
    pool.drop_spares(key)
    await spawn(launcher, cwd)


def zygotes() -> list[float]:
    """Mebibytes (PSS) of each."""
    mother = subprocess.run(
        ["pgrep", "-P", str(os.getpid()), "-x", "ferrule"], capture_output=True, text=True, check=True
    ).stdout.strip()
    found = Path(f"/proc/{mother}/task/{mother}/children").read_text().split()
    texts = [Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in found]
    return [int(text.split("Pss:")[1].split()[0]) / KIBIBYTES for text in texts]


if __name__ == "__main__":
    main()
