"""Sessions that run long: a compaction, a child, a long history, a small window."""

import asyncio
from pathlib import Path

import pytest

from ferrule.protocol.events import ExecCommandBegin, ExecCommandEnd, ExecCommandOutputDelta, ItemUpdated
from ferrule.protocol.settings import Features
from ferrule.testing import Gate, Stall, function_call, reasoning, step
from ferrule.testing.steps import StepLike
from tests.cli.played import execute
from tests.terminal.screen import Screen, shown


async def test_a_conversation_is_compacted_and_goes_on(tmp_path: Path) -> None:
    async with shown(tmp_path, ["One.", "A summary of it.", "Two."]) as screen:
        await screen.say("first words")
        await screen.until("One.")
        await screen.say("/compact")
        await screen.until(r"conversation compacted: [\d,]+ -> [\d,]+ tokens")
        await screen.say("second words")
        await screen.until("Two.")
        assert "A summary of it." in screen.model.last_request.raw.decode()


async def test_a_child_works_in_a_folded_cell_and_its_question_says_who_asks(tmp_path: Path) -> None:
    script: list[StepLike] = [
        function_call("spawn_agent", {"message": "the childs task"}),
        "Started.",
    ]
    features = Features(multi_agent=True)
    async with shown(tmp_path, script, features=features, size=(90, 30)) as screen:
        screen.model.play(execute("touch made", 10_000), "Childs words.", when="the childs task")
        await screen.say("go")
        await screen.until(r"Run this command\? \(sub-agent ")
        await screen.press("y")
        await screen.until("sub-agent .* is done")
        assert (tmp_path / "made").exists()
        await screen.until("Childs words.")


async def test_a_child_at_work_is_not_ended_by_another_model(tmp_path: Path) -> None:
    gate = Gate()
    script: list[StepLike] = [function_call("spawn_agent", {"message": "the childs task"}), "Started."]
    async with shown(tmp_path, script, features=Features(multi_agent=True), ephemeral=False) as screen:
        screen.model.play(step("Childs words.", stall=Stall(gate=gate)), when="the childs task")
        await screen.say("go")
        await screen.until("Started.")
        for command in ("/model other", "/approvals never", "/fork"):
            await screen.say(command)
            await screen.until("sub-agents are still at work, and would be ended")
            await screen.say("/help")
            await screen.until("sub-agents are still", gone=True)
        gate.open()
        session = None if screen.app.desk is None else screen.app.desk.talk.session
        async with asyncio.timeout(20):
            while session is not None and session.has_children_at_work:
                await screen.pilot.pause(0.01)
        await screen.say("/model other")
        await screen.until("now other")


async def flooded(screen: Screen, cells: int) -> None:
    """Show many commands."""
    desk = screen.app.desk
    assert desk is not None
    for number in range(cells):
        call = f"call{number}"
        desk.show_event(ExecCommandBegin(call_id=call, command=("make", str(number)), cwd="/"))
        desk.show_event(ExecCommandOutputDelta(call_id=call, stream="stdout", chunk=b"x" * 100))
        desk.show_event(ExecCommandEnd(call_id=call, exit_code=0, output=f"out {number}\n", duration_ms=1))
        if number % 200 == 0:
            await asyncio.sleep(0)
    await screen.until(f"out {cells - 1}$")


async def test_rows_out_of_sight_are_let_go_and_drawn_again_when_they_are_seen(tmp_path: Path) -> None:
    async with shown(tmp_path) as screen:
        await flooded(screen, 1_000)
        kept = sum(cell._rows is not None for cell in screen.app.transcript.cells)
        assert kept <= 700
        for _ in range(12):
            await screen.press("pageup")
        await screen.until(r"^ \$ make 9[0-8]\d$")

        def read() -> list[str]:
            return [line.rstrip(" ▁▂▃▄▅▆▇█") for line in screen.lines[:-1]]  # but for the scroll bar

        before = read()
        desk = screen.app.desk
        assert desk is not None
        desk.show_event(ItemUpdated(item_id="i", kind="text", delta="New text."))
        await screen.pilot.pause(0.2)
        assert read() == before, "what is read does not move"
        for _ in range(14):
            await screen.press("pagedown")
        await screen.until("New text.")


async def test_a_window_that_changes_its_width_shows_the_same_end(tmp_path: Path) -> None:
    async with shown(tmp_path) as screen:
        await flooded(screen, 300)
        await screen.pilot.resize_terminal(40, 12)
        await screen.until("out 299$")
        assert all(len(line) <= 40 for line in screen.lines) and len(screen.lines) == 12
        await screen.pilot.resize_terminal(100, 40)
        await screen.until("out 293$")


@pytest.mark.parametrize("colored", [True, False])
async def test_without_colours_everything_is_still_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, colored: bool
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    if not colored:
        monkeypatch.setenv("NO_COLOR", "1")
    script: list[StepLike] = [step(reasoning("Thought."), "Said.", execute("exit 3", 10_000)), "Done."]
    async with shown(tmp_path, script, approval_policy="never") as screen:
        await screen.say("go")
        await screen.until("Done.")
        text = screen.text
        assert "command\n $ exit 3\n   ✗ exit 3" in text and "› go" in text
        assert ("#ff2c7a" in screen.app.export_screenshot()) is colored


async def test_a_click_unfolds_one_cell_and_what_is_typed_still_goes_to_the_composer(tmp_path: Path) -> None:
    script: list[StepLike] = [execute("seq 30", 10_000), execute("seq 101 130", 10_000), "Done."]
    async with shown(tmp_path, script, approval_policy="never", size=(80, 45)) as screen:
        await screen.say("go")
        await screen.until("Done.")
        row = screen.lines.index(" $ seq 30")
        await screen.pilot.click(screen.app.transcript, offset=(3, row))
        text = await screen.until("^   15$")
        assert "   115\n" not in text
        await screen.press("x")
        assert screen.app.composer.text == "x"
