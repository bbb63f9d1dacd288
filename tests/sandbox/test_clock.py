"""The wall clock is set while a command runs. A stand-in sets ours: nobody sets the machine's, which stamps files."""

import mmap
import os
import subprocess
import time
from pathlib import Path

import pytest

from ferrule.sandbox.plan import ConfinementPlan, Root
from ferrule.sandbox.protection import Protection
from ferrule.sandbox.repositories import STAMP_LAG_NS

HOUR = 3_600_000_000_000
TRIES = 20
"""The kernel may write a page back at any moment: the next write then gets a new stamp after all."""


class Clock:
    """`ahead`: ns by which the clock is wrong until it is set right."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead = 0
        right = time.time_ns
        monkeypatch.setattr(time, "time_ns", lambda: right() + self.ahead)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


@pytest.fixture
def protection(home: Path, workspace: Path) -> Protection:
    return Protection(ConfinementPlan((Root(str(workspace)),)), home)


def make(workspace: Path) -> None:
    subprocess.run(["git", "init", "-q", "sub"], cwd=workspace, check=True)


@pytest.mark.parametrize("ahead", [HOUR, -HOUR])
async def test_attack_the_clock_is_set_before_the_command_makes_a_repository(
    protection: Protection, workspace: Path, clock: Clock, ahead: int
) -> None:
    await protection.look()
    clock.ahead = ahead
    await protection.began()
    clock.ahead = 0
    make(workspace)
    await protection.ended()
    assert protection.boundary.own == (f"{workspace}/sub/.git",)


@pytest.mark.parametrize("ahead", [HOUR, -HOUR])
async def test_attack_the_clock_is_set_after_the_command_made_a_repository(
    protection: Protection, workspace: Path, clock: Clock, ahead: int
) -> None:
    await protection.look()
    await protection.began()
    make(workspace)
    clock.ahead = ahead
    await protection.ended()
    assert protection.boundary.own == (f"{workspace}/sub/.git",)


@pytest.mark.parametrize("ahead", [HOUR, -HOUR])
async def test_attack_what_the_user_made_before_the_clock_was_set_stays_theirs(
    protection: Protection, workspace: Path, clock: Clock, ahead: int
) -> None:
    """Also where its birth would lie within the command's time: it was seen when none ran."""
    clock.ahead = ahead
    make(workspace)
    await protection.began()
    clock.ahead = 0
    await protection.ended()
    assert protection.boundary.own == ()


async def test_attack_a_write_without_a_new_time_stamp_after_the_clock_was_set_back(
    protection: Protection, workspace: Path, clock: Clock
) -> None:
    """A change time that lies before the command's start says nothing, once the clock was set back in between."""
    make(workspace)
    await protection.hold()
    clock.ahead = HOUR
    await protection.began()
    clock.ahead = 0
    path = workspace / "sub/.git/config"
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        for number in range(TRIES):
            mapped[:1] = mapped[:1]
            assert protection._held is not None
            protection._held.changes()
            stamp = os.stat(path).st_ctime_ns
            while time.time_ns() < stamp + 2 * STAMP_LAG_NS:
                time.sleep(0.001)  # noqa: ASYNC251
            mapped[:6] = b"[x%03d]" % number
            if os.stat(path).st_ctime_ns == stamp:
                break
    assert os.stat(path).st_ctime_ns == stamp
    (told,) = await protection.ended()
    assert f"{path}" in told
    await protection.finish()
