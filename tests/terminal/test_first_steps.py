"""The whole of it in small: say something, see it done, answer, interrupt, quit."""

import re
from pathlib import Path

import pytest

from ferrule.testing import Gate, Stall, custom_tool_call, reasoning, step
from tests.cli.played import execute
from tests.terminal.screen import shown

PATCH = "*** Begin Patch\n*** Add File: hello.txt\n+hello\n+world\n*** End Patch"


async def test_an_answer_streams_and_a_command_is_a_cell(tmp_path: Path) -> None:
    gate = Gate()
    script = [
        step(reasoning("**Looking**\nat it"), "I look *first*.", execute("seq 3; exit 3", 10_000)),
        step("# Title\n\nfound **it**", stall=Stall(at="found", gate=gate), delta_chars=9),
    ]
    async with shown(tmp_path, script, approval_policy="never") as screen:
        await screen.say("look")
        await screen.until("✗ exit 3 · ")
        at = screen.lines.index(" command")
        assert screen.lines[at : at + 5] == [" command", " $ seq 3; exit 3", "   1", "   2", "   3"]
        assert screen.lines[at - 6 : at] == [" › look", "", " · Looking …", "", " I look first.", ""]
        await screen.until("^ Title")
        gate.open()
        await screen.until("^ found it$")


@pytest.mark.parametrize(("key", "done"), [("y", True), ("n", False), ("s", True)])
async def test_a_command_waits_for_an_answer(tmp_path: Path, key: str, done: bool) -> None:
    async with shown(tmp_path, [execute("touch made", 10_000), "Ended."]) as screen:
        await screen.say("make it")
        await screen.until("Run this command")
        assert not (tmp_path / "made").exists()
        await screen.press(key)
        await screen.until("Ended.")
        assert (tmp_path / "made").exists() is done
        assert "Run this command" not in screen.text


async def test_what_the_user_says_with_a_no_reaches_the_model(tmp_path: Path) -> None:
    async with shown(tmp_path, [execute("touch made", 10_000), "Ended."]) as screen:
        await screen.say("make it")
        await screen.until("Run this command")
        await screen.press("t", *"rather not", "enter")
        await screen.until("Ended.")
        assert "rather not" in "".join(screen.model.outputs().values())


async def test_a_patch_is_a_diff_with_line_numbers(tmp_path: Path) -> None:
    async with shown(tmp_path, [custom_tool_call("apply_patch", PATCH), "Written."]) as screen:
        await screen.say("write")
        await screen.until("Write this patch")
        await screen.press("y")
        await screen.until("Written.")
        at = screen.lines.index(" edit hello.txt")
        assert screen.lines[at + 1 : at + 4] == ["   add hello.txt +2 -0", "   1 + hello", "   2 + world"]


async def test_esc_interrupts_and_never_quits(tmp_path: Path) -> None:
    async with shown(tmp_path, [execute("sleep 60", 60_000), "Again."], approval_policy="never") as screen:
        await screen.say("wait")
        await screen.until(r"… \d s")
        await screen.press("escape")
        await screen.until("^ interrupted")
        await screen.press("escape", "escape", "escape")
        await screen.say("on")
        await screen.until("Again.")


async def test_what_is_said_meanwhile_steers(tmp_path: Path) -> None:
    gate = Gate()
    async with shown(tmp_path, [step("One.", stall=Stall(gate=gate)), "Two."]) as screen:
        await screen.say("first")
        await screen.until("Thinking")
        await screen.say("second")
        gate.open()
        await screen.until("Two.")
        assert "second" in screen.model.last_request.user_text


async def test_quit_ends_with_0_and_an_unknown_command_is_not_sent(tmp_path: Path) -> None:
    async with shown(tmp_path) as screen:
        await screen.say("/nonsense now")
        await screen.until("no command /nonsense")
        await screen.say("/quit")
    assert screen.app.return_value == 0
    assert not screen.model.requests


async def test_enter_sends_and_other_keys_break_the_line(tmp_path: Path) -> None:
    async with shown(tmp_path, ["Seen."]) as screen:
        await screen.press("a", "ctrl+j", "b", "shift+enter", "c")
        assert re.search(r"› a\n +b\n +c", screen.text)
        await screen.press("enter")
        await screen.until("Seen.")
        assert screen.model.last_request.user_text.endswith("a\nb\nc")


async def test_ctrl_c_twice_quits(tmp_path: Path) -> None:
    async with shown(tmp_path) as screen:
        await screen.press("x", "ctrl+c")
        await screen.until("Ctrl-C again quits")
        assert screen.app.composer.text == ""
        await screen.press("ctrl+c")
    assert screen.app.return_value == 0
