"""The time that a call may take: given anew by each sign of life, stopped while a person is asked."""

import asyncio

MAX_CALL_SECONDS = 3600.0
"""A call that reports progress for ever ends here: an hour is more than anybody waits."""


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
        """A sign of life: the call has all its time again."""
        if self.runs and not self._held:
            self._deadline.reschedule(min(self._loop.time() + self._seconds, self._last))

    def hold(self) -> None:
        """A person is asked: the call has all the time of the world."""
        self._held = True
        if self.runs:
            self._deadline.reschedule(None)

    def release(self) -> None:
        """The person has answered."""
        self._held = False
        self.renew()
