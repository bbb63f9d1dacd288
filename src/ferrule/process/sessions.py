"""The table of a model's open sessions, by the numbers the model knows."""

import asyncio
import random
from collections.abc import Callable

import msgspec

from ferrule.process.interactive import Collected, Session
from ferrule.protocol.errors import FerruleError
from ferrule.sync import uninterrupted

MAX_SESSIONS = 64
"""More than one model can track; each costs a process, descriptors and its kept output."""
WARN_SESSIONS = 60
"""From this count on, the model is warned that the oldest session will be ended."""
PROTECTED_SESSIONS = 8
"""The most recently used sessions are never ended to make room."""
FIRST_ID, LAST_ID = 1_000, 99_999
"""Ids are drawn at random from this range, so a model cannot guess a session it was never given."""


class UnknownSession(FerruleError):
    """No session has this number: it never existed, or its end has already been reported."""

    def __init__(self, number: int) -> None:
        super().__init__(f"Unknown process id {number}")


class Stored(msgspec.Struct, frozen=True):
    """A session's number, and a warning for the model if the table is nearly full."""

    number: int
    warning: str | None


class SessionTable:
    """A table of at most `MAX_SESSIONS` sessions. `pick` draws a number between two bounds; a taken one is drawn
    again."""

    def __init__(self, pick: Callable[[int, int], int] = random.randint) -> None:
        self._pick = pick
        self._sessions: dict[int, Session] = {}  # least recently used first

    def __len__(self) -> int:
        return len(self._sessions)

    async def store(self, session: Session) -> Stored:
        """Store a session; call it before the first wait, so that an interrupted wait does not lose it.

        A full table first ends one session: the least recently used exited one, or else the least recently used.
        """
        number = self._free_number()
        evicted = self._sessions.pop(self._to_evict()) if len(self._sessions) >= MAX_SESSIONS else None
        self._sessions[number] = session
        if evicted:
            await uninterrupted(evicted.end())
        return Stored(number, self._warning())

    def open(self) -> list[tuple[int, Session]]:
        """Return the stored sessions by number, the least recently used first."""
        return list(self._sessions.items())

    def get(self, number: int) -> Session:
        """Return the session and mark it as used. Raises `UnknownSession`."""
        if number not in self._sessions:
            raise UnknownSession(number)
        session = self._sessions[number] = self._sessions.pop(number)
        return session

    async def collect(self, number: int, yield_ms: int) -> Collected:
        """Call `Session.collect`; free the number once the end is reported. Raises `UnknownSession`."""
        session = self.get(number)
        collected = await session.collect(yield_ms)
        if collected.ended and self._sessions.get(number) is session:
            del self._sessions[number]
        return collected

    async def end_all(self) -> None:
        """End every session and forget it. Raises the first error of an `on_exit`, after all have ended."""
        sessions, self._sessions = self._sessions, {}
        results = await asyncio.gather(*(session.end() for session in sessions.values()), return_exceptions=True)
        for fault in filter(None, results):
            raise fault

    def _free_number(self) -> int:
        while (number := self._pick(FIRST_ID, LAST_ID)) in self._sessions:
            pass
        return number

    def _to_evict(self) -> int:
        candidates = list(self._sessions)[:-PROTECTED_SESSIONS]
        exited = (number for number in candidates if self._sessions[number].ended)
        return next(exited, candidates[0])

    def _warning(self) -> str | None:
        count = len(self._sessions)
        if count < WARN_SESSIONS:
            return None
        return (
            f"{count} sessions are open and at most {MAX_SESSIONS} can be: end those that are no longer needed or use "
            "one again, or the least recently used will be ended"
        )
