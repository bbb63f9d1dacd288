"""The time limit of a call: each sign of life renews it, and it stops while a person is asked."""

import asyncio

MAX_CALL_SECONDS = 3600.0
"""A call that reports progress for ever ends after an hour, longer than anybody waits."""


class CallClock:
    """Moves the `deadline` of one call. Once that is `over` or reached, nothing moves it any more."""

    def __init__(self, deadline: asyncio.Timeout, seconds: float) -> None:
        self._deadline = deadline
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._last = self._loop.time() + MAX_CALL_SECONDS
        self._held = False
        self.over = False

    @property
    def runs(self) -> bool:
        """Whether somebody still waits for the call."""
        return not self.over and not self._deadline.expired()

    def renew(self) -> None:
        """Give the call its full time again, after a sign of life."""
        if self.runs and not self._held:
            self._deadline.reschedule(min(self._loop.time() + self._seconds, self._last))

    def hold(self) -> None:
        """Stop the clock while a person is asked."""
        self._held = True
        if self.runs:
            self._deadline.reschedule(None)

    def release(self) -> None:
        """Start the clock again after the answer."""
        self._held = False
        self.renew()
