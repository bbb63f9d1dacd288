"""SIGKILL of each of our processes in turn: that container says so and starts anew, the others go on."""

import asyncio
import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from ferrule.containers import Container, LocalHost
from ferrule.containers.notices import RESTARTED
from ferrule.process.launcher import LaunchError, Limits, Pipes
from ferrule.sandbox.linux.holders import HolderProcess
from tests.containers.test_life import folders
from tests.processes import alive, running, until
from tests.sandbox.test_death import SECONDS, inits_of

BESIDE = f"echo text > file; sleep {SECONDS[5]} > /dev/null 2>&1 &"


@pytest.fixture
async def beside(host: LocalHost) -> Container:
    """Another container, in which something runs."""
    container = await host.create()
    await container.run(BESIDE)
    return container


async def goes_on(beside: Container) -> None:
    assert running(SECONDS[5])
    assert (await beside.run("cat file")).stdout.text() == "text\n"
    assert not beside.restarted
    await beside.aclose()
    assert not running(SECONDS[5])


async def test_the_holder(host: LocalHost, container: Container, beside: Container) -> None:
    child = await container.launch(["sleep", "1000"], container.environment, "/mnt/data", Pipes(), Limits())
    (container.folder / "kept").write_text("kept")
    os.kill(container.holder_pid, signal.SIGKILL)
    with pytest.raises(LaunchError, match="ended before the command did"):
        await child.wait()
    for fd in (child.stdout, child.stderr):
        assert fd is not None
        os.close(fd)
    done = await container.run("cat kept")
    assert (done.stdout.text(), done.stderr.text()) == ("kept", f"[{RESTARTED}]\n")
    await goes_on(beside)


async def test_the_mother(host: LocalHost, beside: Container) -> None:
    mother = parent_of(beside.holder_pid)
    os.kill(mother, signal.SIGKILL)
    await until(lambda: not alive(mother))
    again = await host.create()
    assert (await again.run("echo works")).stdout.text() == "works\n"
    assert parent_of(again.holder_pid) != mother
    await again.aclose()
    await goes_on(beside)


async def test_the_init_of_a_command(container: Container, beside: Container) -> None:
    child = await container.launch(["sleep", "1000"], container.environment, "/mnt/data", Pipes(), Limits())
    init = next(pid for pid in inits_of(container.holder_pid) if inits_of(pid))
    os.kill(init, signal.SIGKILL)
    with pytest.raises(LaunchError, match="ended before the command did"):
        await child.wait()
    for fd in (child.stdout, child.stderr):
        assert fd is not None
        os.close(fd)
    assert (await container.run("echo works")).stdout.text() == "works\n"
    assert not container.restarted
    await goes_on(beside)


async def test_everything_at_once(host: LocalHost, container: Container, place: Path) -> None:
    holder = container.holder_pid
    ours = [parent_of(holder), holder, *inits_of(holder)]
    for pid in ours[:2]:
        os.kill(pid, signal.SIGKILL)
    await until(lambda: not any(map(alive, ours)))  # what starts in a dying one is lost with it
    done = await container.run("echo works")
    assert (done.stdout.text(), done.stderr.text()) == ("works\n", f"[{RESTARTED}]\n")
    assert folders(place) == [container.id]


async def test_the_mother_before_it_has_made_a_holder(host: LocalHost, place: Path) -> None:
    first = await host.create()
    mother = parent_of(first.holder_pid)
    os.kill(mother, signal.SIGSTOP)
    making = asyncio.create_task(host.create())
    await until(lambda: len(folders(place)) == 2)
    os.kill(mother, signal.SIGKILL)
    second = await making
    assert (await second.run("echo works")).stdout.text() == "works\n"
    await second.aclose()
    await first.aclose()


async def test_a_holder_before_it_is_ready(host: LocalHost, monkeypatch: pytest.MonkeyPatch) -> None:
    born = HolderProcess.born
    killed: list[int] = []

    def kill_the_first(holder: HolderProcess, pid: int, pidfd: int) -> None:
        born(holder, pid, pidfd)
        if not killed:
            killed.append(pid)
            os.kill(pid, signal.SIGKILL)

    monkeypatch.setattr(HolderProcess, "born", kill_the_first)
    container = await host.create()
    assert (await container.run("echo works")).stdout.text() == "works\n"
    assert container.holder_pid not in killed
    await container.aclose()


async def test_a_container_is_closed_while_it_starts(host: LocalHost, place: Path) -> None:
    making = asyncio.create_task(host.create())
    await until(lambda: bool(folders(place)))
    making.cancel()
    with suppress(asyncio.CancelledError):
        await (await making).aclose()  # it was faster
    await until(lambda: folders(place) == [])


def parent_of(pid: int) -> int:
    done = subprocess.run(["ps", "-o", "ppid=", "-p", str(pid)], capture_output=True, text=True, check=True)
    return int(done.stdout)
