"""Stored sessions: gone on with, searched, forked, gone back in."""

import argparse
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ferrule.cli.commands import terminal
from ferrule.doors.terminal.app import TerminalApp
from ferrule.session.index import SessionIndex
from ferrule.testing import function_call
from ferrule.testing.steps import StepLike
from tests.cli.played import execute
from tests.terminal.screen import Screen, shown


@pytest.fixture
async def spoken(tmp_path: Path) -> AsyncIterator[Screen]:
    """A stored session of two turns."""
    script: list[StepLike] = [execute("echo in the first", 10_000), "One.", "Two.", "Three.", "Four."]
    async with shown(tmp_path, script, ephemeral=False, approval_policy="never") as screen:
        await screen.say("first words")
        await screen.until("^ One.")
        await screen.say("second words")
        await screen.until("^ Two.")
        yield screen


async def test_a_new_session_and_back_to_the_old_one(spoken: Screen) -> None:
    await spoken.say("/new")
    await spoken.until("second words", gone=True)
    await spoken.say("/resume")
    await spoken.until("first words .* 2 turns")
    await spoken.press(*"first", "enter")
    text = await spoken.until("^ Two.")
    assert "› first words" in text and "$ echo in the first" in text and "   in the first" in text
    await spoken.say("third words")
    await spoken.until("^ Three.")
    assert "first words" in spoken.model.last_request.user_text


async def test_a_fork_goes_on_and_leaves_the_first_alone(spoken: Screen) -> None:
    assert spoken.app.desk is not None and spoken.app.desk.talk.session is not None
    first = spoken.app.desk.talk.session
    await spoken.say("/fork")
    await spoken.until("this is a copy of")
    await spoken.say("third words")
    await spoken.until("^ Three.")
    turns = {entry.id: entry.turns for entry in SessionIndex(first.settings.home).entries()}
    assert sorted(turns.values()) == [2, 3] and turns[first.id] == 2


async def test_esc_twice_goes_back_to_an_earlier_message(spoken: Screen) -> None:
    await spoken.press("escape", "escape")
    await spoken.until("Go back to")
    await spoken.press("enter")
    await spoken.until("› second words$")
    assert spoken.app.composer.text == "second words"
    assert "Two." not in spoken.text and "One." in spoken.text
    await spoken.press("enter")
    await spoken.until("^ Three.")
    assert spoken.model.last_request.user_text.count("second words") == 1


async def test_a_session_that_does_not_exist_is_told_and_the_present_one_stays(spoken: Screen) -> None:
    await spoken.say("/resume ffffffff")
    await spoken.until("no session")
    await spoken.say("third words")
    await spoken.until("^ Three.")
    assert "first words" in spoken.model.last_request.user_text


async def test_a_session_that_could_not_be_saved_whole_is_not_read_again(spoken: Screen) -> None:
    session = spoken.app.desk.talk.session if spoken.app.desk is not None else None
    assert session is not None and session._dialogue.record._rollout is not None
    file = session._dialogue.record._rollout._fd
    assert file is not None
    kept = os.dup(file)
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, file)
    await spoken.say("third words")
    await spoken.until("cannot be saved(.|\n)*No space left(.|\n)*^ Three.")
    for command in ("/fork", "/model other"):
        await spoken.say("/help")
        await spoken.until("a part of this session", gone=True)
        await spoken.say(command)
        await spoken.until("a part of this session could not be saved(.|\n)*/compact saves it")
    os.dup2(kept, file)  # there is room again
    os.close(kept)
    os.close(full)
    await spoken.say("/compact")
    await spoken.until("conversation compacted")
    await spoken.say("/fork")
    await spoken.until("this is a copy of")
    assert "third words" in spoken.text


@pytest.mark.parametrize("damage", ["a line", "the directory"])
async def test_a_damaged_session_is_told_when_it_is_shown(spoken: Screen, damage: str) -> None:
    assert spoken.app.desk is not None and spoken.app.desk.talk.session is not None
    talk = spoken.app.desk.talk
    assert talk.session is not None
    [entry] = SessionIndex(talk.settings.home).entries()
    await spoken.say("/new")
    await spoken.until("second words", gone=True)
    data = Path(entry.path).read_bytes()
    if damage == "a line":
        data += b"[1]\n"
    else:
        data = data.replace(entry.cwd.encode(), b"no\\u0000where")
        talk._settings_in = lambda cwd: pytest.fail(f"there are no settings in {cwd!r}")
    Path(entry.path).write_bytes(data)
    await spoken.say(f"/resume {entry.id}")
    if damage == "a line":
        await spoken.until("second words(.|\n)*is damaged: 1 line could not be read")
        await spoken.say("third words")
        await spoken.until("^ Three.")
        assert spoken.text.count("is damaged") == 1
    else:
        await spoken.until("no.x00where no longer exists")


async def test_a_fault_is_told_and_nothing_ends_with_it(spoken: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError("of a test")

    monkeypatch.setattr(SessionIndex, "entries", fail)
    await spoken.say("/resume")
    await spoken.until("fault of Ferrule: ZeroDivisionError..of a test..; the session goes on")
    assert "Traceback" not in spoken.text.split("goes on")[1].replace("Traceback (most", "", 1)
    await spoken.say("third words")
    await spoken.until("^ Three.")


async def test_a_plan_stays_in_sight_when_its_session_is_gone_on_with(tmp_path: Path) -> None:
    plan = {"plan": [{"step": "Look", "status": "completed"}, {"step": "Write", "status": "in_progress"}]}
    script: list[StepLike] = [function_call("update_plan", plan), function_call("update_plan", {"plan": 1}), "One."]
    async with shown(tmp_path, script, ephemeral=False) as screen:
        await screen.say("go")
        await screen.until("^ One.")
        await screen.say("/fork")
        await screen.until("this is a copy of")
        await screen.until("^ Plan 1 of 2\n ✓ Look\n ▸ Write$")
        await screen.say("/new")
        await screen.until("^ Plan", gone=True)


async def test_the_command_line_opens_a_stored_session(
    spoken: Screen, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[argparse.Namespace] = []

    def note(options: argparse.Namespace) -> int:
        opened.append(options)
        return 0

    monkeypatch.setattr(terminal, "_open", note)
    monkeypatch.setenv("FERRULE_HOME", str(tmp_path / ".home"))
    for theirs in (["--last", "a prompt"], ["an-id", "a prompt"], ["--json", "an-id"], []):
        assert terminal.resume(theirs) is None
    assert terminal.resume(["--last", "-C", str(tmp_path)]) == 0
    await spoken.app.close()
    app = TerminalApp(lambda: terminal._opening(opened[0]))
    async with app.run_test() as pilot:
        screen = Screen(app, pilot, spoken.model)
        await screen.until("› first words")
        text = await screen.until("   in the first(.|\n)*^ Two.")
        assert "✓" not in text
        await screen.say("third words")
        await screen.until("^ Three.")
        assert "first words" in screen.model.last_request.user_text
    await app.close()
