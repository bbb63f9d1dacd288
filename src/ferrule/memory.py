"""The memory store: lessons from earlier work, in one SQLite file under Ferrule's home."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import uuid4

import msgspec

from ferrule.protocol.errors import UsageError

if TYPE_CHECKING:
    import sqlite3

FILE = "memory.sqlite"
WAIT_SECONDS = 5.0
"""Time for another Ferrule to finish writing."""


class Memory(msgspec.Struct, frozen=True):
    """One memory. `trace_summary` describes the work that it comes from; `created` is in seconds since the epoch."""

    id: str
    summary: str
    trace_summary: str
    created: float


class MemoryStore:
    """Memories by id. Every method opens the file for itself; reading does not create it.

    All raise `UsageError` if the file cannot be used.
    """

    def __init__(self, home: str) -> None:
        self._path = Path(home, FILE)

    def add(self, summary: str, trace_summary: str = "", memory_id: str | None = None) -> Memory:
        """Store a memory, replacing one with the same id."""
        memory = Memory(memory_id or str(uuid4()), summary, trace_summary, time.time())
        with self._open() as database:
            row = (memory.id, memory.summary, memory.trace_summary, memory.created)
            database.execute("INSERT OR REPLACE INTO memory VALUES (?, ?, ?, ?)", row)
        return memory

    def get(self, memory_id: str) -> Memory | None:
        """Return the memory with this id."""
        found = self._select("WHERE id = ?", memory_id)
        return found[0] if found else None

    def all(self) -> list[Memory]:
        """Return every memory, oldest first."""
        return self._select("ORDER BY created, id")

    def remove(self, memory_id: str) -> bool:
        """Forget a memory. Return whether it existed."""
        if not self._path.exists():
            return False
        with self._open() as database:
            return database.execute("DELETE FROM memory WHERE id = ?", (memory_id,)).rowcount > 0

    def _select(self, which: str, *values: str) -> list[Memory]:
        if not self._path.exists():
            return []
        with self._open() as database:
            rows = database.execute(f"SELECT id, summary, trace_summary, created FROM memory {which}", values)
            return [Memory(*row) for row in rows]

    @contextmanager
    def _open(self) -> "Iterator[sqlite3.Connection]":
        """Open the database in one transaction; the file is accessible to the user alone."""
        import sqlite3

        try:
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
            database = sqlite3.connect(self._path, timeout=WAIT_SECONDS)
            try:
                database.execute(
                    "CREATE TABLE IF NOT EXISTS memory (id TEXT PRIMARY KEY, summary TEXT NOT NULL, "
                    "trace_summary TEXT NOT NULL, created REAL NOT NULL)"
                )
                with database:
                    yield database
            finally:
                database.close()
        except (OSError, sqlite3.Error) as error:
            raise UsageError(f"the memory store {self._path} cannot be used: {error}") from error
