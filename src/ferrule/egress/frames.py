"""Frames of a WebSocket: where do they end? Source: RFC 6455, section 5.2."""

from collections.abc import Iterator

LONGER = {126: 2, 127: 8}
"""Lengths that stand for this many bytes with the real one."""
MASKED = 0x80


class Frames:
    """Finds the ends of frames in bytes that come in parts."""

    def __init__(self) -> None:
        self._head = b""
        self._left = 0

    def cut(self, data: bytes) -> Iterator[tuple[bytes, bool]]:
        """Yield the bytes up to each end, and True; then the rest, and False."""
        begin = at = 0
        while at < len(data):
            if self._left > 0:
                taken = min(self._left, len(data) - at)
                self._left -= taken
                at += taken
            elif not self._read(data[at : (at := at + 1)]):
                continue
            if self._left == 0:
                yield data[begin:at], True
                begin = at
        if begin < at:
            yield data[begin:], False

    def _read(self, byte: bytes) -> bool:
        """Read one byte more of a head. Returns whether it is whole."""
        self._head += byte
        if len(self._head) < 2:
            return False
        length = self._head[1] & ~MASKED
        end = 2 + LONGER.get(length, 0)
        if len(self._head) < end + (4 if self._head[1] & MASKED else 0):
            return False
        self._left = int.from_bytes(self._head[2:end]) if length in LONGER else length
        self._head = b""
        return True
