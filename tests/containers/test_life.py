"""The life of a container: found by its id, expired, taken over by the next process, removed."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from threading import Thread

import pytest

from ferrule.containers import (
    Container,
    ContainerError,
    ContainerExpired,
    ContainerSettings,
    HostLimits,
    LocalHost,
    UnknownContainer,
)
from ferrule.containers.languages import languages_of
from ferrule.containers.notices import RESTARTED
from ferrule.containers.place import LOCK, PREFIX, Slot, new_slot, on_disk, sweep, take_slot
from ferrule.locks import try_lock
from ferrule.process.launcher import LaunchError, Limits, Pipes
from tests.containers.leftovers import leftovers
from tests.processes import alive, children, running, until
from tests.sandbox.test_death import SECONDS, inits_of

OTHER = """
import asyncio, sys
from pathlib import Path
from ferrule.containers import ContainerSettings, LocalHost

async def main():
    async with LocalHost.open(Path(sys.argv[1])) as host:
        kept = await host.create()
        await kept.run("echo text > file; sleep " + sys.argv[2] + " > /dev/null 2>&1 &")
        gone = await host.create(ContainerSettings(temporary=True))
        print(kept.id, gone.id, flush=True)
        await asyncio.sleep(1000)

asyncio.run(main())
"""
UNKNOWN = f"{PREFIX}{'0' * 32}"


def folders(place: Path) -> list[str]:
    return sorted(name for name in os.listdir(place) if name != LOCK) if place.exists() else []


async def test_found_listed_and_removed(host: LocalHost, place: Path) -> None:
    first, second = await host.create(), await host.create(ContainerSettings(env={"A": "b"}))
    assert [info.id for info in await host.list()] == [first.id, second.id]
    assert await host.get(second.id) is second
    assert (await second.run("echo $A")).stdout.text() == "b\n"
    await host.remove(first.id)
    assert first.status == "expired" and not first.folder.exists()
    assert [info.id for info in await host.list()] == [second.id]
    with pytest.raises(ContainerExpired, match="make a new one"):
        await first.run("true")
    with pytest.raises(ContainerExpired):
        await host.get(first.id)
    await second.aclose()
    await second.aclose()
    assert folders(place) == []


@pytest.mark.parametrize("name", [UNKNOWN, "x", "", "../..", f"{PREFIX}../../etc", "/etc"])
async def test_an_unknown_id(host: LocalHost, name: str) -> None:
    with pytest.raises(UnknownContainer):
        await host.get(name)
    with pytest.raises(UnknownContainer):
        await host.remove(name)


async def test_it_expires_when_nobody_uses_it(host: LocalHost, place: Path) -> None:
    container = await host.create(ContainerSettings(idle_seconds=0.3))
    done = await container.run("sleep 0.6; echo still here")
    assert done.stdout.text() == "still here\n", "a container in use expired"
    await until(lambda: container.status == "expired" and folders(place) == [])
    with pytest.raises(ContainerExpired):
        await container.run("true")


async def test_one_that_expires_as_its_host_closes_leaves_nothing(place: Path) -> None:
    async with LocalHost.open(place) as host:
        container = await host.create(ContainerSettings(idle_seconds=0.1))
        while container.status != "expired":  # noqa: ASYNC110 - seen in the very turn in which it begins
            await asyncio.sleep(0)
    left = leftovers(place, {os.getpid()})
    assert (folders(place), left.groups) == ([], 0)


async def test_the_next_host_goes_on_with_the_files(place: Path) -> None:
    async with LocalHost.open(place) as first:
        container = await first.create()
        await container.run("echo text > file; echo more > ~/file")
    async with LocalHost.open(place) as second:
        again = await second.get(container.id)
        done = await again.run("cat file ~/file")
        assert done.stdout.text() == "text\nmore\n"
        assert done.stderr.text() == f"[{RESTARTED}]\n"
        assert (await again.run("true")).stderr.text() == "", "told twice"
        await again.aclose()


async def test_the_first_command_says_so_whoever_asked_before(place: Path) -> None:
    async with LocalHost.open(place) as first:
        made = await first.create()
    async with LocalHost.open(place) as second:
        again = await second.get(made.id)
        assert (await languages_of(again)).python
        assert (await again.run("true")).stderr.text() == f"[{RESTARTED}]\n"
        await again.aclose()


async def test_who_keeps_a_list_notes_a_container_before_it_outlives_us(host: LocalHost, place: Path) -> None:
    noted: list[str] = []

    async def note(container: Container) -> None:
        noted.append(container.id)
        assert container.id not in {info.id for info in on_disk(place)}
        if len(noted) == 2:
            raise OSError("the list is full")

    made = await host.create(note=note)
    with pytest.raises(OSError, match="full"):
        await host.create(note=note)
    assert folders(place) == noted[:1] == [made.id]
    await made.aclose()


def test_a_sweep_that_looks_at_a_container_is_no_user(place: Path) -> None:
    kept = new_slot(place, ContainerSettings())
    kept.publish()
    kept.release()
    taken: list[Slot] = []
    asking = Thread(target=lambda: taken.append(take_slot(place, kept.record.id)))
    with (place / LOCK).open() as lock, (kept.folder / LOCK).open() as looked_at:
        assert try_lock(lock.fileno()) and try_lock(looked_at.fileno())
        asking.start()
        asking.join(0.05)  # without patience it has given up by now
    asking.join()
    [again] = taken
    again.remove()


def test_what_is_removed_is_gone_whoever_sweeps_meanwhile(place: Path) -> None:
    slots = [new_slot(place, ContainerSettings()) for _ in range(30)]
    swept = Thread(target=lambda: [sweep(place) for _ in range(60)])
    swept.start()
    for slot in slots:
        slot.publish()
        slot.remove()
    swept.join()
    assert folders(place) == []


async def test_one_process_at_a_time(host: LocalHost, place: Path) -> None:
    container = await host.create()
    other = LocalHost.open(place)
    with pytest.raises(ContainerError, match="in use by another process"):
        await other.get(container.id)
    assert [info.id for info in await other.list()] == [container.id]
    await container.aclose()


def start_and_kill(place: Path, mark: str) -> tuple[str, str]:
    """The ids of a container to be kept and of a temporary one, whose process was killed while something ran."""
    process = subprocess.Popen([sys.executable, "-c", OTHER, str(place), mark], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    kept, gone = process.stdout.readline().split()
    process.stdout.close()
    assert running(mark)
    process.kill()
    process.wait()
    return kept, gone


async def test_sigkill_of_the_process(place: Path) -> None:
    mark = SECONDS[6]
    kept, gone = await asyncio.to_thread(start_and_kill, place, mark)
    await until(lambda: not running(mark))
    async with LocalHost.open(place) as host:
        assert folders(place) == [kept] != [gone]
        container = await host.get(kept)
        assert (await container.run("cat file")).stdout.text() == "text\n"
        await container.aclose()


async def test_what_a_predecessor_left_is_swept(place: Path) -> None:
    old = new_slot(place, ContainerSettings(idle_seconds=10))
    recent = new_slot(place, ContainerSettings())
    for slot in (old, recent):
        slot.publish()
    half = place / UNKNOWN
    half.mkdir()
    (old.data / "closed").mkdir(mode=0)
    os.utime(old.folder / "record.json", (time.time() - 11,) * 2)
    assert {info.id for info in on_disk(place)} == {old.record.id, recent.record.id}
    spare = new_slot(place, ContainerSettings())
    for slot in (old, recent, spare):
        slot.release()
    async with LocalHost.open(place) as host:
        assert [info.id for info in await host.list()] == [recent.record.id]
        assert folders(place) == [recent.record.id]
        await host.remove(recent.record.id)


async def test_what_a_predecessor_left_goes_when_it_is_over(place: Path) -> None:
    for seconds in (0.2, 0.4, 1000):
        slot = new_slot(place, ContainerSettings(idle_seconds=seconds))
        slot.publish()
        slot.release()
    async with LocalHost.open(place) as host:
        await until(lambda: folders(place) == [slot.record.id])
        await host.remove(slot.record.id)


async def test_no_more_than_the_limit(place: Path) -> None:
    async with LocalHost.open(place, limits=HostLimits(containers=1)) as host:
        container = await host.create()
        with pytest.raises(ContainerError, match="1 containers already"):
            await host.create()
        await container.aclose()
        await (await host.create()).aclose()


async def test_spares_are_ready(place: Path) -> None:
    async with LocalHost.open(place, limits=HostLimits(spares=1)) as host:
        await until(lambda: len(folders(place)) == 1)
        [spare] = folders(place)
        assert await host.list() == ()
        await until(lambda: bool(host.ready_spares))
        container = await host.create()
        assert container.id == spare
        await until(lambda: len(folders(place)) == 2)
        await container.aclose()
    assert folders(place) == [], "a spare is left"


async def test_nothing_is_left_of_many(place: Path) -> None:
    before, descriptors = set(children()), len(os.listdir("/proc/self/fd"))
    async with LocalHost.open(place) as host:
        made = await asyncio.gather(*(host.create() for _ in range(20)))
        await asyncio.gather(*(container.run("true") for container in made))
        await asyncio.gather(*(container.aclose() for container in made))
    assert set(children()) <= before
    assert len(os.listdir("/proc/self/fd")) <= descriptors
    assert not place.exists() or folders(place) == []


def test_plain_code(monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    monkeypatch.setenv("FERRULE_HOME", str(place.parent))
    with Container.open(env={"A": "b"}) as container:
        assert container.run_sync("echo $A").stdout.text() == "b\n"
    assert not container.folder.exists()


async def test_many_uses_at_once_start_one(host: LocalHost) -> None:
    container = await host.create()
    ours = [container.holder_pid, *inits_of(container.holder_pid)]
    os.kill(ours[0], signal.SIGKILL)
    await until(lambda: not any(map(alive, ours)))
    done = await asyncio.gather(*(container.run("echo x") for _ in range(5)))
    assert [one.stdout.text() for one in done] == ["x\n"] * 5
    assert sum(RESTARTED in one.stderr.text() for one in done) == 1
    await container.aclose()


async def test_a_command_in_the_background_is_no_use(host: LocalHost) -> None:
    container = await host.create(ContainerSettings(idle_seconds=0.5))
    child = await container.background.launch(
        ["sleep", "1000"], container.environment, "/", Pipes(merge=True), Limits()
    )
    seen = [container.busy]
    with container.in_use():
        seen.append(container.busy)
    assert [*seen, container.busy] == [False, True, False]
    await until(lambda: container.status == "expired")
    with pytest.raises(LaunchError):
        await child.wait()
    os.close(child.stdout)


async def test_a_spare_that_was_killed_is_removed(place: Path) -> None:
    async with LocalHost.open(place, limits=HostLimits(spares=1)) as host:
        await until(lambda: bool(host.ready_spares))
        [killed] = folders(place)
        os.kill(host._spares[0].holder_pid, signal.SIGKILL)
        await until(lambda: not host._spares[0].alive)
        container = await host.create()
        assert container.id != killed and killed not in folders(place)


async def test_a_spare_is_warmed_up(place: Path) -> None:
    warmed: list[str] = []

    async def warm(spare: Container) -> None:
        warmed.append(spare.id)
        if len(warmed) == 1:
            raise ContainerError("it does not work")

    host = LocalHost.open(place, limits=HostLimits(spares=1))
    host.warm = warm
    async with host:
        await until(lambda: len(warmed) == 1 and warmed[0] not in folders(place))
        first = await host.create()
        await until(lambda: bool(host.ready_spares))
        second = await host.create()
        assert second.id == warmed[1] != first.id
        await first.aclose()
        await second.aclose()
