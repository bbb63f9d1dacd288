"""The sandbox's attacks from inside the container of an agent, whose projects are mounted and protected there."""

import json
import shutil
from pathlib import Path

import pytest

from ferrule.containers import HostLimits, LocalHost
from ferrule.containers.project import ProjectContainer, ProjectLauncher
from ferrule.process.launcher import Limits
from ferrule.process.run import run
from ferrule.protocol.permissions import InContainer
from ferrule.sandbox.plan import ConfinementPlan, Level
from ferrule.sandbox.protection import Protection
from ferrule.sandbox.sandbox import Sandbox
from tests.containers.test_escape import readable_by
from tests.sandbox.conftest import USERS
from tests.sandbox.scene import ATTACKS, DAEMON_SECONDS, ENTRY, PROCESSES, SYSTEM_PYTHON, Scene
from tests.sandbox.test_escape import Report, is_running

NOT_THERE = {"ok_read_disk"}
"""What lies outside of the projects."""


def container_of(scene: Scene) -> ProjectContainer:
    """The container of all the scene's roots; its helpers run as the scene's user."""
    roots = tuple(root.path for root in scene.plan.roots if root.path != "/tmp")
    place = scene.base / "kept" / "containers"
    host = LocalHost.open(place, limits=HostLimits(groups=not scene.user), interpreter=scene.interpreter)
    container = ProjectContainer(InContainer(writable_roots=roots), roots[0], str(scene.home), host)
    readable_by(scene.user, container.box().folder.parent)
    return container


async def attack(scene: Scene) -> Report:
    reports: list[str] = []
    roots = tuple(root for root in scene.plan.roots if root.path != "/tmp")
    protection = Protection(ConfinementPlan(roots, read_only=scene.plan.read_only), scene.home, reports.append)
    container = container_of(scene)
    sandbox = Sandbox(
        protection, container=lambda: ProjectLauncher(container, protection, lambda: protection.boundary.covers)
    )
    theirs = Path(str(scene.values["nogit"]))
    shutil.copytree(ATTACKS, theirs / "attacks", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(scene.base / "scene.json", theirs)
    try:
        assert await sandbox.level() is Level.CONTAINER
        scene.listen_unix("unix_again", str(scene.values["unix_again"]))
        command = [SYSTEM_PYTHON, "-c", ENTRY, str(theirs), f"{theirs}/scene.json"]
        limits = Limits(max_processes=PROCESSES)
        ws = str(scene.values["ws"])
        done = await run(sandbox, command, env=container.environment, cwd=ws, limits=limits)
        assert done.exit_code == 0, done.output.text()
        return Report(json.loads(done.stdout.text().splitlines()[-1]), done.notice, reports)
    finally:
        await sandbox.close()
        await container.close()


@pytest.mark.parametrize("user", USERS, ids=lambda user: "root" if user == 0 else "user")
async def test_nothing_gets_out_of_a_mounted_project(place: Path, user: int) -> None:
    with Scene(user) as scene:
        before = scene.snapshot()
        report = await attack(scene)
        assert report.open == set()
        assert set(report.broken) == NOT_THERE
        assert scene.snapshot() == before
        assert scene.reached() == []
        assert scene.victim.poll() is None
        assert not (scene.base / "ws-moved").exists()
        assert not is_running(f"sleep {DAEMON_SECONDS}")
        assert not scene.leaked_shared_memory()
