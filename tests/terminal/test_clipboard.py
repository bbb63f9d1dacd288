"""Images from the clipboard, by programs that stand in for wl-paste and its kin: here is no display."""

import base64
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ferrule.doors.terminal import clipboard
from ferrule.doors.terminal.clipboard import clipboard_image, readers
from ferrule.lookup import Places
from ferrule.protocol.errors import UsageError
from ferrule.protocol.permissions import WorkspaceWrite
from ferrule.protocol.settings import Settings
from tests.processes import until
from tests.terminal.screen import shown
from tests.terminal.test_composer import PIXEL, paste


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], Path]:
    """Installs a program that is a script; the desktop is Wayland."""
    programs = tmp_path / "programs"
    programs.mkdir()
    (tmp_path / "work").mkdir()
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(clipboard, "command_places", lambda *_: Places((str(tmp_path / "work"),)))
    monkeypatch.setenv("WAYLAND_DISPLAY", "wayland-0")
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")

    def add(name: str, script: str) -> Path:
        (programs / name).write_text(f"#!/bin/sh\n{script}\n")
        (programs / name).chmod(0o755)
        return programs / name

    return add


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(cwd=str(tmp_path / "work"), home=str(tmp_path / "home"), sandbox_policy=WorkspaceWrite())


def test_the_programs_are_those_of_the_desktop() -> None:
    def names(env: dict[str, str], platform: str = "linux") -> list[str]:
        return [argv[0] for argv in readers(env, platform)]

    assert names({"WAYLAND_DISPLAY": "w", "DISPLAY": ":0"}) == ["wl-paste", "xclip"]
    assert names({"DISPLAY": ":0"}) == ["xclip"] and names({}) == []
    assert names({}, "darwin") == ["pngpaste", "osascript"]


async def test_an_image_on_the_clipboard_is_a_chip_and_is_sent(
    install: Callable[[str, str], Path], tmp_path: Path
) -> None:
    (tmp_path / "p.png").write_bytes(PIXEL)
    install("wl-paste", f'test "$*" = "--no-newline --type image/png" && cat {tmp_path}/p.png')
    async with shown(tmp_path / "work", ["Seen."]) as screen:
        await screen.press("ctrl+v")
        await screen.until("Image #1 from the clipboard")
        await paste(screen, "")
        await screen.until("Image #2 from the clipboard")
        await screen.press("enter")
        await screen.until("Seen.")
        assert screen.model.last_request.raw.count(base64.b64encode(PIXEL)) == 2


SAYS = {
    "exit 1": "there is no image on the clipboard",
    "sleep 60": "not given the clipboard within",
    "head -c 4000 /dev/zero": "larger than",
}


@pytest.mark.parametrize("script", SAYS)
async def test_what_cannot_be_pasted_is_told(
    install: Callable[[str, str], Path], settings: Settings, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    monkeypatch.setattr(clipboard, "LONGEST_IMAGE", 1000)
    monkeypatch.setattr(clipboard, "SECONDS", 0.2 if "sleep" in script else 20)
    install("wl-paste", script)
    with pytest.raises(UsageError, match=SAYS[script]):
        await clipboard_image(settings)


async def test_osascript_writes_hex(
    install: Callable[[str, str], Path], settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.delenv("WAYLAND_DISPLAY")
    install("pngpaste", "exit 1")
    install("osascript", f"echo '«data PNGf{PIXEL.hex().upper()}»'")
    assert await clipboard_image(settings) == PIXEL


async def test_without_a_program_or_with_one_that_a_command_can_have_written_none_is_started(
    install: Callable[[str, str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("wl-paste", "touch ran").rename(tmp_path / "work" / "wl-paste")
    monkeypatch.setenv("PATH", f"{tmp_path}/work:/nowhere")
    async with shown(tmp_path / "work") as screen:
        await screen.press("ctrl+v")
        await screen.until("to paste an image, install wl-paste, or paste the path")
        assert not (tmp_path / "work" / "ran").exists()
        await screen.press(*"cut", "shift+home", "ctrl+x", "ctrl+v")
        await until(lambda: screen.app.composer.text == "cut")
    monkeypatch.delenv("WAYLAND_DISPLAY")
    with pytest.raises(UsageError, match="no clipboard here"):
        await clipboard_image(Settings(cwd=str(tmp_path), home=str(tmp_path)))
