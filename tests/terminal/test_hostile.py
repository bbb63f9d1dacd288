"""Texts, files and programs of others leave the terminal whole, and nothing that was said is lost."""

import asyncio
import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from textual import events

from ferrule.doors.terminal.completion import Files
from ferrule.doors.terminal.dialogs import fitted
from ferrule.doors.terminal.panel import TextEntry
from ferrule.protocol.errors import UsageError
from ferrule.rendering.markdown import styled_rows
from ferrule.session.opening import open_session
from ferrule.testing import Gate, Stall, custom_tool_call, reasoning, step
from ferrule.testing.steps import StepLike
from tests.cli.played import execute
from tests.terminal.screen import Screen, shown
from tests.terminal.test_plain import talking

CONTROLS = frozenset(map(chr, [*range(32), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0xD800, 0xE000)]))


def acting(screen: Screen) -> set[str]:
    """The characters on the screen that act on a terminal, or that none could be told of."""
    strips = screen.app.screen._compositor.render_strips()
    return {char for strip in strips for segment in strip for char in segment.text} & CONTROLS


async def test_a_pasted_tilde_before_no_user_is_text(tmp_path: Path) -> None:
    async with shown(tmp_path) as screen:
        screen.app.composer.post_message(events.Paste("~~gone~~\u3000too"))
        await screen.until("› ~~gone~~\u3000too")


async def test_files_whose_names_cannot_be_written_are_not_suggested(tmp_path: Path) -> None:
    for name in (b"a\xff", b"a\x1b[2J", b"a\nb", b"a b"):
        os.close(os.open(os.path.join(os.fsencode(tmp_path), name), os.O_CREAT))
    assert [one.text for one in await Files(str(tmp_path)).matching("a")] == ["a b"]


async def test_a_folder_whose_name_is_no_text_is_shown(tmp_path: Path) -> None:
    folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/p\xff\x1b[31m\t"))
    folder.mkdir()
    async with shown(folder, size=(200, 24)) as screen:
        assert r"p\udcff\x1b[31m" in screen.text and not acting(screen)


async def test_names_and_entities_cannot_move_the_cursor(tmp_path: Path) -> None:
    patch = "*** Begin Patch\n*** Add File: a\tb.txt\n+x\n*** End Patch"
    script: list[StepLike] = [
        step(reasoning("a\tb\n\nc"), "&#x202e;&#9;&#13;x", custom_tool_call("apply_patch", patch)),
        "Ok.",
    ]
    async with shown(tmp_path, script, approval_policy="never") as screen:
        await screen.say("go")
        await screen.until("Ok.")
        assert "add a b.txt" in screen.text and not acting(screen)
    assert not CONTROLS & set("".join(part.text for line in styled_rows("*&#x202e;*", 20) for part in line))


async def test_a_damaged_history_is_no_danger(tmp_path: Path) -> None:
    async with shown(tmp_path) as screen:
        assert screen.app.desk is not None
        home = Path(screen.app.desk.talk.settings.home)
        home.mkdir(exist_ok=True)
        (home / "prompt_history.jsonl").write_bytes(b'bad\n\xff\n"old\\u001b[31m\\u0007"\n')
        await screen.press("up")
        assert screen.app.composer.text == "old[31m" and not acting(screen)


def test_a_huge_paste_into_a_dialog_is_drawn_at_once() -> None:
    entry = TextEntry(lambda text: None)
    entry.paste("é\x1b[31m\n" * 200_000)
    assert "\x1b" not in entry.text
    assert [row.cell_length for row in entry.rows("Write:", 40)][1] <= 40


async def test_what_is_said_during_a_compaction_is_sent_behind_it(tmp_path: Path) -> None:
    gate = Gate()
    script: list[StepLike] = ["One.", step("Summary.", stall=Stall(gate=gate)), "Two."]
    async with shown(tmp_path, script) as screen:
        await screen.say("first")
        await screen.until("One.")
        await screen.say("/compact")
        await asyncio.to_thread(gate.wait_reached)
        await screen.until("^ Compacting · ")
        await screen.say("second")
        await screen.until("› second")
        gate.open()
        await screen.until("Two.")
        await screen.until("Compacting", gone=True)


async def test_a_session_that_cannot_begin_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, refusals = open_session, iter([True, False, True, True])

    async def refused(*given: Any, **named: Any) -> object:
        if next(refusals):
            raise UsageError("no room")
        return await opened(*given, **named)

    async with shown(tmp_path, ["One.", "Two."]) as screen:
        await screen.say("first")
        await screen.until("One.")
        monkeypatch.setattr("ferrule.session.talk.open_session", refused)
        await screen.say("/new")
        await screen.until("no room")
        await screen.say("second")
        await screen.until("Two.")
        assert "first" in screen.model.last_request.raw.decode()
        await screen.say("/new")
        await screen.until("no room(.|\n)*no room")
        await screen.say("third")
        await screen.until("was not sent; /new begins one")


async def test_what_is_typed_to_search_a_list_answers_no_question(tmp_path: Path) -> None:
    gate = Gate()
    script: list[StepLike] = [step(execute("touch made", 10_000), stall=Stall(gate=gate)), "Ended."]
    async with shown(tmp_path, script) as screen:
        await screen.say("make it")
        await screen.until("Thinking")
        await screen.say("/theme")
        await screen.until("type to search")
        await screen.press("d")
        gate.open()
        await screen.until("Run this command")
        await screen.press("y", "s")
        assert "Run this command" in screen.text and not (tmp_path / "made").exists()


@pytest.mark.parametrize("editor", ["vi '", "sh -c 'rm $0'"])
async def test_an_editor_that_fails_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, editor: str) -> None:
    from ferrule.doors.terminal.editor import edited

    monkeypatch.setenv("VISUAL", editor)
    if editor.startswith("sh"):
        with pytest.raises(UsageError, match="left no message"):
            edited(["/bin/sh", "-c", "rm $0"], "text")
        return
    async with shown(tmp_path) as screen:
        await screen.press("ctrl+g")
        await screen.until("cannot be read as a command")


@pytest.fixture
def own_interrupt() -> Iterator[None]:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("own_interrupt")
async def test_a_line_behind_an_interrupted_question_is_a_message(tmp_path: Path) -> None:
    async with talking(tmp_path, [execute("touch made", 10_000), "Second."]) as lines:
        lines.type("go")
        await lines.until("n, t? ")
        os.kill(os.getpid(), signal.SIGINT)
        await lines.until("interrupted")
        lines.type("again")
        await lines.until("Second.")


async def test_a_long_command_leaves_every_choice_in_a_small_window(tmp_path: Path) -> None:
    async with shown(tmp_path, [execute("touch " + "x" * 5000, 10_000)], size=(40, 12)) as screen:
        await screen.say("go")
        await screen.until("Run this command")
        await screen.until("t no, and tell the model")
        assert "$ touch xxx" in screen.text
        assert not screen.app.screen.show_vertical_scrollbar, "it takes two columns from the dialog"


async def test_ctrl_c_in_an_editor_is_the_editors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def edited() -> str:
        os.kill(os.getpid(), signal.SIGINT)
        return "edited"

    before = signal.getsignal(signal.SIGINT)
    async with shown(tmp_path) as screen:
        monkeypatch.setattr(screen.app, "suspend", nullcontext)  # there is no terminal to lend
        assert await screen.app.lend(edited) == "edited"
        assert signal.getsignal(signal.SIGINT) is before


async def test_after_a_stop_or_a_resize_the_whole_screen_is_drawn_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with shown(tmp_path) as screen:
        drawn: list[bool] = []

        def draw(*, images: bool) -> None:
            drawn.append(images)

        monkeypatch.setattr(screen.app, "draw_again", draw)
        screen.app.app_resume_signal.publish(screen.app)
        await screen.pilot.pause()
        assert drawn == [True]
        await screen.pilot.resize_terminal(80, 24)  # as it is: it was another one within the same frame
        await screen.pilot.pause()
        assert drawn[1:] == [False]


@pytest.mark.parametrize("text", ["а " * 1_000_000, "；" * 2_000_000])
def test_a_huge_command_is_shown_at_once(text: str) -> None:
    started = time.process_time()
    head, *_, hidden, end = fitted(f"rm -rf {text}end", 40, 5)
    assert time.process_time() - started < 1.0, "the whole of it takes many seconds"
    assert head.startswith(r"rm -rf \u") and end.endswith("end")
    assert int(re.sub(r"\D", "", hidden)) > len(text) - 2000
