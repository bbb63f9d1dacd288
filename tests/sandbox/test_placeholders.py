"""Placeholders of reserved names, without a sandbox around them."""

import asyncio
import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ferrule.process.launcher import LaunchError
from ferrule.sandbox import placeholders
from ferrule.sandbox.boundary import Cover, boundary_of
from ferrule.sandbox.placeholders import Placeholders, sweep
from ferrule.sandbox.plan import RESERVED_NAMES, ConfinementPlan, Root


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


def users(state: Path, root: Path) -> Placeholders:
    return Placeholders(state, [Root(str(root))])


def missing(root: Path) -> tuple[Cover, ...]:
    return boundary_of(ConfinementPlan((Root(str(root)),))).covers


async def test_the_last_one_takes_them_away(root: Path, tmp_path: Path) -> None:
    first, second = users(tmp_path / "state", root), users(tmp_path / "state", root)
    await first.acquire(missing(root))
    await first.acquire(missing(root))
    await second.acquire(missing(root))
    first.release()
    first.release()
    assert sorted(os.listdir(root)) == sorted(RESERVED_NAMES)
    second.release()
    assert os.listdir(root) == []
    assert os.listdir(tmp_path / "state") == ["lock"]
    first.close()
    second.close()


async def test_what_came_to_be_used_stays(root: Path, tmp_path: Path) -> None:
    """A user made a folder of that name while a command ran."""
    one = users(tmp_path / "state", root)
    await one.acquire(missing(root))
    (root / ".codex").chmod(0o755)
    (root / ".codex" / "x").write_text("x")
    one.release()
    assert os.listdir(root) == [".codex"]
    one.close()


async def test_an_empty_folder_that_somebody_made_in_its_place_stays(root: Path, tmp_path: Path) -> None:
    one = users(tmp_path / "state", root)
    await one.acquire(missing(root))
    for name in (".codex", ".agents"):
        (root / name).rmdir()
    (root / ".codex").mkdir()
    one.release()
    assert os.listdir(root) == [".codex"]
    one.close()


async def test_a_folder_of_the_user_is_not_taken(root: Path, tmp_path: Path) -> None:
    (root / ".codex").mkdir()
    one = users(tmp_path / "state", root)
    await one.acquire(missing(root))
    one.release()
    assert os.listdir(root) == [".codex"]
    one.close()


async def test_a_root_that_cannot_be_written(tmp_path: Path) -> None:
    one = Placeholders(tmp_path / "state", [Root("/proc/self")])
    with pytest.raises(LaunchError, match=r"cannot protect /proc/self/\.git"):
        await one.acquire([Cover("empty", "/proc/self/.git")])
    one.close()
    assert os.listdir(tmp_path / "state") == ["lock"]


async def test_a_lock_that_is_not_let_go(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placeholders, "LOCK_PATIENCE", 0.05)
    holder, one = users(tmp_path / "state", root), users(tmp_path / "state", root)
    assert placeholders._lock(holder.lock, placeholders.record_name(str(root)), fcntl.F_WRLCK)
    with pytest.raises(LaunchError, match="does not release"):
        await one.acquire(missing(root))
    holder.close()
    await one.acquire(missing(root))
    one.release()
    one.close()


CRASHING = """
import asyncio, os, sys
from pathlib import Path
from ferrule.sandbox.plan import ConfinementPlan, Root
from ferrule.sandbox.boundary import boundary_of
from ferrule.sandbox.placeholders import Placeholders
root = Root(sys.argv[2])
asyncio.run(Placeholders(Path(sys.argv[1]), [root]).acquire(boundary_of(ConfinementPlan((root,))).covers))
os.kill(os.getpid(), 9)
"""


def test_a_crash_is_swept(root: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", CRASHING, str(tmp_path / "state"), str(root)], check=False)
    assert sorted(os.listdir(root)) == sorted(RESERVED_NAMES)
    sweep(tmp_path / "state")
    assert os.listdir(root) == []


def test_a_sweep_passes_over_what_is_no_record(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    (state / "filter").write_bytes(b"of bwrap")
    (state / "empty").mkdir()
    sweep(state)
    assert sorted(path.name for path in state.iterdir()) == ["empty", "filter", "lock"]


async def test_a_sweep_leaves_those_in_use(root: Path, tmp_path: Path) -> None:
    one = users(tmp_path / "state", root)
    await one.acquire(missing(root))
    sweep(tmp_path / "state")
    assert sorted(os.listdir(root)) == sorted(RESERVED_NAMES)
    one.release()
    one.close()


async def test_many_come_and_go(root: Path, tmp_path: Path) -> None:
    """Two that leave at once must not both fail to take them away."""
    everyone = [users(tmp_path / "state", root) for _ in range(4)]

    async def work(one: Placeholders) -> None:
        for _ in range(20):
            await one.acquire(missing(root))
            await asyncio.sleep(0)
            one.release()

    await asyncio.gather(*map(work, everyone))
    assert os.listdir(root) == []
    for one in everyone:
        one.close()


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everywhere")
async def test_a_folder_of_somebody_else_as_root(tmp_path: Path) -> None:
    """Neither we nor a command can make anything there."""
    one = Placeholders(tmp_path / "state", [Root("/")])
    assert await one.acquire([Cover("read", "/x"), Cover("empty", "/.git")]) == [Cover("read", "/x")]
    one.release()
    one.close()


async def test_a_read_only_file_system_as_root(tmp_path: Path) -> None:
    one = Placeholders(tmp_path / "state", [Root("/sys")])
    assert await one.acquire([Cover("read", "/x"), Cover("empty", "/sys/.git")]) == [Cover("read", "/x")]
    one.release()
    one.close()
