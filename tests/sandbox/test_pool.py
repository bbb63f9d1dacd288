"""The pool: how many zygotes and spares there are, and when they end."""

import asyncio
import os
import signal
from pathlib import Path

import pytest
from msgspec.structs import replace

from ferrule.process.launcher import ExitStatus, Limits, Pipes
from ferrule.sandbox import pool as pool_module
from ferrule.sandbox.boundary import boundary_of
from ferrule.sandbox.plan import ConfinementPlan, Root
from ferrule.sandbox.pool import MAX_SPARES, MAX_ZYGOTES, Pool, ZygoteKey, ZygoteLauncher, pool_of_this_loop
from ferrule.sandbox.protection import Protection
from ferrule.sandbox.sandbox import Sandbox
from tests.processes import until
from tests.sandbox.running import run
from tests.sandbox.test_death import mothers_of, zygotes_of


@pytest.fixture
async def pool(namespaces: None) -> Pool:
    return pool_of_this_loop()


def key(outside: Path, number: int) -> ZygoteKey:
    folder = outside / f"ws{number}"
    folder.mkdir(exist_ok=True)
    return ZygoteKey(ConfinementPlan((Root(str(folder)),)), outside / "state")


def cwd(key: ZygoteKey) -> str:
    return key.plan.roots[-1].path


async def test_one_policy_is_one_zygote(pool: Pool, outside: Path) -> None:
    launchers = [ZygoteLauncher(pool, key(outside, 1)) for _ in range(5)]
    outcomes = await asyncio.gather(*(run(one, "echo x", str(outside / "ws1")) for one in launchers))
    assert [outcome.output for outcome in outcomes] == ["x\n"] * 5
    assert len(zygotes_of(os.getpid())) == pool.size == 1
    for one in launchers:
        await one.close()
    assert zygotes_of(os.getpid()) == []


async def test_a_new_zygote_gets_what_this_process_has_by_then(pool: Pool, outside: Path) -> None:
    """They are forked from a mother that began earlier. One that she has not forked yet comes all the same."""
    first = ZygoteLauncher(pool, key(outside, 1))
    before = os.umask(0o027)
    try:
        second = ZygoteLauncher(pool, key(outside, 2))
    finally:
        os.umask(before)
    outcomes = [await run(one, "umask", "/") for one in (first, second)]
    assert [outcome.output for outcome in outcomes] == [f"{before:04o}\n", "0027\n"]
    await first.close()
    await second.close()
    assert mothers_of(os.getpid()) == []


async def test_a_session_that_could_not_begin_does_not_count(pool: Pool, outside: Path) -> None:
    (outside / "file").touch()
    nowhere = replace(key(outside, 1), state_dir=outside / "file" / "state")
    with pytest.raises(OSError, match="file"):
        ZygoteLauncher(pool, nowhere)
    await ZygoteLauncher(pool, key(outside, 1)).close()
    assert zygotes_of(os.getpid()) == []
    assert pool_of_this_loop() is not pool


async def test_more_policies_than_zygotes(pool: Pool, outside: Path) -> None:
    """200 sessions with 200 roots, smaller."""
    keys = [key(outside, number) for number in range(MAX_ZYGOTES + 4)]
    launchers = [ZygoteLauncher(pool, one) for one in keys]
    try:
        for launcher, one in zip(launchers, keys, strict=True):
            assert (await run(launcher, "pwd", cwd(one))).output == f"{cwd(one)}\n"
            assert pool.size <= MAX_ZYGOTES
            assert pool.spares <= MAX_SPARES
        await until(lambda: len(zygotes_of(os.getpid())) <= MAX_ZYGOTES)
        assert (await run(launchers[0], "pwd", cwd(keys[0]))).output == f"{cwd(keys[0])}\n"
    finally:
        for launcher in launchers:
            await launcher.close()


async def test_a_busy_zygote_is_not_ended_to_make_room(
    pool: Pool, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "MAX_ZYGOTES", 1)
    first, second = (ZygoteLauncher(pool, key(outside, number)) for number in (1, 2))
    env = {"PATH": "/usr/bin:/bin"}
    child = await first.launch(["sleep", "60"], env, str(outside / "ws1"), Pipes(merge=True), Limits())
    assert (await run(second, "echo x", str(outside / "ws2"))).output == "x\n"
    assert pool.size == 2
    await child.kill_tree()
    os.close(child.stdout)
    await first.close()
    await second.close()


async def test_an_idle_zygote_ends(pool: Pool, outside: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool_module, "IDLE_SECONDS", 0.1)
    launcher = ZygoteLauncher(pool, key(outside, 1))
    assert (await run(launcher, "echo x; sleep 0.3", str(outside / "ws1"))).output == "x\n"
    await until(lambda: pool.size == 0 and zygotes_of(os.getpid()) == [])
    assert (await run(launcher, "echo again", str(outside / "ws1"))).output == "again\n"
    await launcher.close()


async def test_spares_are_made_ahead(pool: Pool, outside: Path) -> None:
    launcher = ZygoteLauncher(pool, key(outside, 1))
    await until(lambda: pool.spares == pool_module.SPARES_PER_ZYGOTE)
    await run(launcher, "true", str(outside / "ws1"))
    await until(lambda: pool.spares == pool_module.SPARES_PER_ZYGOTE)
    await launcher.close()


async def test_a_spare_sees_what_has_changed_since_it_was_made(pool: Pool, outside: Path) -> None:
    """`.git` came, went and came back while inits were waiting."""
    plan = key(outside, 1).plan
    launcher = ZygoteLauncher(pool, key(outside, 1), lambda: boundary_of(plan).covers)
    folder = outside / "ws1"
    line = "echo x > .git/config; ls -d .git"
    (folder / ".git").mkdir()
    for _ in range(3):
        assert "Read-only" in (await run(launcher, line, str(folder))).output
    await until(lambda: pool.spares == 2)
    (folder / ".git").rename(folder / "old")
    (folder / ".git").mkdir()
    for _ in range(3):
        assert "Read-only" in (await run(launcher, line, str(folder))).output
    (folder / ".git").rmdir()
    (folder / ".git").symlink_to("old")
    for _ in range(3):
        outcome = await run(launcher, "rm .git; echo x > old/config", str(folder))
        assert "cannot remove" in outcome.output and "Read-only" in outcome.output
    await launcher.close()
    assert os.listdir(folder / "old") == []


async def test_a_spare_of_another_session_protects_no_more_than_it_should(pool: Pool, outside: Path) -> None:
    """What is the user's to one session may be the work of another's commands."""
    folder = outside / "ws1"
    (folder / ".git").mkdir(parents=True, exist_ok=True)
    plan = key(outside, 1).plan
    first = ZygoteLauncher(pool, key(outside, 1), lambda: boundary_of(plan).covers)
    second = ZygoteLauncher(pool, key(outside, 1), lambda: boundary_of(plan, own=[f"{folder}/.git"]).covers)
    for _ in range(3):
        assert "Read-only" in (await run(first, "echo x > .git/config", str(folder))).output
        await until(lambda: pool.spares == 2)
        assert (await run(second, "echo x > .git/config", str(folder))).output == ""
    await first.close()
    await second.close()


async def test_closing_one_session_leaves_the_others(
    namespaces: None, outside: Path, workspace: Path, home: Path
) -> None:
    """They share a zygote, but each ends its own commands only."""
    plan = ConfinementPlan((Root(str(workspace)),))
    first, second = Sandbox(Protection(plan, home)), Sandbox(Protection(plan, home))
    env = {"PATH": "/usr/bin:/bin"}
    children = [
        await one.launch(["sleep", "60"], env, str(workspace), Pipes(merge=True), Limits()) for one in (first, second)
    ]
    assert len(zygotes_of(os.getpid())) == 1
    await first.close()
    assert await children[0].wait() == ExitStatus(signal=signal.SIGKILL)
    other = asyncio.create_task(children[1].wait())
    assert (await run(second, "echo x", str(workspace))).output == "x\n"
    assert not other.done()
    await second.close()
    assert await other == ExitStatus(signal=signal.SIGKILL)
    for child in children:
        os.close(child.stdout)
