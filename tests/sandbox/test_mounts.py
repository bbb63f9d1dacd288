"""What the user mounts into a root: the repository of another place is protected as one that lies there."""

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ferrule.process.run import run as run_to_end
from ferrule.sandbox.linux.mount_table import RootMounts
from ferrule.sandbox.plan import Level, Root
from ferrule.sandbox.protection import Protection
from tests.sandbox.conftest import OpenAt
from tests.sandbox.projects import LEVELS, READ_ONLY, every_file, git
from tests.sandbox.running import run

pytestmark = pytest.mark.skipif(os.getuid() != 0, reason="only root mounts")
Mount = Callable[[Path, Path], None]


@pytest.fixture
def mount(outside: Path) -> Iterator[Mount]:
    """Mounts one folder on another; all are taken away at the end."""
    made: list[Path] = []

    def bind(source: Path, target: Path) -> None:
        done = subprocess.run(["mount", "--bind", source, target], check=False)
        if done.returncode:
            pytest.skip("this machine lets root mount nothing")
        made.append(target)

    yield bind
    for target in reversed(made):
        unmount(target)
    table = Path("/proc/self/mountinfo").read_text()
    assert f" {outside}/" not in table


def unmount(target: Path) -> None:
    """Once more is no fault."""
    subprocess.run(["umount", "--lazy", "--quiet", target], check=False)


@pytest.fixture
def theirs(outside: Path) -> Path:
    """A repository of the user's that lies in no root."""
    git(outside, "init", "-q", "theirs")
    return outside / "theirs"


async def settle(sandbox: object, protection: Protection, folder: Path) -> None:
    """Until nothing is read again, because nothing has changed."""
    for _ in range(100):
        if protection._repositories._all_watched:
            return
        await run(sandbox, "true", str(folder))  # type: ignore[arg-type]
    pytest.fail("the folders are never watched")


WRITE = "cd m && echo x >> .git/config; echo x > .git/hooks/post-merge; echo x > file"


@pytest.mark.parametrize("during", [False, True], ids=["before", "during"])
@pytest.mark.parametrize("level", LEVELS)
async def test_attack_a_mounted_repository(
    open_at: OpenAt, workspace: Path, theirs: Path, mount: Mount, level: Level, during: bool
) -> None:
    """During the session no folder of the workspace changes, and the helper that confines commands stands already."""
    (workspace / "m").mkdir()
    before = every_file(theirs / ".git")
    if not during:
        mount(theirs, workspace / "m")
    sandbox = await open_at(level)
    await settle(sandbox, sandbox._protection, workspace)
    if during:
        mount(theirs, workspace / "m")
    outcome = await run(sandbox, WRITE, str(workspace))
    assert (theirs / "file").exists()
    if level in READ_ONLY:
        assert outcome.output.count("Read-only file system") == 2
        assert every_file(theirs / ".git") == before
    else:
        assert outcome.left is not None
        for path in (".git/config", ".git/hooks/post-merge"):
            assert f"{workspace}/m/{path}" in outcome.left


@pytest.mark.parametrize("level", LEVELS)
async def test_attack_a_repository_mounted_over_one_of_ours(
    open_at: OpenAt, workspace: Path, theirs: Path, mount: Mount, level: Level
) -> None:
    sandbox = await open_at(level)
    await run(sandbox, "git init -q m", str(workspace))
    await settle(sandbox, sandbox._protection, workspace)
    mount(theirs / ".git", workspace / "m/.git")
    outcome = await run(sandbox, "echo x >> m/.git/config", str(workspace))
    if level in READ_ONLY:
        assert "Read-only file system" in outcome.output
    else:
        assert outcome.left is not None and f"{workspace}/m/.git" in outcome.left


async def test_attack_a_mount_that_hides_the_users_repository(
    open_at: OpenAt, workspace: Path, outside: Path, mount: Mount
) -> None:
    """The helper would still show it, and nobody would find it any more."""
    git(workspace, "init", "-q", "m")
    before = every_file(workspace / "m")
    (outside / "empty").mkdir()
    sandbox = await open_at(Level.NAMESPACES)
    assert (await run(sandbox, "ls -A m", str(workspace))).output == ".git\n"
    mount(outside / "empty", workspace / "m")
    assert (await run(sandbox, "ls -A m; echo x > m/.git/config", str(workspace))).output.startswith("/bin/bash")
    unmount(workspace / "m")
    assert every_file(workspace / "m") == before


async def test_a_mount_elsewhere_changes_nothing(open_at: OpenAt, workspace: Path, outside: Path, mount: Mount) -> None:
    """Other programs mount all the time: a helper is not started anew for that."""
    (outside / "a").mkdir()
    sandbox = await open_at(Level.NAMESPACES)
    await settle(sandbox, sandbox._protection, workspace)
    key = sandbox._launcher._key()  # type: ignore[union-attr]
    mount(outside / "a", outside / "a")
    await run_to_end(sandbox, ["true"], env={"PATH": "/usr/bin:/bin"}, cwd=str(workspace))
    assert sandbox._launcher._key() == key  # type: ignore[union-attr]
    assert sandbox._protection._repositories._all_watched


def test_the_table_tells_mounts_of_the_roots_only(outside: Path, workspace: Path, mount: Mount) -> None:
    for folder in ("a", "ws/b c"):
        (outside / folder).mkdir()
    table = RootMounts([Root(str(workspace))])
    before = table.current()
    mount(outside / "a", outside / "a")
    assert table.current() == before
    mount(outside / "a", workspace / "b c")
    (new,) = set(table.current()) - set(before)
    assert new.point == f"{workspace}/b c" and new.source.endswith("/a")
    assert table.current() is table.current()
