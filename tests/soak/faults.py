"""What goes wrong: on the wire, and around a turn. To add a fault, write a function under its decorator."""

import asyncio
import os
import random
import signal
import subprocess
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ferrule.session.result import TurnResult
from ferrule.session.session import Session
from ferrule.testing import Failed, Item, RandomChunks, Stall, StreamError, defects, hang_up, http_error, raw, step
from ferrule.testing.steps import Raw, Step
from tests.soak.census import LASTING_PROGRAMS, processes
from tests.soak.disks import fill
from tests.soak.estate import git, make_repository
from tests.soak.strangers import churning
from tests.soak.workloads import Scene

IDLE_TIMEOUT_MS = 1000
"""How long the model's server may be silent before the client gives it up."""

WireFault = Callable[[random.Random, list[Item]], Step | Raw]
WIRE_FAULTS: dict[str, WireFault] = {}


def wire_fault(fault: WireFault) -> WireFault:
    """Register a way in which a response goes wrong. The model says the same again when it is asked again."""
    WIRE_FAULTS[fault.__name__] = fault
    return fault


@wire_fault
def dropped(rng: random.Random, items: list[Item]) -> Step | Raw:
    return step(*items, cut_after=rng.randrange(4000), chunks=RandomChunks(rng.randrange(1000)))


@wire_fault
def hung_up(rng: random.Random, items: list[Item]) -> Step | Raw:
    return hang_up()


@wire_fault
def rate_limited(rng: random.Random, items: list[Item]) -> Step | Raw:
    return http_error(429, "slow down", headers={"retry-after": rng.choice(["0", "0.3", "1"])})


@wire_fault
def server_error(rng: random.Random, items: list[Item]) -> Step | Raw:
    return http_error(rng.choice([500, 502, 503]), "oops", headers={"retry-after-ms": "100"})


@wire_fault
def garbage(rng: random.Random, items: list[Item]) -> Step | Raw:
    return raw(rng.choice([b"<html>proxy</html>", b"data: {\n\n", b"data: []\n\n", b"\xff\xfe\0", b""]))


@wire_fault
def unfinished(rng: random.Random, items: list[Item]) -> Step | Raw:
    return step(*items, end="missing")


@wire_fault
def failed(rng: random.Random, items: list[Item]) -> Step | Raw:
    return step(*items, end=rng.choice([Failed(), StreamError(), StreamError(nested=True)]))


@wire_fault
def broken_event(rng: random.Random, items: list[Item]) -> Step | Raw:
    return step(*items, edits=defects.insert('{"type": "response.outp', before="done"))


@wire_fault
def silent(rng: random.Random, items: list[Item]) -> Step | Raw:
    return step(*items, stall=Stall(at=rng.randrange(2000)))


def harmless(rng: random.Random, items: list[Item]) -> Step:
    """No fault, but not always all at once."""
    kind = rng.randrange(4)
    if kind == 0:
        return step(*items, chunks=RandomChunks(rng.randrange(1000), most=400))
    if kind == 1:
        return step(*items, stall=Stall(at=rng.randrange(2000), seconds=0.2))
    return step(*items, delta_chars=200)


@dataclass(frozen=True, slots=True)
class Trouble:
    """The turn that is struck. `scene.rng` is not used here: the turn's own course must not depend on timing.
    What a fault finds wrong goes to `scene.problems`."""

    scene: Scene
    session: Session
    turn: "asyncio.Task[TurnResult]"
    rng: random.Random

    async def moment(self) -> None:
        """Some time into the turn."""
        await asyncio.sleep(self.rng.expovariate(1 / 0.4))


TurnFault = Callable[[Trouble], Awaitable[object]]
TURN_FAULTS: dict[str, TurnFault] = {}
NEEDS_ROOT = {"full_disk"}
"""Faults of sessions that work on a small tmpfs of their own."""
NEEDS_PLACE = {"kill_server": "mcp", "kill_kernel": "js_repl", "kill_python": "python"}
"""Faults that want a tool in the turn."""
SHARED = {"kill_zygote"}
"""Faults that strike other sessions as well; every second round is without them, so that its outputs can be judged."""


def turn_fault(fault: TurnFault) -> TurnFault:
    """Register what happens beside a turn; it is cancelled when the turn has ended."""
    TURN_FAULTS[fault.__name__] = fault
    return fault


@turn_fault
async def interrupted(trouble: Trouble) -> None:
    """Also by a user who presses Ctrl-C more than once."""
    await trouble.moment()
    for _ in range(trouble.rng.randint(1, 3)):
        trouble.session.interrupt()
        await asyncio.sleep(trouble.rng.random() / 50)


@turn_fault
async def caller_cancelled(trouble: Trouble) -> None:
    await trouble.moment()
    for _ in range(trouble.rng.randint(1, 3)):
        trouble.turn.cancel()
        await asyncio.sleep(trouble.rng.random() / 50)


@turn_fault
async def closed_meanwhile(trouble: Trouble) -> None:
    await trouble.moment()
    await trouble.session.aclose()


@turn_fault
async def kill_zygote(trouble: Trouble) -> None:
    """Of any session, or a mother, or an init, or what holds a container: nobody sees from outside whose it is."""
    await _kill_again_and_again(trouble, lambda command, cwd: command == "ferrule")


@turn_fault
async def kill_server(trouble: Trouble) -> None:
    await _kill_again_and_again(trouble, lambda command, cwd: "mcp/stub.py" in command and cwd == trouble.scene.folder)


@turn_fault
async def kill_kernel(trouble: Trouble) -> None:
    await _kill_again_and_again(trouble, lambda command, cwd: "kernel.js" in command and cwd == trouble.scene.folder)


@turn_fault
async def kill_python(trouble: Trouble) -> None:
    await _kill_again_and_again(trouble, lambda command, cwd: " -I -u -c " in command and cwd == trouble.scene.folder)


@turn_fault
async def churned(trouble: Trouble) -> None:
    """Another program makes, changes, moves and deletes repositories in the workspace. Nobody may change its."""
    with churning(trouble.scene.folder / "churn", trouble.rng.randrange(1000), trouble.scene.problems):
        await asyncio.Event().wait()


@turn_fault
async def moved_away(trouble: Trouble) -> None:
    """Somebody moves a repository of the workspace, collects what it does not need, and takes its settings away."""
    folder = trouble.scene.folder / f"other{trouble.rng.randrange(10**6)}"
    try:
        await asyncio.to_thread(make_repository, folder)
    except (OSError, subprocess.CalledProcessError):  # a small disk has no space for it
        return
    while True:
        await trouble.moment()
        moved = folder.rename(folder.with_name(f"{folder.name}-moved"))
        await asyncio.to_thread(git, moved, "gc", "-q", "--prune=now", check=False)
        moved.rename(folder)
        await asyncio.to_thread(git, folder, "config", "soak.moved", "yes", check=False)


async def _kill_again_and_again(trouble: Trouble, matches: Callable[[str, Path], bool]) -> None:
    while True:
        await trouble.moment()
        found = await asyncio.to_thread(processes, trouble.scene.folder.parent, LASTING_PROGRAMS)
        targets = [one.pid for one in found if matches(one.command, Path(one.cwd)) and one.state != "Z"]
        if targets:
            with suppress(ProcessLookupError):
                os.kill(trouble.rng.choice(targets), signal.SIGKILL)


@turn_fault
async def full_disk(trouble: Trouble) -> None:
    """Fill the disk, and let it go when the turn has ended."""
    filler = trouble.scene.folder / "filler"
    try:
        while True:
            await trouble.moment()
            fill(filler)
            await trouble.moment()
            filler.unlink(missing_ok=True)
    finally:
        filler.unlink(missing_ok=True)
