"""The Seatbelt profile, as text."""

import re
from pathlib import Path

import pytest

from ferrule.process.launcher import LaunchError
from ferrule.process.run import run
from ferrule.sandbox.boundary import Boundary, Cover
from ferrule.sandbox.macos import SeatbeltLauncher, seatbelt_profile
from ferrule.sandbox.plan import RESERVED_NAMES, ConfinementPlan, Root


def writable(profile: str, path: str) -> bool:
    """Whether the last rule that fits allows to write, as Seatbelt decides."""
    allowed = False
    for verdict, filters in re.findall(r"^\((allow|deny) file-write\* (.*)\)$", profile, re.MULTILINE):
        for kind, place in re.findall(r'\((literal|subpath) "([^"]*)"\)', filters):
            if path == place or (kind == "subpath" and path.startswith(place + "/")):
                allowed = verdict == "allow"
    return allowed


def profile_of(plan: ConfinementPlan, *read_only: str) -> str:
    covers = (*plan.read_only, *(f"{root.path}/.git" for root in plan.roots), *read_only)
    return seatbelt_profile(Boundary(plan, tuple(Cover("read", path) for path in covers)))


def test_read_only() -> None:
    profile = profile_of(ConfinementPlan())
    assert profile.startswith("(version 1)\n(deny default)\n(allow file-read*)\n")
    assert "subpath" not in profile
    assert "(allow network*)" not in profile


def test_roots_and_what_is_protected_in_them() -> None:
    plan = ConfinementPlan((Root("/tmp", reserve=False), Root("/w")), read_only=("/w/h/.ferrule",))
    profile = profile_of(plan, "/w/vendor/s/.git")
    for path in ("/w/a", "/w/.github/x", "/tmp/a", "/w/vendor/s/x"):
        assert writable(profile, path), path
    for name in (".git", *RESERVED_NAMES):
        assert not writable(profile, f"/w/{name}") and not writable(profile, f"/w/{name}/x")
    for path in ("/etc/passwd", "/wx", "/w/h/.ferrule/rules/x", "/w/vendor/s/.git/hooks/x"):
        assert not writable(profile, path), path
    for folder in ("/w", "/w/h", "/w/vendor", "/w/vendor/s"):
        assert f'(deny file-write-unlink (literal "{folder}"))' in profile


def test_a_root_in_a_root_does_not_open_what_is_protected() -> None:
    profile = profile_of(ConfinementPlan((Root("/w"), Root("/w/.git"))))
    assert not writable(profile, "/w/.git/config")


def test_network() -> None:
    assert "(allow network*)" in profile_of(ConfinementPlan(network=True))
    assert '(remote ip "localhost:*")' in profile_of(ConfinementPlan())


def test_quoting() -> None:
    profile = profile_of(ConfinementPlan((Root('/w/a "b" \\c'),)))
    assert '(subpath "/w/a \\"b\\" \\\\c")' in profile
    with pytest.raises(LaunchError, match="line break"):
        profile_of(ConfinementPlan((Root("/w/\n(allow default)"),)))


def test_parentheses_balance() -> None:
    plan = ConfinementPlan((Root("/w"),), network=True, read_only=("/w/x",))
    profile = re.sub(r'#?"([^"\\]|\\.)*"', "", profile_of(plan, "/w/a/.git"))
    assert profile.count("(") == profile.count(")")


async def test_a_command_runs_through_sandbox_exec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in takes the place of macOS's program, which no other system has."""
    stand_in = tmp_path / "sandbox-exec"
    stand_in.write_text('#!/bin/sh\necho "$1 $2 $3"\nshift 3\nexec "$@"\n')
    stand_in.chmod(0o755)
    monkeypatch.setattr("ferrule.sandbox.macos.SANDBOX_EXEC", str(stand_in))
    boundary = Boundary(ConfinementPlan(), ())
    launcher = SeatbeltLauncher(lambda: boundary)
    done = await run(launcher, ["echo", "ran"], env={}, cwd=str(tmp_path), timeout_ms=30_000)
    assert done.output.text() == f"-p {seatbelt_profile(boundary)} --\nran\n"
    monkeypatch.setattr("ferrule.sandbox.macos.SANDBOX_EXEC", str(tmp_path / "nowhere"))
    with pytest.raises(LaunchError, match="nowhere is missing"):
        SeatbeltLauncher(lambda: boundary)
