"""The sequence numbers of a Responses stream: detect repeated and missing events."""

FARTHEST_JUMP = 10_000
"""Events that a number may skip; beyond it numbers are something else, such as times."""


class Numbers:
    """Trusted only until two different events share a number, as from bridges that write 0 everywhere."""

    def __init__(self) -> None:
        self._seen: dict[int, int] = {}
        self._first = self._last = 0
        self._trusted = True

    def is_new(self, number: int | None, payload: bytes) -> bool:
        """Return whether this event has not come before."""
        if number is None or not self._trusted:
            return True
        mark = hash(payload)
        if number in self._seen:
            if self._seen[number] == mark:
                return False
            self._trusted = False
            return True
        if not self._seen:
            self._first = self._last = number
        self._seen[number] = mark
        self._first, self._last = min(self._first, number), max(self._last, number)
        self._trusted = self._last - self._first <= len(self._seen) + FARTHEST_JUMP
        return True

    def is_late(self, number: int | None) -> bool:
        """Return whether a later event came before this one."""
        return self._trusted and number is not None and number < self._last

    @property
    def has_gap(self) -> bool:
        """True if a number between the first and the last is missing."""
        return self._trusted and bool(self._seen) and self._last - self._first + 1 > len(self._seen)
