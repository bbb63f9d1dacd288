"""What ends a turn that would not end by itself: time, calls, and text that repeats itself."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from ferrule.protocol.errors import FerruleError

REPEATED = 8_000
"""Characters that have to be repeated word for word before an answer is stopped. Tables, logs and code repeat less."""
LONGEST_PERIOD = 12_000
"""Characters of the longest passage whose repetition is noticed: several screens."""
COMMAND_GRACE = 10.0
"""Seconds after a run for a test or build that the model did not wait for; a server would run for ever."""
CHECK_EVERY = 1_000
"""Characters between two looks: a look costs microseconds, and a model says some 4,000 characters a second at most."""


class TurnTimeout(FerruleError, TimeoutError):
    """The turn took longer than `turn_timeout`."""


class RunTimeout(FerruleError, TimeoutError):
    """A headless run took longer than `run_timeout`."""


@asynccontextmanager
async def within(seconds: float | None, error: type[FerruleError], what: str) -> AsyncIterator[None]:
    """Bound the body by `WHAT_timeout`, with an `error` that names it; a timeout of the body's own passes through."""
    try:
        async with asyncio.timeout(seconds) as bound:
            yield
    except TimeoutError as cause:
        if not bound.expired():
            raise
        raise error(f"stopped after {seconds:g} s ({what}_timeout): the {what} was not done") from cause


class Repetition(FerruleError):
    """The model said the same again and again, without an end."""


class CallMissing(FerruleError):
    """The model had to make a call and did not."""


class RepeatWatch:
    """Watches one text while it arrives. `feed` is linear in the text, at the speed of `str.find`."""

    __slots__ = ("_pieces", "_size", "_tail")

    def __init__(self) -> None:
        self._tail = ""
        self._pieces: list[str] = []
        self._size = 0

    def feed(self, delta: str) -> bool:
        """Take more text; return whether its end has been repeating itself for too long."""
        self._pieces.append(delta)
        self._size += len(delta)
        if self._size < CHECK_EVERY:
            return False
        self._tail = (self._tail + "".join(self._pieces))[-(REPEATED + LONGEST_PERIOD) :]
        self._pieces, self._size = [], 0
        return _repeats(self._tail)


def _repeats(text: str) -> bool:
    """Return whether the last `REPEATED` characters stand earlier in the text, too, overlapping or next to them."""
    return len(text) > REPEATED and text.find(text[-REPEATED:], 0, len(text) - 1) >= 0


class Allowance:
    """The tool calls that may still be made, in this turn and in the session."""

    __slots__ = ("_in_run", "_in_turn", "_run_left", "_turn_left")

    def __init__(self, in_turn: int | None, in_run: int | None) -> None:
        self._in_turn = self._turn_left = in_turn
        self._in_run = self._run_left = in_run

    def begin_turn(self) -> str | None:
        """Begin a turn; return what the model is told about its limit, if there is one."""
        self._turn_left = self._in_turn
        left = [number for number in (self._turn_left, self._run_left) if number is not None]
        return f"You can make at most {min(left)} tool calls in this turn; plan with them." if left else None

    def take(self) -> str | None:
        """Take one call; if none is left, return what the model reads of it."""
        if self.is_spent:
            return f"not run: {self.reason}"
        self._turn_left = None if self._turn_left is None else self._turn_left - 1
        self._run_left = None if self._run_left is None else self._run_left - 1
        return None

    @property
    def is_spent(self) -> bool:
        """Whether no call is left."""
        return 0 in (self._turn_left, self._run_left)

    @property
    def reason(self) -> str:
        """Which limit was reached."""
        if self._turn_left == 0:
            return f"the limit of {self._in_turn} tool calls of a turn is reached (max_tool_calls)"
        return f"the limit of {self._in_run} tool calls of a session is reached (run_max_tool_calls)"
