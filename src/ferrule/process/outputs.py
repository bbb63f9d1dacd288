"""A child's output: captured per stream and in order of arrival, and passed on live."""

import asyncio
from collections.abc import Callable
from typing import Literal

from ferrule.process.capture import Captured, HeadTail
from ferrule.process.launcher import Child
from ferrule.process.streams import Reader

MAX_DELTAS = 10_000
"""Live output pieces for one command; later output is only captured."""

StreamName = Literal["stdout", "stderr"]
OnOutput = Callable[[StreamName, bytes], None]


class Outputs:
    """Both outputs of a child, read until they end. `on_output` gets every piece; a PTY's are labelled stdout. `both`
    takes them combined."""

    def __init__(
        self, child: Child, on_output: OnOutput | None, capture_bytes: int, both: HeadTail | None = None
    ) -> None:
        self._on_output = on_output
        self._separate = child.stderr not in (None, child.stdout)
        self._both = HeadTail(capture_bytes) if both is None else both
        self._stdout = HeadTail(capture_bytes)
        self._stderr = HeadTail(capture_bytes)
        self._readers = [Reader(child.stdout, self._stdout_read if self._separate else self._only_read)]
        if child.stderr is not None and self._separate:
            self._readers.append(Reader(child.stderr, self._stderr_read))

    @property
    def reached_end(self) -> bool:
        """True once no process can write to them any more."""
        return all(reader.reached_end for reader in self._readers)

    @property
    def closed(self) -> bool:
        return all(reader.closed for reader in self._readers)

    async def finish(self, grace: float) -> None:
        """After the exit: wait up to `grace` seconds for the end, take what has arrived, and close. Raises what
        `on_output` raised."""
        await asyncio.gather(*(reader.finish(grace) for reader in self._readers))

    def close(self) -> None:
        for reader in self._readers:
            reader.close()

    def captured(self) -> tuple[Captured, Captured, Captured]:
        """Return stdout, stderr, and both combined."""
        both = self._both.captured()
        if not self._separate:
            return both, Captured(b""), both
        return self._stdout.captured(), self._stderr.captured(), both

    def _only_read(self, data: bytes) -> None:
        self._both.write(data)
        self._tell("stdout", data)

    def _stdout_read(self, data: bytes) -> None:
        self._stdout.write(data)
        self._only_read(data)

    def _stderr_read(self, data: bytes) -> None:
        self._stderr.write(data)
        self._both.write(data)
        self._tell("stderr", data)

    def _tell(self, stream: StreamName, data: bytes) -> None:
        if self._on_output:
            self._on_output(stream, data)


def capped(on_output: OnOutput | None) -> OnOutput | None:
    """Wrap `on_output` so that it is called at most `MAX_DELTAS` times."""
    if on_output is None:
        return None
    left = MAX_DELTAS

    def tell(stream: StreamName, data: bytes) -> None:
        nonlocal left
        if left > 0:
            left -= 1
            on_output(stream, data)

    return tell
