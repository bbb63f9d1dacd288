"""Whoever is cancelled, wherever: no command stays counted, no repository is lost, nobody looks twice at once."""

import asyncio
import os
import subprocess
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from ferrule.process.launcher import LaunchError, Limits, Pipes
from ferrule.process.run import run
from ferrule.sandbox.plan import ConfinementPlan, Level, Root
from ferrule.sandbox.protection import Protection
from ferrule.sandbox.repositories import Repositories
from ferrule.sandbox.sandbox import Sandbox
from tests.sandbox.conftest import OpenSandbox, require

STEPS = (*range(12), 15, 20, 30, 50, 80)
"""Turns of the event loop after which a task is cancelled: the first ones each, then as far as a command's start."""
ENV = {"PATH": "/usr/bin:/bin"}


@pytest.fixture
def protection(home: Path, workspace: Path, reports: list[str]) -> Protection:
    return Protection(ConfinementPlan((Root(str(workspace)),)), home, reports.append)


async def cancelled_after(steps: int, task: "asyncio.Task[object]") -> None:
    for _ in range(steps):
        await asyncio.sleep(0 if steps < 20 else 0.001)
    task.cancel()
    with suppress(asyncio.CancelledError, LaunchError):
        await task


def own(protection: Protection) -> set[str]:
    return {Path(path).parent.name for path in protection.boundary.own}


def git(folder: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=folder, check=True)


@pytest.mark.parametrize("level", [Level.NAMESPACES, Level.BWRAP, Level.LANDLOCK])
async def test_a_command_that_is_cancelled_at_any_moment(
    open_sandbox: OpenSandbox, workspace: Path, level: Level
) -> None:
    await require(level)
    sandbox = await open_sandbox(ConfinementPlan((Root(str(workspace)),)), level=level)
    for steps in STEPS:
        argv = ["git", "init", "-q", f"r{steps}"]
        task = asyncio.create_task(run(sandbox, argv, env=ENV, cwd=str(workspace)))
        await cancelled_after(steps, task)
    for child in list(sandbox._running):
        await child.aftermath
    await sandbox._protection.look()
    assert not sandbox._protection._running
    assert own(sandbox._protection) == {path.name for path in workspace.glob("r*") if (path / ".git").exists()}
    assert (await run(sandbox, ["echo", "hi"], env=ENV, cwd=str(workspace))).output.text() == "hi\n"
    await sandbox.close()
    assert not sandbox._protection._running


@pytest.mark.parametrize("level", [Level.NAMESPACES, Level.BWRAP])
@pytest.mark.parametrize("steps", [0, 1, 2, 3, 5, 8, 13, 30])
async def test_a_close_that_is_cancelled_goes_on(
    home: Path, workspace: Path, reports: list[str], protection: Protection, level: Level, steps: int
) -> None:
    await require(level)
    sandbox = Sandbox(protection, levels=[level])
    await sandbox.level()
    line = "git init -q sub; git -C sub config core.fsmonitor ./evil; echo done; exec sleep 100"
    child = await sandbox.launch(["/bin/sh", "-c", line], ENV, str(workspace), Pipes(merge=True), Limits())
    assert await asyncio.to_thread(os.read, child.stdout, 100) == b"done\n"
    await cancelled_after(steps, asyncio.create_task(sandbox.close()))
    await sandbox.close()
    os.close(child.stdout)
    assert (protection._running, own(protection)) == (0, {"sub"})
    assert [".git/config: core.fsmonitor = ./evil" in report for report in reports] == [True, True]
    assert "sub" in (home / "sandbox/own-repositories").read_text()


async def test_a_launch_while_the_sandbox_is_closed(open_sandbox: OpenSandbox, workspace: Path) -> None:
    """Each is told, or its command is ended; none is left behind."""
    for steps in STEPS:
        sandbox = await open_sandbox(ConfinementPlan((Root(str(workspace)),)))
        argv = ["/bin/sleep", "100"]
        launch = asyncio.create_task(sandbox.launch(argv, ENV, str(workspace), Pipes(merge=True), Limits()))
        for _ in range(steps):
            await asyncio.sleep(0)
        async with asyncio.timeout(10):
            await sandbox.close()
            with suppress(LaunchError):
                child = await launch
                await child.wait()
                os.close(child.stdout)
        assert not sandbox._protection._running


async def test_a_launch_that_waits_for_the_sandbox_when_it_is_closed(protection: Protection, workspace: Path) -> None:
    sandbox = Sandbox(protection, levels=[Level.NAMESPACES])
    launch = asyncio.create_task(sandbox.launch(["true"], ENV, str(workspace), Pipes(), Limits()))
    await asyncio.sleep(0)
    await sandbox.close()
    with pytest.raises(LaunchError, match="the sandbox is closed"):
        await launch


@pytest.fixture
def slow(protection: Protection, monkeypatch: pytest.MonkeyPatch) -> tuple[threading.Event, threading.Event]:
    """Looks happen in a thread, and each waits: events that one has begun, and that it may go on."""
    begun, released = threading.Event(), threading.Event()
    at_once = threading.Lock()
    look = Repositories.look

    def slowly(self: Repositories, *args: object) -> None:
        assert at_once.acquire(blocking=False), "two look at once"
        begun.set()
        assert released.wait(10)
        look(self, *args)  # type: ignore[arg-type]
        at_once.release()

    monkeypatch.setattr(Repositories, "look", slowly)
    return begun, released


async def test_a_look_is_finished_though_it_is_cancelled(
    protection: Protection, workspace: Path, slow: tuple[threading.Event, threading.Event]
) -> None:
    begun, released = slow
    released.set()
    await protection.look()
    await protection.began()
    git(workspace, "init", "-q", "sub")
    protection._spent = 1
    begun.clear()
    released.clear()
    ended = asyncio.create_task(protection.ended())
    await asyncio.to_thread(begun.wait, 10)
    for _ in range(3):
        ended.cancel()
        await asyncio.sleep(0.001)
    other = asyncio.create_task(protection.began())
    await asyncio.sleep(0.01)
    released.set()
    with pytest.raises(asyncio.CancelledError):
        await ended
    await other
    assert own(protection) == {"sub"}
    await protection.ended()
    assert protection._running == 0


async def test_an_end_that_is_cancelled_before_its_look_loses_nothing(protection: Protection, workspace: Path) -> None:
    await protection.look()
    await protection.began()
    git(workspace, "init", "-q", "sub")
    await protection._looking.acquire()
    ended = asyncio.create_task(protection.ended())
    await asyncio.sleep(0)
    ended.cancel()
    with suppress(asyncio.CancelledError):
        await ended
    protection._looking.release()
    await protection.began()
    assert (protection._running, own(protection)) == (1, {"sub"})


async def test_a_reporter_that_fails_costs_nothing(workspace: Path, home: Path) -> None:
    def report(text: str) -> None:
        heard.append(text)
        raise BrokenPipeError

    heard: list[str] = []
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: failures.append(context["exception"]))
    protection = Protection(ConfinementPlan((Root(str(workspace)),)), home, report)
    (home / "sandbox").write_text("in the way")
    await protection.look()
    await protection.began()
    git(workspace, "init", "-q", "sub")
    git(workspace / "sub", "config", "core.fsmonitor", "./evil")
    (told,) = await protection.ended()
    await protection.finish()
    assert (protection._running, len(heard), len(failures)) == (0, 3, 3)
    assert "core.fsmonitor" in told
