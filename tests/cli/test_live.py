"""What `exec` shows on a terminal while it works, and what stays there."""

import asyncio
import os
import random
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ferrule.doors.headless.live import last_line, status_line
from ferrule.doors.headless.prose import Answer
from ferrule.doors.headless.terminal import Terminal
from ferrule.rendering.width import chopped, cut, width_of
from ferrule.rendering.words import duration
from ferrule.testing import Gate, ScriptedModel, Stall, raw, reasoning, step
from ferrule.testing.steps import StepLike
from tests.cli.command import COMMAND, FULL_ACCESS, Place
from tests.cli.played import execute, play
from tests.cli.tty import Tty
from tests.processes import alive, eventually

STATUS = re.compile(r" · \d+ s( · |$)")
"""The line at the bottom."""
MARKDOWN = "# Title\n\nOne **bold** word, `code` and <T>.\n\n- item\n\n```py\nx = 1\n```\n\nLast *words*."
RENDERED = ["Title", "", "One bold word, code and <T>.", "", " • item", "", "x = 1", "", "Last words."]


@pytest.fixture
async def tty() -> AsyncIterator[Tty]:
    with Tty(80, 24).watched() as made:
        yield made


@pytest.mark.parametrize("columns", [20, 80])
async def test_one_line_says_what_happens_and_nothing_of_it_stays(tmp_path: Path, tty: Tty, columns: int) -> None:
    gate = Gate()
    tty.resize(columns, 24)
    call = execute("echo progress; until [ -e go ]; do sleep 0.02; done; exit 3", 30_000)
    script: list[StepLike] = [step(call, stall=Stall(gate=gate)), "Done."]
    run = asyncio.create_task(play(tmp_path, script, out=tty.terminal({})))
    thinking = await tty.until(r"Thinking · \d+ s")
    gate.open()
    working = await tty.until(r"\$ ech.* · \d+ s" + (" · progress" if columns > 20 else ""))
    tty.resize(30, 24)
    later = await tty.until(r"· ([2-9]|\d\d+) s")
    (tmp_path / "go").touch()
    await run
    await tty.until("tokens in")
    assert width_of(thinking) < columns and width_of(working) < columns and width_of(later) < 30
    assert not [line for line in tty.screen if STATUS.search(line)]
    assert "  progress" in tty.screen and "  ✗ exit 3" in "\n".join(tty.screen)
    assert not tty.raw.count(b"\x1b[?7l") - tty.raw.count(b"\x1b[?7h"), "lines wrap again"


async def test_an_answer_streams_as_markdown_and_stays_once(tmp_path: Path, tty: Tty) -> None:
    gate = Gate()
    answer = step(reasoning("I think\nso."), MARKDOWN, stall=Stall(at="Last *w", gate=gate), delta_chars=7)
    run = asyncio.create_task(play(tmp_path, [answer], out=tty.terminal({"NO_COLOR": "1"})))
    await tty.until("Last ")
    assert "One bold word, code and <T>." in tty.screen and STATUS.search(tty.screen[-1])
    gate.open()
    await run
    await tty.until("tokens in")
    place = tty.screen.index("Title")
    assert tty.screen[place : place + len(RENDERED)] == RENDERED
    assert tty.screen[place - 3 : place] == ["I think", "so.", ""]
    assert sum("bold" in line for line in tty.screen) == 1
    assert b"\x1b[1m" not in tty.raw and b"\x1b[2m" not in tty.raw, "no colours with NO_COLOR"


async def test_a_long_block_shows_its_end_and_scrolls_nothing_away_twice(tmp_path: Path, tty: Tty) -> None:
    gate = Gate()
    tty.resize(40, 10)
    items = "".join(f"- item {number}\n" for number in range(40))
    answer = step(items, stall=Stall(at="item 39", gate=gate))
    run = asyncio.create_task(play(tmp_path, [answer], out=tty.terminal({})))
    await tty.until("item 38")
    gate.open()
    await run
    await tty.until("tokens in")
    shown = [line for line in tty.screen if "item" in line]
    assert shown == [f" • item {number}" for number in range(40)]
    frames = re.findall(rb"\x1b\[\?7l(.*?)\x1b\[\?7h", tty.raw, re.DOTALL)
    assert max(frame.count(b"\n") for frame in frames) == 8, "9 of 10 rows: no frame scrolls the one before away"


async def test_a_window_that_is_closed_interrupts(place: Place, tty: Tty) -> None:
    with ScriptedModel([execute("echo $$ > pid; sleep 60", 30_000)]) as model:
        child = await asyncio.create_subprocess_exec(
            *COMMAND, "exec", "--base-url", model.base_url, "--wire", "responses", "-m", "gpt-5.5", *FULL_ACCESS, "go",
            cwd=place.cwd, env=place.env({"TERM": "xterm"}), preexec_fn=lambda: os.login_tty(tty.slave),
        )  # fmt: skip
        await tty.until(r"sleep 60 · [1-9]")
        tty.hang_up()
        assert await child.wait() == 130
    assert eventually(lambda: not alive(int((place.cwd / "pid").read_text())))


async def test_what_others_write_to_standard_error_stands_above_the_line(tmp_path: Path, tty: Tty) -> None:
    gate = Gate()
    out = tty.terminal({})
    with out.for_stderr():
        run = asyncio.create_task(play(tmp_path, [step("Done.", stall=Stall(gate=gate))], out=out))
        await tty.until("Thinking")
        print("!", file=sys.stderr)
        print("half a line", end="", file=sys.stderr)
        await tty.until("half a line")
        await tty.until("Thinking")
        gate.open()
        await run
    await tty.until("tokens in")
    assert "!" in tty.screen and "half a line" in tty.screen


def test_a_very_long_block_is_not_drawn_whole() -> None:
    answer = Answer(Terminal(sys.stderr, colored=False))
    answer.feed("```\n" + "".join(f"line {number}\n" for number in range(2_000)))
    assert answer.rest()[-2] == "line 1999" and len(answer.rest()) < 1_000
    assert len(answer.take(whole=True)) == 2_001


async def test_a_failure_leaves_nothing_either(tmp_path: Path, tty: Tty) -> None:
    gate = Gate()
    failing = raw(b"{}", status=400, stall=Stall(gate=gate))
    run = asyncio.create_task(play(tmp_path, [failing], out=tty.terminal({})))
    await tty.until("Thinking")
    gate.open()
    assert "400" in (await run).error
    tty.read()
    assert not [line for line in tty.screen if STATUS.search(line)]


@pytest.mark.parametrize("env", [{"TERM": "dumb"}, {"TERM": ""}])
async def test_a_terminal_that_cannot_move_its_cursor_gets_plain_text(
    tmp_path: Path, tty: Tty, env: dict[str, str]
) -> None:
    await play(tmp_path, [step(MARKDOWN)], out=tty.terminal(env))
    await tty.until("tokens in")
    assert b"\x1b" not in tty.raw
    assert "One **bold** word, `code` and <T>." in tty.screen


async def test_a_refusal_while_the_line_is_shown_leaves_nothing(tmp_path: Path, tty: Tty) -> None:
    asked = execute("echo x", sandbox_permissions="require_escalated", justification="may I?")
    await play(tmp_path, [asked, "Done."], out=tty.terminal({}))
    await tty.until("tokens in")
    assert not [line for line in tty.screen if STATUS.search(line)]
    assert any("escalated" in line for line in tty.screen)


@pytest.mark.parametrize("shown", [1, 2], ids=["stdout", "stderr"])
async def test_each_stream_is_shown_as_what_it_is(place: Place, tty: Tty, shown: int) -> None:
    with ScriptedModel([step(MARKDOWN)]) as model:
        other = (place.cwd / "other").open("wb")
        out, err = (tty.slave, other) if shown == 1 else (other, tty.slave)
        child = await asyncio.create_subprocess_exec(
            *COMMAND, "exec", "--base-url", model.base_url, "--wire", "responses", "-m", "m", *FULL_ACCESS, "go",
            cwd=place.cwd, env=place.env({"TERM": "xterm", "NO_COLOR": "1"}), stdin=asyncio.subprocess.DEVNULL,
            stdout=out, stderr=err,
        )  # fmt: skip
        other.close()
        assert await child.wait() == 0
    await tty.until("Last words.")
    written = (place.cwd / "other").read_text()
    assert MARKDOWN in written and "\x1b" not in written, "raw where no terminal is"
    assert not [line for line in tty.screen if STATUS.search(line)]


async def test_ctrl_c_in_the_middle_leaves_a_clean_terminal(place: Place, tty: Tty) -> None:
    gate = Gate()
    shell = 'trap : INT; "$@"; echo code $?; read end'  # the leader stays: what it did not read goes with its terminal
    with ScriptedModel([step(MARKDOWN, stall=Stall(at="One *", gate=gate), delta_chars=6)]) as model:
        child = await asyncio.create_subprocess_exec(
            "/bin/sh", "-c", shell, "sh", *COMMAND, "exec", "--base-url", model.base_url, "--wire", "responses",
            "-m", "m", *FULL_ACCESS, "go",
            cwd=place.cwd, env=place.env({"TERM": "xterm"}), preexec_fn=lambda: os.login_tty(tty.slave),
        )  # fmt: skip
        await tty.until("One")
        tty.type(b"\x03")
        await tty.until("code 130")
        gate.open()
        tty.type(b"\n")
        await child.wait()
    assert not [line for line in tty.screen if STATUS.search(line) or "^C" in line]
    assert tty.screen[-3:-1] == ["", "interrupted"]


@pytest.mark.parametrize(
    ("output", "line"),
    [
        (b"one\ntwo\n\n", "two"),
        (b"10%\r20%\r30%", "30%"),
        (b"10%\r\n", "10%"),
        (b"\x1b[31mred\x1b[0m\x1b[2J\x1b]0;title\x07", "red"),
        (b"a\tb\x00\xff", "a b\ufffd"),
        (b"\xe6\x97", "\ufffd"),
        (b"", ""),
    ],
)
def test_the_last_line_of_an_output_is_plain(output: bytes, line: str) -> None:
    assert last_line(output) == line


@pytest.mark.parametrize("width", [*range(40), 79])
@pytest.mark.parametrize("last", ["", "ok", "日本語 and a long line of output that is cut somewhere"])
def test_the_line_fits_whatever_the_width(width: int, last: str) -> None:
    line = status_line("$ 日本語 make -j8 all check install", 75, last, width)
    assert width_of(line) <= width
    assert "1:15" in line or width < 4


def test_times_and_cuts() -> None:
    assert [duration(seconds) for seconds in (0.9, 59.9, 60, 3599, 3600)] == ["0 s", "59 s", "1:00", "59:59", "1:00:00"]
    assert [cut("日本語", width) for width in (6, 5, 4, 1, 0)] == ["日本語", "日本…", "日…", "…", ""]
    assert chopped("a日本b", 3) == ["a日", "本b"]


def test_an_answer_in_any_pieces_is_the_same() -> None:
    blocks = (
        MARKDOWN,
        "1. one\n\n   more\n2. two",
        "| a | b |\n|---|---|\n| 1 | 2 |",
        "> quote\nlazy",
        "End\n---",
        "    code\n",
    )
    text = "\n\n".join((*blocks, "End\n---", "    code\n"))
    out = Terminal(sys.stderr, colored=False)
    whole = Answer(out)
    whole.feed(text)
    wanted = [row for row in whole.take(whole=True) if row]
    for seed in range(40):
        rest, answer, rows = text, Answer(out), []
        while rest:
            size = random.Random(f"{seed} {len(rest)}").randint(1, 12)
            answer.feed(rest[:size])
            rest = rest[size:]
            rows += answer.take()
        rows += answer.take(whole=True)
        assert [row for row in rows if row] == wanted, seed
