"""Bounded capture: the first and the last bytes of an output are kept, what lies between is counted."""

from collections import deque
from dataclasses import dataclass

CAPTURE_BYTES = 1024 * 1024
"""Bytes kept of one output: half from its start, half from its end."""
BLOCK_BYTES = 16 * 1024
"""Pieces below this are gathered."""


@dataclass(frozen=True, slots=True)
class Captured:
    """What was kept of an output: its first bytes, how many were left out, its last bytes."""

    head: bytes
    omitted: int = 0
    tail: bytes = b""

    @property
    def total(self) -> int:
        """Bytes that were written."""
        return len(self.head) + self.omitted + len(self.tail)

    def render(self) -> bytes:
        """The kept bytes, with a line between them that counts the others."""
        if not self.omitted:
            return self.head + self.tail
        return b"%b\n... %d bytes omitted ...\n%b" % (self.head, self.omitted, self.tail)

    def text(self) -> str:
        """Like `render`, decoded. A character that the cut parted is left out; every other bad byte becomes U+FFFD."""
        kept = self
        if self.omitted:
            head = self.head[: len(self.head) - unfinished(self.head)]
            tail = self.tail[_orphaned(self.tail) :]
            kept = Captured(head, self.total - len(head) - len(tail), tail)
        return kept.render().decode("utf-8", "replace")


class HeadTail:
    """Collects an output into at most `limit` bytes. Large pieces are kept as they are, without a copy."""

    def __init__(self, limit: int = CAPTURE_BYTES) -> None:
        self._head_limit = limit // 2
        self._tail_limit = limit - limit // 2
        self._clear()

    def write(self, data: bytes) -> None:
        self._total += len(data)
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        if len(data) >= BLOCK_BYTES:
            self._tail.append(data)
        elif data:
            self._write_small(data)
        self._tail_bytes += len(data)
        while self._tail and self._tail_bytes - len(self._tail[0]) >= self._tail_limit:
            self._tail_bytes -= len(self._tail.popleft())

    def _write_small(self, data: bytes) -> None:
        """Small pieces are gathered in blocks: each alone would cost many times its size."""
        last = self._tail[-1] if self._tail else None
        if isinstance(last, bytearray) and len(last) < BLOCK_BYTES:
            last += data
        else:
            self._tail.append(bytearray(data))

    def captured(self) -> Captured:
        """What was kept so far."""
        head, tail = bytes(self._head), b"".join(self._tail)
        tail = tail[max(len(tail) - self._tail_limit, 0) :]
        return Captured(head, self._total - len(head) - len(tail), tail)

    def drain(self, final: bool = True) -> Captured:
        """What was kept since the last drain. Unless `final`, a character that ends in mid-air waits for its rest."""
        data = self.captured()
        self._clear()
        whole = data.head + data.tail
        if final or data.omitted or not (waiting := unfinished(whole)):
            return data
        self.write(whole[-waiting:])
        return Captured(whole[:-waiting])

    def _clear(self) -> None:
        self._total = 0
        self._head = bytearray()
        self._tail: deque[bytes | bytearray] = deque()
        self._tail_bytes = 0


def unfinished(data: bytes) -> int:
    """How many bytes at the end are the start of a UTF-8 character whose rest is missing: 0 to 3."""
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte >= 0xC0:
            length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return back if length > back else 0
        if byte < 0x80:
            return 0
    return 0


def _orphaned(data: bytes) -> int:
    """How many bytes at the start continue a character that began before: 0 to 3."""
    count = 0
    while count < min(3, len(data)) and 0x80 <= data[count] < 0xC0:
        count += 1
    return count
