"""How the terminal interface is opened, and what is said where it cannot be."""

import io
import subprocess
import sys
from pathlib import Path

import pytest

from ferrule.cli.main import main
from ferrule.config.load import inspect_project
from ferrule.doors.terminal.app import TerminalApp
from ferrule.protocol.errors import FerruleError
from ferrule.protocol.settings import ModelSettings, TuiSettings
from ferrule.session.talk import Opening
from ferrule.testing import ScriptedModel, reasoning, step
from tests.terminal.screen import Screen, asking, shown


def on_terminal(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    """Let standard input and output say that they are a terminal."""
    monkeypatch.setenv("FERRULE_HOME", str(home))
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: True)


def test_without_the_extra_one_sentence_says_how_to_get_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    on_terminal(monkeypatch, tmp_path)
    monkeypatch.setattr("ferrule.cli.commands.terminal.find_spec", lambda name: None)
    assert main([]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "pip install 'ferrule[tui]'" in line and "ferrule exec PROMPT" in line


def test_a_wrong_flag_is_told_before_anything_opens(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    on_terminal(monkeypatch, tmp_path)
    assert main(["--nonsense"]) == 2
    assert "unrecognized arguments: --nonsense" in capsys.readouterr().err


def test_without_a_terminal_the_usage_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "usage: ferrule" in capsys.readouterr().out
    assert main(["-m", "x"]) == 2
    assert "flags come after the command" in capsys.readouterr().err


async def test_what_keeps_a_session_from_opening_ends_the_program(tmp_path: Path) -> None:
    def load() -> Opening:
        raise FerruleError("no key")

    app = TerminalApp(load)
    async with app.run_test() as pilot:
        while app.failure is None:
            await pilot.pause(0.01)
    assert str(app.failure) == "no key"


async def test_what_is_typed_shows_at_once_and_is_said_when_the_session_is_open(tmp_path: Path) -> None:
    import threading

    loading = threading.Event()
    with ScriptedModel(["Heard."]) as model:

        def load() -> Opening:
            loading.wait(20)
            return Opening(settings=asking(tmp_path, model.base_url))

        app = TerminalApp(load)
        async with app.run_test() as pilot:
            screen = Screen(app, pilot, model)
            await screen.press(*"early")
            assert "› early" in screen.text and app.desk is None
            await screen.press("enter")
            loading.set()
            await screen.until("Heard.")
        await app.close()


async def test_a_trusted_project_asks_nothing_and_a_new_file_is_asked_about(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ferrule.config import load
    from ferrule.config.load import Sources

    monkeypatch.setenv("FERRULE_HOME", str(tmp_path / "home"))
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    (project / ".ferrule").mkdir()
    (project / ".ferrule" / "config.toml").write_text('model = "of-the-project"\n')
    sources = Sources(cwd=str(project), base_url="http://127.0.0.1:9/v1", wire="chat")
    for answer in ("1", None):
        loaded = load(sources)
        opening = Opening(settings=loaded.settings, sources=sources if loaded.unconfirmed else None)
        app = TerminalApp(lambda opening=opening: opening)  # type: ignore[misc]
        async with app.run_test(size=(100, 30)) as pilot:
            screen = Screen(app, pilot, ScriptedModel())
            if answer is not None:
                assert 'model = "of-the-project"' in await screen.until("not confirmed")
                await screen.press(answer)
            await screen.until("of-the-project · ")
        await app.close()
    assert inspect_project(str(project)).record is not None


async def test_settings_that_cannot_open_leave_the_session_as_it_was(tmp_path: Path) -> None:
    async with shown(tmp_path, ["One."], model=ModelSettings(model="gpt-5.5")) as screen:
        await screen.say("first")
        await screen.until("One.")
        await screen.say("/model other")
        await screen.until("is not stored")


async def test_keys_and_colours_come_from_the_configuration(tmp_path: Path) -> None:
    tui = TuiSettings(theme="nord", keys={"unfold": "f2", "nonsense": "f3"})
    async with shown(tmp_path, [step(reasoning("First.\nSecond."), "One.")], tui=tui) as screen:
        await screen.until("nothing called nonsense")
        assert screen.app.theme == "nord"
        await screen.say("go")
        await screen.until("First. …")
        await screen.press("ctrl+o")
        assert "Second." not in screen.text
        await screen.press("f2")
        await screen.until("Second.")


def test_the_screen_is_there_before_what_a_session_needs_is_loaded() -> None:
    later = (
        "ferrule.session.session",
        "ferrule.session.talk",
        "ferrule.config",
        "ferrule.sandbox",
        "pydantic",
        "markdown_it",
    )
    code = f"import sys, ferrule.doors.terminal.app; print(*(name for name in {later} if name in sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.strip() == ""
