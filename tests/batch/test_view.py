"""How far a batch is, as people see it."""

import io
import time

import msgspec

from ferrule.batch.driver import Progress
from ferrule.doors.headless.batch import BatchView
from ferrule.doors.headless.terminal import Terminal

RUNNING = Progress(total=1200, earlier=200, running=8, counts={"done": 480, "error": 20}, passed=300, failed=180)


def view(*, live: bool) -> tuple[BatchView, io.StringIO]:
    stream = io.StringIO()
    now = time.monotonic()
    progress = msgspec.structs.replace(RUNNING, began=now - 100.0, held_until=now + 29.5)
    return BatchView(Terminal(stream, colored=False, live=live), progress), stream


def test_a_terminal_has_a_table() -> None:
    table, stream = view(live=True)
    table.tick()
    shown = stream.getvalue()
    assert "━" * 17 + "─" * 13 + " 700 of 1,200 tasks · 8 running" in shown
    assert "5.0 a second · 1:40 left · 1:40 so far" in shown
    assert "480 done, 20 error, 300 passed, 180 failed" in shown
    assert "the server asks to wait: 30 s" in shown
    table.tick()
    assert stream.getvalue() == shown  # not twice in a moment


def test_elsewhere_a_line_comes_now_and_then() -> None:
    lines, stream = view(live=False)
    lines.tick()
    assert stream.getvalue() == ""
    lines._next = 1.0  # ten seconds have passed
    lines.tick()
    assert stream.getvalue().startswith("ferrule: 700 of 1,200 tasks, 8 running · 5.0 a second · 1:40 left · 480 done")
    assert stream.getvalue().count("\n") == 1


def test_the_first_errors_are_told_and_the_end() -> None:
    lines, stream = view(live=False)
    for number in range(30):
        lines.result(b'{"id": %d, "status": "error", "error": "it \\u001b[31m failed"}' % number)
    lines.result(b'{"id": "x", "status": "done", "error": null}')
    lines.close()
    told = stream.getvalue().splitlines()
    assert len(told) == 11
    assert told[0].startswith("ferrule: task 0: it ") and "\x1b" not in told[0]
    assert told[-1] == ("ferrule: 500 of 1,200 tasks, 200 before, 500 left: 480 done, 20 error, 300 passed, 180 failed")


def test_why_workspaces_are_copies_is_told_once() -> None:
    lines, stream = view(live=False)
    lines.tick()
    lines._progress.notice = "workspaces are copied: it cannot be else"
    lines.tick()
    lines.tick()
    assert stream.getvalue() == "ferrule: workspaces are copied: it cannot be else\n"


def test_a_reader_that_has_gone_ends_nothing() -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    shown = BatchView(Terminal(Gone(), colored=False), RUNNING)
    shown.say("x")
    shown.close()
