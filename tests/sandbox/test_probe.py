"""The ladder: what is found, what is said, what is refused."""

import sys
from pathlib import Path

import pytest

from ferrule.process.launcher import LaunchError
from ferrule.process.plain import PlainLauncher
from ferrule.sandbox import probe as probe_module
from ferrule.sandbox.plan import ConfinementPlan, Level, Root
from ferrule.sandbox.probe import HOLES, TITLES, ProbeResult, check, openers, probe, try_level
from ferrule.sandbox.protection import Protection
from ferrule.sandbox.sandbox import Sandbox
from tests.sandbox.conftest import require
from tests.sandbox.running import run


class Unconfined(PlainLauncher):
    async def close(self) -> None:
        """Nothing is held."""


async def test_this_machine(namespaces: None, home: Path) -> None:
    result = await probe(home)
    assert result == ProbeResult(Level.NAMESPACES)
    lines = result.lines()
    assert lines[0] == "Sandbox: namespaces, Landlock and a system call filter"
    assert any("every file that you can read" in line for line in lines)
    assert [path.name for path in home.iterdir()] == ["sandbox"]


async def test_the_probe_is_not_fooled(home: Path) -> None:
    with pytest.raises(LaunchError, match="could write into"):
        await check(Unconfined(), home)
    assert list(home.iterdir()) == []


async def test_the_next_level_is_taken(home: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await require(Level.LANDLOCK)
    found = openers(ConfinementPlan(), home / "sandbox")

    def none() -> Unconfined:
        raise LaunchError("not here")

    levels = {Level.NAMESPACES: none, Level.BWRAP: Unconfined, Level.LANDLOCK: found[Level.LANDLOCK]}
    monkeypatch.setattr(probe_module, "openers", lambda *_: levels)
    result = await probe(home)
    assert result.level is Level.LANDLOCK
    assert result.failures[Level.NAMESPACES] == "not here"
    assert "could write" in result.failures[Level.BWRAP]


@pytest.mark.parametrize("platform", ["win32", "sunos5"])
async def test_a_system_without_a_sandbox(
    home: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch, platform: str
) -> None:
    monkeypatch.setattr(sys, "platform", platform)
    assert (await probe(home)).level is Level.NONE


async def test_nothing_enforced_is_refused_unless_accepted(home: Path, workspace: Path) -> None:
    plan = ConfinementPlan((Root(str(workspace)),))
    refusing = Sandbox(Protection(plan, home), levels=[])
    with pytest.raises(LaunchError, match="offers no sandbox"):
        await run(refusing, "true", str(workspace))
    await refusing.close()
    accepting = Sandbox(Protection(plan, home), levels=[], unconfined_accepted=True)
    assert await accepting.level() is Level.NONE
    assert (await run(accepting, "echo x", str(workspace))).output == "x\n"
    await accepting.close()


async def test_a_home_that_cannot_be_protected_is_refused(home: Path, workspace: Path) -> None:
    """Without mounts Ferrule's own folder would be writable inside a root."""
    await require(Level.LANDLOCK)
    plan = ConfinementPlan((Root(str(home.parent)),), read_only=(str(home),))
    sandbox = Sandbox(Protection(plan, home), levels=[Level.LANDLOCK])
    with pytest.raises(LaunchError, match="could write into"):
        await sandbox.level()
    await sandbox.close()


async def test_a_zygote_that_cannot_start(home: Path) -> None:
    for interpreter, message in ((("/bin/false",), "ended"), (("/no/such",), "could not be started")):
        opener = openers(ConfinementPlan(), home / "sandbox", interpreter=interpreter)[Level.NAMESPACES]
        why = await try_level(opener, home)
        assert why is not None and message in why


def test_every_level_has_words() -> None:
    assert set(TITLES) == set(HOLES) == set(Level)
