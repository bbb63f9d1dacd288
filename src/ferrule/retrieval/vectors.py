"""The vectors of indexes in memory, and the nearest of them: exact, one matrix product a search.

All open indexes share one `VectorMemory`. What does not fit is dropped, the longest unused first, and read again when
it is wanted. Vectors of an index that does not fit alone are read block by block.
"""

import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import msgspec

from ferrule.retrieval import tables

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MEMORY_BYTES = 512 << 20
"""Of all vectors together: 500,000 of 256 dimensions."""
BLOCK = 4096
"""Vectors that are read at a time."""


class Block(msgspec.Struct, frozen=True):
    """Vectors as the rows of a matrix, and the numbers of each, its chunk and its document."""

    numbers: "NDArray[np.int64]"
    chunks: "NDArray[np.int64]"
    documents: "NDArray[np.int64]"
    matrix: "NDArray[np.float32]"

    @property
    def last(self) -> int:
        """The highest number, 0 if there is none."""
        return int(self.numbers[-1]) if len(self.numbers) else 0

    @property
    def nbytes(self) -> int:
        """What it takes in memory."""
        return len(self.numbers) * _row_bytes(self.matrix.shape[1])

    def at(self, rows: "NDArray[np.bool_]") -> "Block":
        """Return some of the rows."""
        return Block(self.numbers[rows], self.chunks[rows], self.documents[rows], self.matrix[rows])

    def fill(self, start: int, other: "Block") -> None:
        """Write the rows of another over those from `start`."""
        rows = slice(start, start + len(other.numbers))
        self.numbers[rows], self.chunks[rows], self.documents[rows] = other.numbers, other.chunks, other.documents
        self.matrix[rows] = other.matrix


class VectorMemory:
    """The vectors of all open indexes, at most `limit` bytes of them. Threads may share it, each for its index."""

    def __init__(self, limit: int = MEMORY_BYTES) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._kept: OrderedDict[object, Block] = OrderedDict()

    @property
    def nbytes(self) -> int:
        """What is in memory now."""
        with self._lock:
            return self._size()

    def drop(self, index: object) -> None:
        """Forget the vectors of an index."""
        with self._lock:
            self._kept.pop(index, None)

    def blocks(self, index: object, tx: sqlite3.Connection) -> Iterator[Block]:
        """Yield the vectors of an index as the transaction sees them."""
        count, width = tables.vector_count(tx), tables.dimension(tx)
        with self._lock:
            kept = self._kept.pop(index, None)
        if not count:
            return
        if count * _row_bytes(width) > self._limit:
            yield from _read(tx, 0)
            return
        block = _up_to_date(kept, tx, count, width)
        with self._lock:
            self._kept[index] = block
            while self._size() > self._limit:
                self._kept.popitem(last=False)
        yield block

    def _size(self) -> int:
        return sum(block.nbytes for block in self._kept.values())


def _row_bytes(width: int) -> int:
    return 4 * width + 3 * 8


def _up_to_date(kept: Block | None, tx: sqlite3.Connection, count: int, width: int) -> Block:
    """Numbers only grow: if the old ones and the new ones are as many as there are, none of the old ones went."""
    import numpy as np

    if kept is not None and kept.matrix.shape[1] != width:
        kept = None
    if kept is not None and len(kept.numbers) + tables.vector_count(tx, kept.last) != count:
        kept = kept.at(np.isin(kept.numbers, np.fromiter(tables.vector_numbers(tx), np.int64)))
    if kept is not None and len(kept.numbers) == count:
        return kept
    whole = Block(
        np.empty(count, np.int64),
        np.empty(count, np.int64),
        np.empty(count, np.int64),
        np.empty((count, width), np.float32),
    )
    filled = 0
    for block in chain([kept] if kept else [], _read(tx, kept.last if kept else 0)):
        whole.fill(filled, block)
        filled += len(block.numbers)
    return whole


def _read(tx: sqlite3.Connection, after: int) -> Iterator[Block]:
    import numpy as np

    rows = tables.new_vectors(tx, after)
    while some := rows.fetchmany(BLOCK):
        numbers = np.array([row[:3] for row in some], np.int64)
        matrix = np.frombuffer(b"".join(row[3] for row in some), np.float32).reshape(len(some), -1)
        yield Block(numbers[:, 0], numbers[:, 1], numbers[:, 2], matrix)


def nearest(
    blocks: Iterator[Block], questions: "NDArray[np.float32]", limit: int, allowed: Sequence[int] | None
) -> list[list[tuple[int, float]]]:
    """Return for each question the chunks with the nearest vectors, the nearest first, each with its cosine."""
    import numpy as np

    best: list[list[tuple[int, float]]] = [[] for _ in questions]
    for block in blocks:
        rows = None if allowed is None else np.flatnonzero(np.isin(block.documents, np.asarray(allowed, np.int64)))
        chunks = block.chunks if rows is None else block.chunks[rows]
        for place, cosines in enumerate(questions @ block.matrix.T):
            if not questions[place].any():  # it says nothing: no vector is near
                continue
            some = cosines if rows is None else cosines[rows]
            top = _highest(some, limit)
            found = zip(chunks[top].tolist(), some[top].tolist(), strict=True)
            best[place] = sorted([*best[place], *found], key=lambda one: (-one[1], one[0]))[:limit]
    return best


def _highest(values: "NDArray[np.float32]", limit: int) -> "NDArray[np.int64]":
    """Return where the highest are, and all that equal the lowest of them."""
    import numpy as np

    if len(values) <= limit:
        return np.arange(len(values))
    lowest = np.partition(values, len(values) - limit)[len(values) - limit]
    return np.flatnonzero(values >= lowest)
