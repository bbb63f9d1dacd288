"""The listening sockets of a network namespace, passed out of it: here of sandboxes, in `containers` of containers."""

import asyncio
import os
import select
import signal
from pathlib import Path

import pytest

from ferrule.process.launcher import LaunchError
from ferrule.sandbox.plan import ConfinementPlan, Level, Root
from ferrule.sandbox.protection import Protection
from ferrule.sandbox.sandbox import Sandbox
from ferrule.sandbox.way_out import Listeners
from tests.sandbox.listening import ANSWERS, CONNECT, GIVEN, HOSTS, TAKE, Answering
from tests.sandbox.running import run
from tests.sandbox.scene import SYSTEM_PYTHON, Scene
from tests.sandbox.test_death import zygotes_of


async def test_commands_reach_who_serves_them_and_cannot_take_their_place(namespaces: None, scene: Scene) -> None:
    host_file = Path(HOSTS).read_bytes()
    way_out = Answering()
    sandbox = Sandbox(
        Protection(ConfinementPlan((Root(str(scene.base / "nogit")),)), scene.home, None),
        levels=[Level.NAMESPACES],
        interpreter=scene.interpreter,
        way_out=way_out,
    )
    try:
        reached = await run(sandbox, CONNECT, str(scene.base))
        assert reached.output.splitlines() == ANSWERS
        assert (await run(sandbox, ["cat", HOSTS], "/")).output.encode() == GIVEN
        assert "127.0.0.1:3128" in (await run(sandbox, "echo $HTTPS_PROXY", "/")).output
        taken = await run(sandbox, [SYSTEM_PYTHON, "-c", TAKE], "/")
        assert taken.output.strip() == "", "something could be taken"
        own = await run(sandbox, "exec 3<>/dev/tcp/127.0.0.1/1 || echo refused", "/")
        assert "refused" in own.output, "only the three listen"
        _change(way_out.served[0], GIVEN + b"127.64.0.3 three.example.com\n")
        assert "127.64.0.3" in (await run(sandbox, ["getent", "ahostsv4", "three.example.com"], "/")).output
    finally:
        await sandbox.close()
    assert way_out.stopped == way_out.served
    assert Path(HOSTS).read_bytes() == host_file
    assert scene.reached() == []


def _change(listeners: Listeners, content: bytes) -> None:
    (file,) = listeners.files
    os.pwrite(file, content, 0)


async def test_a_new_sandbox_is_served_as_well(namespaces: None, home: Path, workspace: Path) -> None:
    way_out, others = Answering(), set(zygotes_of(os.getpid()))
    sandbox = Sandbox(Protection(ConfinementPlan((Root(str(workspace)),)), home, None), way_out=way_out)
    try:
        await run(sandbox, "true", "/")
        for pid in set(zygotes_of(os.getpid())) - others:
            await _killed(pid)
        reached = await run(sandbox, CONNECT, "/")
        assert reached.output.splitlines() == ANSWERS
    finally:
        await sandbox.close()
    assert len(way_out.served) == 2
    assert way_out.stopped == way_out.served


async def _killed(pid: int) -> None:
    """Kill a process and wait until it is dead. Whoever started it reaps it."""
    pidfd = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    await asyncio.to_thread(select.select, [pidfd], [], [])
    os.close(pidfd)


@pytest.mark.parametrize("level", [Level.BWRAP, Level.LANDLOCK])
async def test_no_other_level_pretends_to_bound_the_network(home: Path, workspace: Path, level: Level) -> None:
    """Not even where the user accepts commands with all rights: that would be the whole network."""
    sandbox = Sandbox(
        Protection(ConfinementPlan((Root(str(workspace)),)), home, None),
        levels=[level],
        unconfined_accepted=True,
        way_out=Answering(),
    )
    with pytest.raises(LaunchError, match="network_access to true or false"):
        await run(sandbox, "true", "/")
    await sandbox.close()
