"""Converted history, cached from one request to the next."""

from collections.abc import Callable, Sequence

import msgspec

from ferrule.protocol.items import ResponseItem


class Piece(msgspec.Struct, frozen=True):
    """The conversion of items `start` up to `end`: complete JSON values, in order."""

    start: int
    end: int
    encoded: tuple[bytes, ...]


Convert = Callable[[Sequence[ResponseItem], int], Piece]
"""Converts the next piece of a history, from an index on. It may look ahead, so it depends on what follows."""


class PrefixCache:
    """A cache for append-only histories: the part unchanged since last time is neither converted nor joined again."""

    def __init__(self, convert: Convert) -> None:
        self._convert = convert
        self._items: Sequence[ResponseItem] = ()
        self._lineage: object | None = None
        self._ends: list[tuple[int, int, int]] = []
        """The end of each piece: among the items, and in the text; and where its last value begins there."""
        self._text = bytearray()

    def encode(self, items: Sequence[ResponseItem], lineage: object | None = None) -> bytearray:
        """Return the JSON values of `items`, separated by commas. Valid until the next call.

        If `lineage` is not None and the same as before, items have only been appended.
        """
        grown = lineage is not None and lineage is self._lineage and len(items) >= len(self._items)
        same = len(self._items) if grown else _length_of_same(self._items, items)
        self._lineage = lineage
        ends = self._ends
        while ends and ends[-1][0] > same:
            ends.pop()
        if ends:
            ends.pop()  # its conversion looked at what followed it
        index, length, begin = ends[-1] if ends else (0, 0, 0)
        del self._text[length:]
        while index < len(items):
            piece = self._convert(items, index)
            for value in piece.encoded:
                if self._text:
                    self._text += b","
                begin = len(self._text)
                self._text += value
            ends.append((piece.end, len(self._text), begin))
            index = piece.end
        self._items = items
        return self._text

    def last_values(self, count: int) -> list[tuple[int, int]]:
        """Return where the last values of the last pieces stand in the text: beginnings and ends, in order."""
        places = dict.fromkeys((begin, end) for _, end, begin in self._ends[-4 * count :] if end)
        return list(places)[-count:]


def _length_of_same(before: Sequence[ResponseItem], now: Sequence[ResponseItem]) -> int:
    """Count the leading items that are the same objects."""
    if now[: len(before)] == before:  # list equality stops at identical objects
        return len(before)
    same = 0
    for one, other in zip(before, now, strict=False):
        if one is not other:
            break
        same += 1
    return same
