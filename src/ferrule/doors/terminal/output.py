"""What a command wrote, as much of it as is kept: its beginning and its end."""

from ferrule.process.screen_text import visible_text

HEAD_BYTES = 16 * 1024
TAIL_BYTES = 48 * 1024
"""Bytes kept of each output: a thousand lines, whatever it wrote."""
LIVE_BYTES = 4096
"""Bytes at the end in which the newest lines are looked for."""


class Output:
    """Grows by `add`; a finished one is set by `text`."""

    __slots__ = ("_head", "_lost", "_tail")

    def __init__(self) -> None:
        self._head = b""
        self._tail = bytearray()
        self._lost = 0

    def add(self, chunk: bytes) -> None:
        """Take more."""
        room = HEAD_BYTES - len(self._head)
        if room > 0:
            self._head += chunk[:room]
            chunk = chunk[room:]
        self._tail += chunk
        if len(self._tail) > 2 * TAIL_BYTES:
            self._cut()

    def replace(self, text: str) -> None:
        """Take the whole in place of what has come so far."""
        self._head, self._tail, self._lost = b"", bytearray(), 0
        self.add(text.encode(errors="replace"))
        self._cut()

    def _cut(self) -> None:
        over = len(self._tail) - TAIL_BYTES
        if over > 0:
            del self._tail[:over]
            self._lost += over

    def shorten(self, size: int) -> None:
        """Keep no more than `size` bytes of each end."""
        lost = max(len(self._tail) - size, 0) + max(len(self._head) - size, 0)
        if lost:
            self._tail = self._tail[-size:] if size else bytearray()
            self._head = self._head[:size]
            self._lost += lost

    @property
    def size(self) -> int:
        """Bytes kept."""
        return len(self._head) + len(self._tail)

    def lines(self, count: int) -> list[str]:
        """Return the last lines."""
        end = bytes(self._tail[-LIVE_BYTES:]) or self._head[-LIVE_BYTES:]
        shown = _lines(end)
        return shown[-count:]

    def all_lines(self) -> list[str]:
        """Return every line that is kept, with one that says how much is not."""
        if not self._lost:
            return _lines(self._head + self._tail)
        return [*_lines(self._head), f"… {self._lost:,} bytes that are not kept …", *_lines(bytes(self._tail))]


def _lines(data: bytes) -> list[str]:
    text = visible_text(data.decode(errors="replace")).rstrip("\n")
    return text.split("\n") if text else []
