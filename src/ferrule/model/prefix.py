"""Conversions of history, kept from one request to the next."""

from collections.abc import Callable, Sequence

import msgspec

from ferrule.protocol.items import ResponseItem


class Piece(msgspec.Struct, frozen=True):
    """What the items `start` up to `end` became: complete JSON values, in order."""

    start: int
    end: int
    encoded: tuple[bytes, ...]


Convert = Callable[[Sequence[ResponseItem], int], Piece]
"""The next piece of a history, from an index on. It may look ahead, and so depends on what follows it."""


class PrefixCache:
    """Converts a history that grows at its end: what is the same as last time is not converted again."""

    def __init__(self, convert: Convert) -> None:
        self._convert = convert
        self._items: Sequence[ResponseItem] = ()
        self._pieces: list[Piece] = []

    def encode(self, items: Sequence[ResponseItem]) -> list[bytes]:
        """The JSON values of `items`."""
        same = 0
        for before, now in zip(self._items, items, strict=False):
            if before is not now:
                break
            same += 1
        pieces = self._pieces
        while pieces and pieces[-1].end > same:
            pieces.pop()
        if pieces:
            pieces.pop()  # its conversion looked at what followed it
        index = pieces[-1].end if pieces else 0
        while index < len(items):
            piece = self._convert(items, index)
            pieces.append(piece)
            index = piece.end
        self._items = items
        return [value for piece in pieces for value in piece.encoded]
