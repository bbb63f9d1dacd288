"""Bounded capture: keep the first and last bytes of an output and count the bytes between them."""

from collections import deque

import msgspec

CAPTURE_BYTES = 1024 * 1024
"""Bytes kept of one output: half from its start, half from its end."""
BLOCK_BYTES = 16 * 1024
"""Smaller pieces are gathered into blocks."""


class Captured(msgspec.Struct, frozen=True):
    """A captured output: its first bytes, the number of omitted bytes, its last bytes."""

    head: bytes
    omitted: int = 0
    tail: bytes = b""

    @property
    def total(self) -> int:
        """Bytes written in all."""
        return len(self.head) + self.omitted + len(self.tail)

    def render(self) -> bytes:
        """Return the kept bytes, with a line between them that counts the omitted ones."""
        if not self.omitted:
            return self.head + self.tail
        return b"%b\n... %d bytes omitted ...\n%b" % (self.head, self.omitted, self.tail)

    def text(self) -> str:
        """Return `render()` as text. A character split by the cut is dropped; any other invalid byte becomes U+FFFD."""
        kept = self
        if self.omitted:
            head = self.head[: len(self.head) - unfinished(self.head)]
            tail = self.tail[_orphaned(self.tail) :]
            kept = Captured(head, self.total - len(head) - len(tail), tail)
        return kept.render().decode("utf-8", "replace")


class HeadTail:
    """A buffer that keeps at most `limit` bytes of an output. Large pieces are stored without a copy."""

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
        """Gather small pieces into blocks: stored alone, each would cost many times its size."""
        last = self._tail[-1] if self._tail else None
        if isinstance(last, bytearray) and len(last) < BLOCK_BYTES:
            last += data
        else:
            self._tail.append(bytearray(data))

    def captured(self) -> Captured:
        """Return the output kept so far."""
        head, tail = bytes(self._head), b"".join(self._tail)
        tail = tail[max(len(tail) - self._tail_limit, 0) :]
        return Captured(head, self._total - len(head) - len(tail), tail)

    def drain(self, final: bool = True) -> Captured:
        """Return the output since the last drain. Unless `final`, an incomplete last character waits for its rest."""
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
    """Count the bytes at the end that start an incomplete UTF-8 character: 0 to 3."""
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if byte >= 0xC0:
            length = 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return back if length > back else 0
        if byte < 0x80:
            return 0
    return 0


def _orphaned(data: bytes) -> int:
    """Count the bytes at the start that continue an earlier UTF-8 character: 0 to 3."""
    count = 0
    while count < min(3, len(data)) and 0x80 <= data[count] < 0xC0:
        count += 1
    return count
