"""Images by iTerm2's protocol: drawn where their blanks are, once the screen rests, and gone when they move."""

import asyncio
import base64
import os
import signal
import struct
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ferrule.doors.terminal.app import TerminalApp
from ferrule.doors.terminal.images import Picture, can_draw
from ferrule.doors.terminal.inline import PASSED, REST, InlinePicture, InlinePictures
from ferrule.protocol.events import ExecCommandBegin, ExecCommandOutputDelta
from ferrule.session.talk import Opening
from ferrule.testing import ScriptedModel, function_call
from tests.processes import until
from tests.terminal.grid import Grid
from tests.terminal.screen import asking
from tests.terminal.test_composer import PIXEL
from tests.terminal.test_output import png

JPEG = base64.b64encode(bytes.fromhex("ffd8ffc000110800400040030122000211010311010000")).decode()
LINES = 10
COLUMNS = 20


def test_only_terminals_that_draw_images_at_the_cursor_get_them() -> None:
    assert can_draw({"TERM_PROGRAM": "iTerm.app"}) and can_draw({"TERM_PROGRAM": "WezTerm"})
    assert can_draw({"LC_TERMINAL": "iTerm2"}), "over ssh"
    for inside in ("TMUX", "STY", "ZELLIJ"):
        assert not can_draw({"LC_TERMINAL": "iTerm2", inside: "x"})
    assert not can_draw({"TERM": "xterm-256color", "TERM_PROGRAM": "Apple_Terminal"})


class Screen:
    """A canvas whose rows the test sets."""

    image_column = 1
    is_behind = False
    image_seconds = 0.0

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.refreshed = 0
        self.waits: tuple[float, Callable[[], None]] | None = None
        self.image_rows: Mapping[int, tuple[Picture, int]] = {}
        self.pictures = InlinePictures(self.sent.append, self)

    def refresh_images(self) -> None:
        """Count."""
        self.refreshed += 1

    def after_rest(self, seconds: float, do: Callable[[], None]) -> None:
        """Keep it."""
        self.waits = seconds, do

    def frame(self, picture: Picture, first: int, rows: range) -> None:
        """Show these rows of an image, which begins at row `first` of the screen."""
        self.image_rows = {first + row: (picture, row) for row in rows}
        self.pictures.after_frame()

    def rest(self) -> list[str]:
        """Rest; return what is drawn."""
        before = len(self.sent)
        assert self.waits is not None
        (_, do), self.waits = self.waits, None
        do()
        return self.sent[before:]


def test_an_image_is_drawn_where_it_rests_and_stays_while_it_is_there() -> None:
    screen = Screen()
    picture = screen.pictures.place(png(160, 160))
    assert isinstance(picture, InlinePicture) and not screen.sent, "it is not sent before it is seen"
    blank = picture.rows()[0]
    assert blank.text == " " * COLUMNS and len(picture.rows()) == LINES
    for first in (5, 4, 3):
        screen.frame(picture, first, range(LINES))
        assert picture.on_screen(blank, 0, first) is blank and not screen.sent, "not while it scrolls"
    [drawn] = screen.rest()
    data = png(160, 160).partition(",")[2]
    size = f"width={COLUMNS};height={LINES};preserveAspectRatio=1"
    assert drawn == f"\x1b7\x1b[4;2H\x1b]1337;File=inline=1;{size}:{data}\a\x1b8"
    assert picture.on_screen(blank, 2, 5).text == PASSED * COLUMNS and picture.on_screen(blank, 2, 6) is blank
    for _ in range(9):
        screen.frame(picture, 3, range(LINES))
    assert screen.waits is None, "a frame passes over it"
    screen.frame(picture, 3, range(4))
    assert picture.row is None and screen.refreshed == 2 and screen.waits is None, "a part of it is no image"
    screen.frame(picture, 3, range(LINES))
    assert len(screen.rest()) == 1
    screen.pictures.drawn_over()
    assert picture.row is None
    screen.frame(picture, 3, range(LINES))
    assert len(screen.rest()) == 1
    screen.pictures.withdraw()
    assert picture.row is None, "the screen is lent to an editor"
    screen.frame(picture, 3, range(LINES))
    screen.pictures.clear()
    assert not picture.is_there and screen.rest() == []


def test_a_slow_terminal_gets_images_when_it_has_taken_all_and_not_often() -> None:
    screen = Screen()
    picture = screen.pictures.place("data:image/jpeg;base64," + JPEG)
    assert picture is not None
    screen.is_behind, screen.image_seconds = True, 0.4
    screen.frame(picture, 0, range(picture.lines))
    assert screen.waits is not None and screen.waits[0] > 20 * REST
    assert screen.rest() == [] and screen.waits is not None
    screen.is_behind = False
    assert len(screen.rest()) == 1


@asynccontextmanager
async def on_iterm(
    terminal: int, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[tuple[TerminalApp, Grid]]:
    """A session on such a terminal in which the model has looked at an image."""
    monkeypatch.setenv("TERM_PROGRAM", "iTerm.app")
    (folder / "p.png").write_bytes(square(160))
    grid = Grid(terminal)
    with ScriptedModel([function_call("view_image", {"path": "p.png"}), "Ended."]) as model:
        app = TerminalApp(lambda: Opening(settings=asking(folder, model.base_url, approval_policy="never")))
        running = asyncio.create_task(app.run_async())
        await until(lambda: app._is_open)
        os.write(terminal, b"look\r")
        await until(lambda: "Ended." in "".join(grid.rows))
        with app._context():
            yield app, grid
        os.write(terminal, b"/quit\r")
        assert await running == 0
        await app.close()


def square(pixels: int) -> bytes:
    """An image that can be decoded."""
    rows = zlib.compress((b"\0" + bytes(pixels)) * pixels)
    parts = {b"IHDR": struct.pack(">IIBBBBB", pixels, pixels, 8, 0, 0, 0, 0), b"IDAT": rows, b"IEND": b""}
    data = PIXEL[:8]
    for kind, part in parts.items():
        data += struct.pack(">I", len(part)) + kind + part + struct.pack(">I", zlib.crc32(kind + part))
    return data


async def test_images_scroll_are_covered_and_are_drawn_again(
    terminal: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with on_iterm(terminal, tmp_path, monkeypatch) as (app, grid):

        async def shows(condition: Callable[[], bool]) -> None:
            try:
                await until(condition)
            except TimeoutError:
                raise AssertionError("\n".join([str(sorted(app.transcript.image_rows)), *grid.rows])) from None

        def is_whole() -> bool:
            """Whether the image is where the conversation has it, whole, and nowhere else."""
            rows = app.transcript.image_rows
            first = min(rows, default=0)
            return len(rows) == LINES and grid.image_rows == dict.fromkeys(range(first, first + LINES), COLUMNS)

        await shows(is_whole)
        desk = app.desk
        assert desk is not None and grid.draws == 1
        desk.show_event(ExecCommandBegin(call_id="c", command=("make",), cwd="/"))
        for number in range(60):
            chunk = f"line {number}\n".encode()
            desk.show_event(ExecCommandOutputDelta(call_id="c", stream="stdout", chunk=chunk))
            await asyncio.sleep(0.002)
        await shows(lambda: "line 59" in "".join(grid.rows) and is_whole())
        draws = grid.draws
        for _ in range(60):
            app.transcript.tick()
            await asyncio.sleep(0.005)
        assert is_whole() and grid.draws == draws <= 3, "what changes below it does not draw it again"
        desk.note("further\n" * 12)
        await shows(lambda: not grid.image_rows and len(app.transcript.image_rows) < LINES)
        app.transcript.scroll_to(y=2, animate=False)
        await shows(is_whole)
        os.write(terminal, b"/theme\r")
        await shows(lambda: "type to search" in "".join(grid.rows) and (not grid.image_rows or is_whole()))
        app.close_panel()
        app.transcript.scroll_to(y=2, animate=False)
        await shows(is_whole)
        draws = grid.draws
        monkeypatch.setenv("COLUMNS", "60")
        grid.resize(60, 24)
        os.kill(os.getpid(), signal.SIGWINCH)
        await shows(lambda: grid.draws > draws and is_whole())
