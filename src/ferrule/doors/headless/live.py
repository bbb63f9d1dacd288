"""The live region of a terminal: the text that is arriving, and one line with what happens now."""

import asyncio
import time

from ferrule.doors.headless.prose import PROSE, Prose
from ferrule.doors.headless.terminal import DIM, Terminal
from ferrule.execpolicy import command_text
from ferrule.history.pairs import called_id
from ferrule.process.screen_text import visible_text
from ferrule.protocol.events import (
    ElicitationRequest,
    Event,
    ExecApproval,
    ExecCommandBegin,
    ExecCommandEnd,
    ExecCommandOutputDelta,
    ItemCompleted,
    ItemStarted,
    ItemUpdated,
    McpServerStatus,
    PatchApplyProgress,
    TurnCompleted,
    TurnStarted,
    UserInputRequest,
)
from ferrule.rendering.calls import CommandCall, InputCall, call_line, read_call
from ferrule.rendering.safe import plain
from ferrule.rendering.width import cut, width_of
from ferrule.rendering.words import duration
from ferrule.tools.events import ToolEvent

TICK = 1.0
"""Seconds between two looks at the clock."""
FRAME = 0.1
"""Seconds between two frames: more often nobody can read."""
BUSY_SHARE = 5
"""A frame that took long to make is followed by a pause of so many times that: a long list must not hold up the
session."""
TAIL_BYTES = 4096
"""Bytes kept of the end of an output, to find its last line."""
LEAST_COLUMNS = 8
"""Columns below which a part of the line says nothing."""

THINKING = "Thinking"
_ARRIVING = {"text": "Answering", "reasoning": THINKING, "input": "Writing a call"}


class Live:
    """Keeps the region up to date from the session's events, until `close`. Belongs to the running loop."""

    def __init__(self, out: Terminal) -> None:
        self._out = out
        self._doing = "Starting"
        self._since = time.monotonic()
        self._calls: dict[str, tuple[str, float]] = {}
        self._commands: dict[str, str] = {}
        self._outputs: dict[str, bytes] = {}
        self._last = ""
        """The last line that any command wrote."""
        self._prose: Prose | None = None
        self._kind = ""
        self._timer: asyncio.TimerHandle | None = None
        self._pause = FRAME
        self._closed = False

    def on_event(self, event: Event | ToolEvent) -> None:
        """Note what happens now."""
        match event:
            case TurnStarted():
                self._do(THINKING)
            case ItemUpdated(kind=kind):
                self._do(_ARRIVING.get(kind, self._doing))
            case PatchApplyProgress(changes=changes) if changes:
                self._do(f"Writing a patch to {changes[-1].path}")
            case ItemStarted(item=item):
                if (call := read_call(item.view)) is not None and (call_id := called_id(item.view)) is not None:
                    what = "Waiting for a command" if isinstance(call, InputCall) and not call.text else call_line(call)
                    self._calls[call_id] = plain(what.split("\n")[0]), time.monotonic()
            case ItemCompleted(item=item) if (call_id := called_id(item.view)) is not None:
                if self._calls.pop(call_id, None) and not self._calls:
                    self._do(THINKING, again=True)
            case TurnCompleted():
                self._do("Waiting for what still runs" if self._commands else "Ending", again=True)
            case McpServerStatus(status="starting", server=server):
                self._do(f"Starting {server}")
            case ExecApproval() | UserInputRequest() | ElicitationRequest():
                self._do("Waiting for an answer")
            case _:
                self._follow(event)
        self.touch()

    def _follow(self, event: Event | ToolEvent) -> None:
        match event:
            case ExecCommandBegin(call_id=call_id, command=command):
                self._commands[call_id] = call_line(CommandCall(command_text(command)))
            case ExecCommandOutputDelta(call_id=call_id, chunk=chunk):
                kept = (self._outputs.get(call_id, b"") + chunk[-TAIL_BYTES:])[-TAIL_BYTES:]
                self._outputs[call_id] = kept
                self._last = call_id
            case ExecCommandEnd(call_id=call_id):
                self._commands.pop(call_id, None)
                self._outputs.pop(call_id, None)

    def say(self, kind: str, text: str) -> None:
        """Take text that arrives: `text` or `reasoning`."""
        if kind != self._kind:
            self.end_text()
        if self._prose is None:
            self._prose, self._kind = PROSE[kind](self._out), kind
        self._prose.feed(text)
        self.touch()

    def end_text(self) -> None:
        """Print what has arrived, for good."""
        prose, self._prose, self._kind = self._prose, None, ""
        if prose is not None:
            self._print(prose.take(whole=True))

    def touch(self) -> None:
        """Show a change soon."""
        if self._timer is None:
            self._arm(0.0)
        elif self._timer.when() > asyncio.get_running_loop().time() + self._pause:
            self._arm(self._pause)

    def close(self) -> None:
        """Print what has arrived, and erase the region."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.end_text()
        self._out.show(())

    def _arm(self, delay: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None if self._closed else asyncio.get_running_loop().call_later(delay, self._tick)

    def _tick(self) -> None:
        started = time.monotonic()
        if self._prose is not None:
            self._print(self._prose.take())
        self._out.show(self._region())
        self._pause = max(FRAME, BUSY_SHARE * (time.monotonic() - started))
        self._arm(max(TICK, self._pause))

    def _print(self, rows: list[str]) -> None:
        if rows:
            self._out.line("\n".join(rows))

    def _region(self) -> list[str]:
        """Return the rows of the region: as much of the end of the text as fits, and the line."""
        rows = [] if self._prose is None else self._prose.rest()
        room = self._out.rows - 2
        return [*(rows[-room:] if room > 0 else ()), self._out.style(self._line(self._out.columns - 1), DIM)]

    def _line(self, width: int) -> str:
        what, since = self._now()
        return status_line(what, time.monotonic() - since, self._last_line(), width)

    def _now(self) -> tuple[str, float]:
        """Return what happens, and since when."""
        if self._calls:
            what, since = next(reversed(self._calls.values()))
            return (what if len(self._calls) == 1 else f"{len(self._calls)} calls, {what}"), since
        others = f", {len(self._commands)} running" if self._commands and self._doing == THINKING else ""
        return f"{self._doing}{others}", self._since

    def _last_line(self) -> str:
        output = self._outputs.get(self._last, b"")
        return last_line(output) if output else ""

    def _do(self, what: str, *, again: bool = False) -> None:
        what = plain(what)
        if again or what != self._doing:
            self._doing, self._since = what, time.monotonic()


def status_line(what: str, seconds: float, last: str, width: int) -> str:
    """Return one line of at most `width` cells. The time is always there, the last output only where there is room."""
    spent = duration(seconds)
    room = width - width_of(spent) - 3
    if room < 1:
        return cut(spent, max(width, 0))
    share = room if not last or room < 2 * LEAST_COLUMNS else max(room // 2, room - width_of(last) - 3)
    what = cut(what, share)
    line = f"{what} · {spent}"
    left = width - width_of(line) - 3
    return line if not last or left < LEAST_COLUMNS else f"{line} · {cut(last, left)}"


def last_line(output: bytes) -> str:
    """Return the last line of an output that is not blank, as it stands on a screen."""
    for line in reversed(output.decode("utf-8", "replace").rstrip().split("\n")[-5:]):
        if shown := plain(visible_text(line.rstrip("\r"))):
            return shown
    return ""
