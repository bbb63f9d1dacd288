"""What the terminal gets: images, and what becomes of it all when nobody reads."""

import asyncio
import base64
import os
import re
import struct
import threading
import zlib
from contextlib import suppress
from pathlib import Path

import pytest

from ferrule.doors.terminal.app import TerminalApp
from ferrule.doors.terminal.driver import MOST_FRAMES, MOST_WAITING, Outlet
from ferrule.doors.terminal.images import APC, KEPT, LONGEST_IMAGE, Pictures, can_place
from ferrule.protocol.content import InputImage, InputText
from ferrule.protocol.events import (
    FileChange,
    ItemCompleted,
    ItemStarted,
    PatchApplyBegin,
    PatchApplyEnd,
    ViewImage,
)
from ferrule.protocol.payload import ToolOutput
from ferrule.session.talk import Opening
from ferrule.testing import ScriptedModel, function_call
from tests.processes import until
from tests.terminal.screen import SECONDS, asking
from tests.terminal.test_cells import Told, call
from tests.terminal.test_composer import PIXEL

KITTY = {"TERM": "xterm-kitty", "COLORTERM": "truecolor"}
PNG = "data:image/png;base64,"
PLACEHOLDER = "\U0010eeee"


def png(width: int, height: int, more: int = 0) -> str:
    """The address of an image of this size, with `more` bytes in it."""
    data = PIXEL[:16] + width.to_bytes(4, "big") + height.to_bytes(4, "big") + PIXEL[24:] + bytes(more)
    return PNG + base64.b64encode(data).decode()


def whole_png() -> bytes:
    """An image of one pixel that can be decoded."""
    parts = {b"IHDR": struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0), b"IDAT": zlib.compress(b"\0\0"), b"IEND": b""}
    data = PIXEL[:8]
    for kind, part in parts.items():
        data += struct.pack(">I", len(part)) + kind + part + struct.pack(">I", zlib.crc32(kind + part))
    return data


def test_only_terminals_that_hang_images_on_cells_get_them() -> None:
    assert can_place(KITTY, "truecolor") and can_place({"TERM_PROGRAM": "ghostty"}, "truecolor")
    assert not can_place(KITTY, "256") and not can_place(KITTY | {"NO_COLOR": "1"}, "truecolor")
    for inside in ("TMUX", "STY", "ZELLIJ"):
        assert not can_place(KITTY | {inside: "x"}, "truecolor")
    assert not can_place({"TERM": "xterm-256color", "TERM_PROGRAM": "iTerm.app"}, "truecolor")


@pytest.mark.parametrize(
    ("size", "cells"),
    [((1, 1), (1, 1)), ((80, 80), (10, 5)), ((4000, 2000), (32, 8)), ((100, 4000), (1, 16)), ((4000, 10), (32, 1))],
)
def test_an_image_is_sent_once_and_shown_by_cells(size: tuple[int, int], cells: tuple[int, int]) -> None:
    sent: list[str] = []
    picture = Pictures(sent.append).place(png(*size, more=9000))
    assert picture is not None and (picture.columns, picture.lines) == cells
    [sequence] = sent
    pieces = re.findall(r"\x1b_G([^;]*);([^\x1b]*)\x1b\\", sequence)
    assert "".join(data for _, data in pieces) == png(*size, more=9000)[len(PNG) :]
    assert max(len(data) for _, data in pieces) <= 4096
    assert pieces[0][0] == f"a=T,U=1,f=100,i={picture.number},c={cells[0]},r={cells[1]},q=2,m=1"
    assert [head[-1] for head, _ in pieces] == ["1"] * (len(pieces) - 1) + ["0"]
    rows = picture.rows()
    assert [strip.cell_length for strip in rows] == [cells[0]] * cells[1]
    [segment] = list(rows[-1])
    assert segment.style is not None and segment.style.color is not None and segment.style.color.triplet is not None
    assert int.from_bytes(bytes(segment.style.color.triplet), "big") == picture.number


@pytest.mark.parametrize(
    "url",
    [
        "https://a.example/p.png", "data:image/jpeg;base64,/9j/", PNG, png(9, 9)[:-4] + "\x1b\\x", PNG + "AAAA",
        png(9, 9, LONGEST_IMAGE), png(1 << 20, 1 << 20), png(0, 9),
    ],
)  # fmt: skip
def test_what_is_too_large_or_no_png_or_not_base64_is_not_sent(url: str) -> None:
    sent: list[str] = []
    assert Pictures(sent.append).place(url) is None and not sent


def test_the_oldest_images_give_way_and_all_are_taken_away() -> None:
    sent: list[str] = []
    pictures = Pictures(sent.append)
    told = Told(pictures.place)
    url = png(80, 80, LONGEST_IMAGE // 2)
    told.conversation.say("look", [InputImage(url)])
    assert told.text(80).count(PLACEHOLDER) == 50
    for _ in range(KEPT // len(url)):
        last = pictures.place(url)
    assert told.text(80) == "› look\n\nimage of yours" and last is not None
    pictures.clear()
    assert not last.is_there
    placed = re.findall(r"a=T.*?i=(\d+)", "".join(sent))
    assert sorted(re.findall(r"a=d,d=I,i=(\d+)", "".join(sent))) == sorted(placed)


def test_an_image_that_a_call_looks_at_is_shown_below_its_name() -> None:
    told = Told(Pictures(lambda sequence: None).place)
    item = call("view_image", {"path": "p.png"})
    output = ToolOutput((InputImage(png(80, 80)),))
    told.hear(ItemStarted(item=item), ViewImage(call_id="c", path="/p.png"), ItemCompleted(item=item, output=output))
    lines = told.text(80).split("\n")
    at = lines.index("image /p.png")
    assert [line.count(PLACEHOLDER) for line in lines[at : at + 7]] == [0, 10, 10, 10, 10, 10]
    assert PLACEHOLDER not in told.text(9), "cells that are too narrow show the line"


@pytest.mark.parametrize("ended", [True, False])
def test_what_a_tool_writes_is_shown_below_its_call_and_ends_with_it(ended: bool) -> None:
    told = Told(Pictures(lambda sequence: None).place)
    item = call("image_generation", {"prompt": "a red wall"})
    changes = (FileChange(kind="add", path="a-red-wall.png"),)
    told.hear(ItemStarted(item=item), PatchApplyBegin(call_id="c", changes=changes, cwd="/w"))
    assert told.text(80).count("… 0 s") == 2
    if not ended:
        told.conversation.abort()
        assert told.text(80).count("✗ interrupted") == 2
        return
    output = ToolOutput((InputText("The image is in a-red-wall.png."), InputImage(png(80, 80))))
    looks = ViewImage(call_id="c", path="/w/a-red-wall.png")
    told.hear(PatchApplyEnd(call_id="c", success=True), looks, ItemCompleted(item=item, output=output))
    assert [line for line in told.text(80).split("\n") if line and PLACEHOLDER not in line] == [
        'image_generation(prompt="a red wall")', "  The image is in a-red-wall.png.", "  ✓ done",
        "edit a-red-wall.png", "  add a-red-wall.png +0 -0", "  ✓ done", "image /w/a-red-wall.png",
    ]  # fmt: skip
    assert told.text(80).count(PLACEHOLDER) == 50


def drain(descriptor: int, into: bytearray, size: int = -1) -> None:
    """Read what is written there."""
    with suppress(OSError):
        while size < 0 or len(into) < size:
            if not (data := os.read(descriptor, 65536)):
                return
            into.extend(data)


def test_what_nobody_reads_is_bounded_and_the_newest_comes_when_somebody_does() -> None:
    reader, writer = os.pipe()
    caught_up = threading.Event()
    images: list[bool] = []
    with os.fdopen(writer, "w") as stream:

        def note(dropped: bool) -> None:
            images.append(dropped)
            caught_up.set()

        outlet = Outlet(stream, note)
        outlet.write(f"{APC}image;\x1b\\")
        for number in range(1000):
            outlet.write(f"<frame {number}>" + "x" * 10_000)
            assert outlet.waiting <= MOST_FRAMES
        outlet.write("<end>")
        seen = bytearray()
        thread = threading.Thread(target=drain, args=(reader, seen))
        thread.start()
        assert caught_up.wait(SECONDS) and not any(images)
        outlet.settle(SECONDS)
    thread.join(SECONDS)
    os.close(reader)
    assert seen.startswith(APC.encode()) and seen.endswith(b"<end>") and b"<frame 999>" in seen
    assert len(seen) < 2 * MOST_FRAMES


def test_images_that_nobody_reads_are_bounded_and_sent_again() -> None:
    reader, writer = os.pipe()
    images: list[bool] = []
    with os.fdopen(writer, "w") as stream:
        outlet = Outlet(stream, images.append)
        for _ in range(MOST_WAITING // 1_000_000 + 2):
            outlet.write(APC + "x" * 1_000_000)
            assert outlet.waiting <= MOST_WAITING
        thread = threading.Thread(target=drain, args=(reader, bytearray()))
        thread.start()
        outlet.settle(SECONDS)
    thread.join(SECONDS)
    os.close(reader)
    assert images == [True]


async def test_a_terminal_that_nobody_reads_holds_nothing_up_and_gets_the_screen_later(
    terminal: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", KITTY["TERM"])
    (tmp_path / "p.png").write_bytes(whole_png())
    with ScriptedModel([function_call("view_image", {"path": "p.png"}), "Ended."]) as model:
        app = TerminalApp(lambda: Opening(settings=asking(tmp_path, model.base_url, approval_policy="never")))
        running = asyncio.create_task(app.run_async())
        await until(lambda: app._is_open)
        os.write(terminal, b"look\r")
        desk = app.desk
        await until(lambda: desk is not None and desk.conversation.last_answer == "Ended.")
        for _ in range(200):  # Textual's own queue takes 30, and then waits
            app.tell_terminal("\x1b[m" * 1000)
        seen = bytearray()
        threading.Thread(target=drain, args=(terminal, seen), daemon=True).start()
        await until(lambda: b"Ended." in seen)
        os.write(terminal, b"/quit\r")
        assert await running == 0
        await app.close()
        await until(lambda: b"\x1b[?25h" in seen)
    text = seen.decode(errors="replace")
    [number] = re.findall(r"\x1b_Ga=T,U=1,f=100,i=(\d+),", text)
    assert PLACEHOLDER in text and text.index("\x1b_Ga=T") < text.rindex(f"\x1b_Ga=d,d=I,i={number}")
    assert text.rindex("a=d,d=I") < text.rindex("\x1b[?1049l")
