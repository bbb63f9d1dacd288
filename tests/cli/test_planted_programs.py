"""Programs that subcommands start, where commands have put others of the same names into the front of PATH."""

from pathlib import Path

import pytest

from ferrule.cli.commands.demo import make_repository
from ferrule.cli.commands.mcp import open_browser
from ferrule.lookup import NOWHERE
from ferrule.protocol.permissions import DangerFullAccess, ReadOnly, SandboxPolicy, WorkspaceWrite
from ferrule.sandbox.policy import command_places
from tests.cli.command import Place

SYSTEM = "/usr/local/bin:/usr/bin:/bin"


def plant(place: Place, monkeypatch: pytest.MonkeyPatch, *names: str) -> Path:
    """Programs in the active `.venv/bin` of the present folder; the file by which they say that they ran."""
    folder, ran = place.cwd / ".venv/bin", place.cwd / "ran"
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).write_text(f"#!/bin/sh\ntouch {ran}\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{SYSTEM}")
    monkeypatch.setenv("FERRULE_HOME", str(place.home))
    monkeypatch.chdir(place.cwd)
    return ran


def test_s09_the_demo_starts_no_planted_git(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = plant(place, monkeypatch, "git")
    make_repository(place.cwd / "slugs")
    assert not ran.exists()


@pytest.mark.parametrize("policy", [ReadOnly(), WorkspaceWrite(), DangerFullAccess()])
def test_s09_a_login_opens_no_planted_browser(
    place: Place, monkeypatch: pytest.MonkeyPatch, policy: SandboxPolicy
) -> None:
    ran = plant(place, monkeypatch, "xdg-open", "www-browser", "w3m")
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")  # a browser in a terminal
    open_browser("http://localhost:1/", command_places(policy, str(place.cwd), str(place.home)))
    assert not ran.exists()
    open_browser("http://localhost:1/", NOWHERE)
    assert ran.exists(), "it would have been found"
