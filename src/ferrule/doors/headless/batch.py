"""How far a batch is: a table on a terminal, a line now and then elsewhere."""

import time
from contextlib import suppress

import msgspec

from ferrule.batch.driver import Progress
from ferrule.batch.tasks import TaskId
from ferrule.doors.headless.terminal import RED, Terminal
from ferrule.rendering.safe import plain
from ferrule.rendering.width import cut
from ferrule.rendering.words import duration

FRAME = 0.2
"""Seconds between two frames of the table."""
LINE = 10.0
"""Seconds between two lines where there is no terminal."""
BAR = 30
"""Cells of the bar."""
SHOWN_ERRORS = 10
"""Errors that are told as they happen; the results have all of them."""


class _Failure(msgspec.Struct):
    id: TaskId
    error: str | None = None
    status: str = ""


class BatchView:
    """Shows a batch. `tick` is called often, and `result` with each line of the results. The batch goes on when nobody
    is left to read this."""

    def __init__(self, out: Terminal, progress: Progress) -> None:
        self._out = out
        self._progress = progress
        self._next = 0.0
        self._errors = 0
        self._notice = ""

    def tick(self) -> None:
        """Show how far it is, if it is time to."""
        if self._progress.notice != self._notice:
            self._notice = self._progress.notice
            self.say(self._notice)
        now = time.monotonic()
        if now < self._next:
            return
        if self._out.live:
            self._out.show([cut(row, self._out.columns - 1) for row in self._table(now)])
        elif self._next:
            self._line(self._progress_line(now))
        self._next = now + (FRAME if self._out.live else LINE)

    def result(self, line: bytes) -> None:
        """Tell of an error; the first ones."""
        failure = msgspec.json.decode(line, type=_Failure)
        if failure.status == "error" and self._errors < SHOWN_ERRORS:
            self.say(f"task {failure.id!r}: {failure.error}")
        self._errors += failure.status == "error"

    def say(self, text: str) -> None:
        """Say a sentence, above the table."""
        self._line(self._out.style(plain(f"ferrule: {text}"), RED))

    def close(self) -> None:
        """Take the table away, and say what came of it all."""
        self._out.show(())
        self._line(self._summary())

    def _line(self, text: str) -> None:
        with suppress(BrokenPipeError):
            self._out.line(text)

    def _table(self, now: float) -> list[str]:
        progress = self._progress
        done = progress.earlier + progress.done
        full = BAR * done // max(progress.total, 1)
        rows = [
            f"{'━' * full}{'─' * (BAR - full)} {done:,} of {progress.total:,} tasks · {progress.running:,} running",
            f"{self._rate(now)} · {duration(now - progress.began)} so far",
            self._counts(),
        ]
        return [*rows, *self._hold(now)]

    def _progress_line(self, now: float) -> str:
        progress = self._progress
        done = progress.earlier + progress.done
        parts = [f"{done:,} of {progress.total:,} tasks, {progress.running:,} running", self._rate(now)]
        return "ferrule: " + " · ".join(filter(None, [*parts, self._counts(), *self._hold(now)]))

    def _rate(self, now: float) -> str:
        progress, spent = self._progress, now - self._progress.began
        if not progress.done or spent <= 0:
            return "no result yet"
        rate = progress.done / spent
        said = f"{rate:,.1f} a second" if rate >= 1 else f"{rate * 60:,.1f} a minute"
        return f"{said} · {duration(progress.left / rate)} left"

    def _hold(self, now: float) -> list[str]:
        left = self._progress.held_until - now
        return [f"the server asks to wait: {duration(left + 1)}"] if left > 0 else []

    def _counts(self) -> str:
        progress = self._progress
        parts = [f"{count:,} {status.replace('_', ' ')}" for status, count in sorted(progress.counts.items())]
        if progress.passed or progress.failed:
            parts.append(f"{progress.passed:,} passed, {progress.failed:,} failed")
        return ", ".join(parts)

    def _summary(self) -> str:
        progress = self._progress
        earlier = f", {progress.earlier:,} before" if progress.earlier else ""
        left = f", {progress.left:,} left" if progress.left else ""
        counts = f": {self._counts()}" if progress.done else ""
        return f"ferrule: {progress.done:,} of {progress.total:,} tasks{earlier}{left}{counts}"
