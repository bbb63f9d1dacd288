"""Every known attack in one confined command, as root and as an ordinary user; what counts is the host afterwards."""

import json
import os
import subprocess
from dataclasses import dataclass

import pytest

from ferrule.process.launcher import Limits, Pipes
from ferrule.sandbox.plan import Level
from ferrule.sandbox.protection import Protection
from ferrule.sandbox.sandbox import Sandbox
from tests.sandbox.conftest import require
from tests.sandbox.running import finish
from tests.sandbox.scene import DAEMON_SECONDS, PROCESSES, Scene

NEVER_STOPPED = {"lock_for_reading"}
"""What `docs/security.md` says that no level stops."""


@dataclass(frozen=True)
class Report:
    results: dict[str, str]
    left: str | None
    reports: list[str]

    @property
    def open(self) -> set[str]:
        return {
            name for name, result in self.results.items() if result.startswith("OPEN") and not name.startswith("ok_")
        }

    @property
    def broken(self) -> dict[str, str]:
        """What must work inside and does not."""
        return {name: result for name, result in self.results.items() if name.startswith("ok_") and result != "OPEN"}


async def attack(scene: Scene, level: Level) -> Report:
    reports: list[str] = []
    sandbox = Sandbox(Protection(scene.plan, scene.home, reports.append), levels=[level], interpreter=scene.interpreter)
    try:
        await sandbox.level()
        scene.listen_unix("unix_again", str(scene.values["unix_again"]))
        env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": "/nonexistent", "LANG": "C.UTF-8"}
        limits = Limits(max_processes=PROCESSES)
        child = await sandbox.launch(scene.command, env, str(scene.values["ws"]), Pipes(merge=True), limits)
        outcome = await finish(child)
        assert outcome.status.code == 0, outcome.output
        return Report(json.loads(outcome.output.splitlines()[-1]), outcome.left, reports)
    finally:
        await sandbox.close()


async def test_nothing_gets_out(scene: Scene, namespaces: None) -> None:
    before = scene.snapshot()
    report = await attack(scene, Level.NAMESPACES)
    assert report.open == NEVER_STOPPED
    assert report.broken == {}
    assert scene.snapshot() == before
    assert scene.reached() == []
    assert scene.victim.poll() is None
    assert not (scene.base / "ws-moved").exists()
    assert not is_running(f"sleep {DAEMON_SECONDS}")
    assert report.left == "Ended with the command: sleep."
    assert not scene.leaked_shared_memory()


BWRAP_OPEN = {"lock_for_reading", "git_symlink_replace", "write_dev", "proc_fd_init", "proc_mem_init", "fork_bomb"}
"""`write_dev` and `proc_*_init` touch what is the command's own: a `/dev` in memory, and bwrap's process inside."""


async def test_bwrap_stops_what_the_page_says() -> None:
    """bwrap has the user of this process: `test_ordinary_user.py` runs this, too."""
    await require(Level.BWRAP)
    with Scene(os.getuid(), home_in_root=False) as scene:
        before = scene.snapshot()
        report = await attack(scene, Level.BWRAP)
        assert report.open <= BWRAP_OPEN
        assert set(report.broken) == {"ok_unix_inside", "ok_git_status"}
        assert scene.reached() == []
        after = scene.snapshot()
        changed = {path for path in before.keys() | after.keys() if before.get(path) != after.get(path)}
        assert changed == {"symlinked/.git", "out/.ferrule/sandbox/empty", "out/.ferrule/sandbox/filter"}
        assert not is_running(f"sleep {DAEMON_SECONDS}")


LANDLOCK_OPEN = {
    "chmod_out", "exchange_git", "fchmod_out", "fork_bomb", "git_symlink_replace", "git_symlink_target",
    "git_through_link", "gitfile_rename", "gitfile_replace", "gitfile_target_parent_renamed",
    "gitfile_target_write", "lock_for_reading", "nested_repository_config", "nested_repository_hook",
    "open_host_terminal", "rename_git_away", "rename_inner_root_parent", "rename_over_placeholder",
    "setuid_file_in_workspace", "utime_out", "write_agents_skill", "write_codex_config", "write_ferrule_config",
    "write_git_config", "write_git_hook", "write_second_root_git",
}  # fmt: skip


@pytest.mark.skipif(os.getuid() != 0, reason="the scene of an ordinary user needs root")
@pytest.mark.parametrize("user", [0, 1001])
async def test_landlock_stops_what_the_page_says(user: int) -> None:
    await require(Level.LANDLOCK)
    with Scene(user, home_in_root=False) as scene:
        report = await attack(scene, Level.LANDLOCK)
        assert report.open <= LANDLOCK_OPEN
        assert set(report.broken) == {"ok_unix_inside", "ok_tcp_inside", "ok_git_status"}
        assert scene.reached() == []
        assert scene.victim.poll() is None
        assert not is_running(f"sleep {DAEMON_SECONDS}")
        scene.leaked_shared_memory()  # it is the host's at this level
        assert report.left is not None and "PROTECTED FILES CHANGED" in report.left
        told = "".join(report.reports)
        assert f"{scene.base}/ws/.git" in told and f"{scene.base}/worktree/.git" in told


def is_running(command: str) -> bool:
    done = subprocess.run(["pgrep", "-fx", command], capture_output=True, check=False)
    return done.returncode == 0
