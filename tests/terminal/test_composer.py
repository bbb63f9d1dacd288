"""The composer: history, completion, pasted things, commands, shell commands, an editor."""

import asyncio
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from textual import events

from ferrule.doors.terminal.completion import MOST, Files, commands_for, file_word
from ferrule.doors.terminal.history import FILE, KEPT_BYTES, PromptHistory
from ferrule.protocol.content import InputImage
from ferrule.session.file_names import best
from ferrule.testing import Gate, Stall, step
from ferrule.testing.steps import StepLike
from tests.processes import until
from tests.terminal.screen import Screen, shown

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d49484452000000010000000108060000001f15c4890000000d49444154789c6360000002000001e221bc330000"
    "000049454e44ae426082"
)


async def paste(screen: Screen, text: str) -> None:
    """Paste as a terminal does."""
    screen.app.composer.post_message(events.Paste(text))
    await screen.pilot.pause()


async def test_earlier_messages_come_back_also_those_of_other_sessions(tmp_path: Path) -> None:
    PromptHistory(str(tmp_path / ".home")).add("of yesterday")
    async with shown(tmp_path, ["One."]) as screen:
        await screen.say("of today")
        await screen.until("One.")
        await screen.press(*"half", "up")
        assert screen.app.composer.text == "of today"
        await screen.press("up", "up")
        assert screen.app.composer.text == "of yesterday"
        await screen.press("down", "down")
        assert screen.app.composer.text == "half"
    assert (tmp_path / ".home" / FILE).stat().st_mode & 0o777 == 0o600


def test_a_history_that_is_damaged_or_cannot_be_written_is_a_shorter_one(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b'"a"\nno json\n"b"\n')
    history = PromptHistory(str(tmp_path))
    assert history.entries == ["a", "b"]
    nowhere = PromptHistory("/proc/nowhere")
    nowhere.add("kept here only")
    assert nowhere.earlier("") == "kept here only"


@pytest.mark.parametrize("damage", ["pipe", "device", "folder", "link to itself"])
def test_a_history_that_is_no_file_holds_nothing_up(tmp_path: Path, damage: str) -> None:
    file = tmp_path / FILE
    match damage:
        case "pipe":
            os.mkfifo(file)
        case "device":
            file.symlink_to("/dev/zero")
        case "folder":
            file.mkdir()
        case _:
            file.symlink_to(file)
    history = PromptHistory(str(tmp_path))
    history.add("kept here only")
    assert history.earlier("") == "kept here only"


def test_a_line_behind_one_that_was_cut_is_a_line_of_its_own(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b'"a"\n"half')
    PromptHistory(str(tmp_path)).add("whole")
    assert PromptHistory(str(tmp_path)).entries == ["a", "whole"]


def test_sessions_that_write_at_once_lose_nothing_also_where_the_file_is_cut(tmp_path: Path) -> None:
    (tmp_path / "kept").write_bytes(b'"old"\n' * (KEPT_BYTES // 6 - 200))
    (tmp_path / FILE).symlink_to(tmp_path / "kept")
    histories = [PromptHistory(str(tmp_path)) for _ in range(5)]

    def write(number: int) -> None:
        for turn in range(100):
            histories[number].add(f"{number} {turn}")

    with ThreadPoolExecutor(5) as pool:
        list(pool.map(write, range(5)))
    found = PromptHistory(str(tmp_path)).entries
    assert {f"{number} {turn}" for number in range(5) for turn in range(100)} <= set(found)
    assert (tmp_path / "kept").stat().st_size < KEPT_BYTES and (tmp_path / FILE).is_symlink()


async def test_a_file_is_completed_and_ignored_ones_are_not(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / ".gitignore").write_text("ignored.py\n")
    for name in ("source/module.py", "ignored.py", "other.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    async with shown(tmp_path, ["Seen."]) as screen:
        await screen.press(*"see @modpy")
        await screen.until("^ source/module.py")
        assert "ignored.py" not in screen.text
        await screen.press("tab")
        assert screen.app.composer.text == "see source/module.py "
        await screen.until("^ source/module.py$", gone=True)


def test_a_hundred_thousand_files_are_matched_without_a_pause() -> None:
    paths = [f"folder{number % 300}/part{number % 7}/file{number}.py" for number in range(100_000)]
    started = time.monotonic()
    assert best("file99999", paths, MOST)[0].endswith("/file99999.py")
    assert best("f1p2fi31", paths, MOST) and best("zzz", paths, MOST) == []
    assert time.monotonic() - started < 10


async def test_the_files_are_listed_once_however_many_keys_ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, goes_on = list[str](), threading.Event()

    def listed(cwd: str) -> list[str]:
        begun.append(cwd)
        goes_on.wait(20)
        return ["file.py"]

    monkeypatch.setattr("ferrule.doors.terminal.completion._listed", listed)
    files = Files(str(tmp_path))
    for query in ("f", "fi", "fil"):
        asked = asyncio.create_task(files.matching(query))
        await asyncio.sleep(0)
        asked.cancel()
    last = asyncio.create_task(files.matching("file"))
    await asyncio.sleep(0)
    goes_on.set()
    assert [one.text for one in await last] == ["file.py"] and await files.matching("x") == []
    assert begun == [str(tmp_path)]


def test_the_closest_match_comes_first() -> None:
    paths = ["a/b/render.py", "render/other.py", "lib/xrender.py", "r/e/n/d/e/r.py"]
    assert best("render", paths, MOST) == ["a/b/render.py", "lib/xrender.py", "render/other.py", "r/e/n/d/e/r.py"]
    assert file_word("see @a/b") == "a/b" and file_word("me@example.org") is None
    assert [one.text for one in commands_for("/m", [("/model", ""), ("/memory", ""), ("/compact", "")])] == [
        "/model", "/memory", "/compact",
    ]  # fmt: skip


async def test_a_long_paste_is_a_chip_and_is_sent_whole(tmp_path: Path) -> None:
    text = "\n".join(f"line {number}" for number in range(40))
    async with shown(tmp_path, ["Read."]) as screen:
        await screen.press(*"look: ")
        await paste(screen, text)
        assert screen.app.composer.text == "look: [Pasted text #1, 40 lines]"
        await screen.press("enter")
        await screen.until("Read.")
        assert screen.model.last_request.user_text.endswith(f"look: {text}")
        await paste(screen, "short\x1b[2Jer")
        assert screen.app.composer.text == "short[2Jer"


async def test_an_image_that_is_dropped_is_sent_as_one(tmp_path: Path) -> None:
    (tmp_path / "a b.png").write_bytes(PIXEL)
    async with shown(tmp_path, ["Seen."]) as screen:
        await paste(screen, str(tmp_path / "a b.png").replace(" ", "\\ "))
        assert screen.app.composer.text == "[Image #1 a b.png]"
        parts = screen.app.composer._parts(screen.app.composer.text)
        assert isinstance(parts[0], InputImage)
        await screen.press("enter")
        await screen.until("Seen.")
        assert b"data:image/png;base64," in screen.model.last_request.raw


async def test_a_command_is_completed(tmp_path: Path) -> None:
    async with shown(tmp_path) as screen:
        await screen.press(*"/sta")
        await screen.until("^ /status +show")
        await screen.press("enter")
        await screen.until("^ session +[0-9a-f]")


TOLD = {
    "/help": "list the skills",
    "/tools": "^ exec_command",
    "/mcp": "no MCP servers",
    "/skills": "no skills",
    "/agents": "no kinds",
    "/memory": "nothing is remembered",
    "/copy": "no answer to copy",
    "/undo": "nothing to take back",
    "/compact": "nothing to compact",
    "/theme nonsense": "no theme nonsense",
    "/approvals nonsense": "unknown approval policy",
    "/nonsense": "no command /nonsense",
    "/prompts:none": "no prompt",
}


async def test_commands_that_only_tell(tmp_path: Path) -> None:
    async with shown(tmp_path) as screen:
        for command, shows in TOLD.items():
            await screen.say(command)
            await screen.until(shows)
        assert not screen.model.requests


async def test_what_needs_rest_waits_for_the_end_of_the_turn(tmp_path: Path) -> None:
    gate = Gate()
    async with shown(tmp_path, [step("One.", stall=Stall(gate=gate))]) as screen:
        await screen.say("first")
        await screen.until("Thinking")
        await screen.say("/new")
        await screen.until("/new has to wait")
        gate.open()
        await screen.until("One.")


async def test_a_shell_command_runs_and_the_model_reads_of_it(tmp_path: Path) -> None:
    async with shown(tmp_path, ["Seen."], approval_policy="never") as screen:
        await screen.say("!echo by hand; pwd")
        await screen.until(r"✓ exit 0 · ")
        assert "   by hand" in screen.lines and f"   {tmp_path}"[:40] in screen.text
        assert not screen.model.requests
        await screen.say("go on")
        await screen.until("Seen.")
        assert b"by hand" in screen.model.last_request.raw


async def test_a_shell_command_that_fails_is_told_once_and_one_that_is_refused_is_told(tmp_path: Path) -> None:
    async with shown(tmp_path) as screen:
        await screen.say("!echo out; exit 3")
        await screen.until("Run this command")
        await screen.press("y")
        text = await screen.until("✗ exit 3")
        assert "Output:" not in text
        await screen.say("!touch never")
        await screen.until("Run this command")
        await screen.press("n")
        await screen.until("rejected by user")
        await screen.say("!touch never")
        await screen.until("Run this command")
        await screen.press("escape")
        await screen.until("^ ended before it began: touch never")


async def test_what_would_end_a_shell_command_waits_for_it(tmp_path: Path) -> None:
    async with shown(tmp_path, approval_policy="never") as screen:
        await screen.say("/fork")
        await screen.until("nothing was said yet, so there is nothing to copy")
        await screen.say("!sleep 60")
        await screen.until(r"… \d s")
        await screen.say("/new")
        await screen.until("/new has to wait until your command has ended; Esc interrupts it")
        await screen.press("escape")
        await screen.until("✗ ")
        await screen.until("^ ! sleep 60 · ", gone=True)
        await screen.say("/new")
        await screen.until("sleep 60", gone=True)


@pytest.mark.parametrize("waits", [250, 30_000])
async def test_esc_ends_a_shell_command_also_when_its_tool_no_longer_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waits: int
) -> None:
    monkeypatch.setattr("ferrule.builtin.exec_command.DEFAULT_YIELD_MS", waits)
    async with shown(tmp_path, ["Seen."], approval_policy="never") as screen:
        await screen.say("!echo begun; sleep 60")
        await screen.until("^   begun")
        desk = screen.app.desk
        assert desk is not None
        talk = desk.talk
        if waits == 250:
            await until(lambda: bool(talk._for_model))
        assert "! echo begun; sleep 60 · " in screen.lines[-1]
        desk.do("x" * 200)
        await screen.until(r"x… · \d s$")
        desk.do("")
        await screen.press("escape")
        await screen.until("✗ ")
        await screen.until("! echo", gone=True)
        await screen.say("go on")
        await screen.until("Seen.")
        assert b"has ended this command" in screen.model.last_request.raw


@pytest.mark.parametrize(
    ("tool", "limit"), [("exec_command", "DEFAULT_YIELD_MS"), ("shell_command", "DEFAULT_TIMEOUT_MS")]
)
async def test_a_shell_command_runs_to_its_end_and_the_model_reads_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: str, limit: str
) -> None:
    monkeypatch.setattr(f"ferrule.builtin.{tool}.{limit}", 100)
    async with shown(tmp_path, ["Seen."], approval_policy="never", tools=(tool,)) as screen:
        await screen.say("!echo early; sleep 0.5; echo la''te")
        await screen.until("^   late")
        await screen.until("^   ✓ exit 0")
        await screen.until("! echo", gone=True)
        await screen.say("go on")
        await screen.until("Seen.")
        assert b"early" in screen.model.last_request.raw and b"late" in screen.model.last_request.raw


async def test_a_shell_command_leaves_the_turn_what_it_does_and_the_other_way_round(tmp_path: Path) -> None:
    gate = Gate()
    script: list[StepLike] = [step("Answer.", stall=Stall(at="Ans", gate=gate))]
    async with shown(tmp_path, script, approval_policy="never") as screen:
        await screen.say("go")
        await screen.until("^ Answering · ")
        await screen.say("!sleep 60; true")
        await screen.until("sleep 60")
        await screen.say("!echo by hand")
        await screen.until("^   by hand")
        await screen.until("✓ exit 0")
        assert screen.lines[-1].startswith(" Answering · ")
        gate.open()
        await screen.until("^ ! sleep 60; true · ")
        await screen.press("escape")
        await screen.until("^ ! sleep", gone=True)


async def test_a_model_and_a_policy_are_chosen_and_the_conversation_goes_on(tmp_path: Path) -> None:
    async with shown(tmp_path, ["One.", "Two."], ephemeral=False) as screen:
        await screen.say("first")
        await screen.until("One.")
        await screen.say("/model")
        await screen.until("scripted-model")
        await screen.press("enter")
        await screen.until("now scripted-model")
        await screen.say("/approvals never")
        await screen.until("danger-full-access · never")
        await screen.say("second")
        await screen.until("Two.")
        assert screen.model.last_request.body["model"] == "scripted-model"
        assert "first" in screen.model.last_request.user_text


async def test_ctrl_d_quits_where_nothing_is_written_and_deletes_else(tmp_path: Path) -> None:
    async with shown(tmp_path) as screen:
        await screen.press("a", "b", "home", "ctrl+d")
        assert screen.app.composer.text == "b" and screen.app.return_code is None
        await screen.press("ctrl+d", "ctrl+d")
        assert screen.app.composer.text == "" and screen.app.return_code == 0


@pytest.mark.parametrize("rest", ["status", "status "])
async def test_enter_takes_the_command_that_is_written_and_not_what_was_suggested_before(
    tmp_path: Path, rest: str
) -> None:
    async with shown(tmp_path) as screen:
        await screen.press("/")
        await screen.until("^ /model")
        composer = screen.app.composer
        composer.insert(rest)
        if not composer._on_suggestion_key("enter"):
            composer.submit()
        await screen.until("^ session +[0-9a-f]")
