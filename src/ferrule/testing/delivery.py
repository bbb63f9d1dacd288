"""The delivery of an answer's bytes: in pieces, late, with a pause on the way, or cut off."""

import asyncio
import random
import threading
from collections.abc import Iterator, Sequence
from typing import TypedDict

import msgspec

_MOST_RANDOM_BYTES = 64


class RandomChunks(msgspec.Struct, frozen=True):
    """Pieces of 1 to `most` bytes, the same for the same seed."""

    seed: int
    most: int = _MOST_RANDOM_BYTES


# One size for all pieces, sizes in turn (the rest is sent as one piece), or random sizes.
Chunks = int | Sequence[int] | RandomChunks


class Gate:
    """A point where the server waits until the test lets it continue. Usable from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = False
        self._reached = threading.Event()
        self._waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []

    def open(self) -> None:
        """Let the waiting response and every later one pass."""
        with self._lock:
            self._open = True
            waiting, self._waiting = self._waiting, []
        for loop, event in waiting:
            loop.call_soon_threadsafe(event.set)

    def wait_reached(self, timeout: float = 10.0) -> None:
        """Block until a response reaches the gate. Raises TimeoutError after `timeout` seconds."""
        if not self._reached.wait(timeout):
            raise TimeoutError(f"no response reached the gate within {timeout} s")

    async def pass_through(self) -> None:
        """Wait on the server's side until the gate opens."""
        waiter = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            if self._open:
                waiter[1].set()
            else:
                self._waiting.append(waiter)
        self._reached.set()
        try:
            await waiter[1].wait()
        finally:
            with self._lock:
                if waiter in self._waiting:
                    self._waiting.remove(waiter)


# A place in a response body: a byte offset, or a text, which means the end of the first event that contains it.
Place = int | str


class Stall(msgspec.Struct, frozen=True):
    """A pause at `at` for `seconds`, or until `gate` is opened; with neither, forever."""

    at: Place = 0
    seconds: float | None = None
    gate: Gate | None = None


class DeliveryOptions(TypedDict, total=False):
    """The delivery arguments of `step` and `raw`.

    `delay`: seconds before the status line. `chunks`: each piece is a separate write and HTTP chunk. `pace`: seconds
    between pieces. `stall`: pause on the way. `cut_after`: close the connection at this place.
    """

    delay: float
    chunks: Chunks | None
    pace: float
    stall: Stall | None
    cut_after: Place | None


class Delivery(msgspec.Struct, frozen=True):
    """The delivery of one answer. By default all bytes are sent in one write; `hang_up` closes the connection without
    an answer; the rest as in DeliveryOptions."""

    delay: float = 0.0
    chunks: Chunks | None = None
    pace: float = 0.0
    stall: Stall | None = None
    cut_after: Place | None = None
    hang_up: bool = False

    @property
    def at_once(self) -> bool:
        """Whether one plain write is enough."""
        return self == AT_ONCE


AT_ONCE = Delivery()


def chunk_sizes(chunks: Chunks | None, total: int) -> Iterator[int]:
    """Yield the sizes of the pieces of `total` bytes."""
    for size in _wanted_sizes(chunks, total):
        if total <= 0:
            return
        yield min(size, total)
        total -= size
    if total > 0:
        yield total


def _wanted_sizes(chunks: Chunks | None, total: int) -> Iterator[int]:
    match chunks:
        case None:
            yield total
        case int():
            while True:
                yield chunks
        case RandomChunks():
            numbers = random.Random(chunks.seed)
            while True:
                yield numbers.randint(1, chunks.most)
        case _:
            yield from chunks
