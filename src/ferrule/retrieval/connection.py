"""A connection to SQLite with a thread of its own: what it is asked for is done in order."""

import asyncio
import sqlite3
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from ferrule.protocol.errors import FerruleError

P = ParamSpec("P")
T = TypeVar("T")

WAIT_SECONDS = 5.0
"""How long to wait for another program that writes the file."""

_SETTINGS = (
    "pragma journal_mode = wal",
    "pragma synchronous = normal",
    "pragma secure_delete = on",  # deletes are real: what was deleted is overwritten
    "pragma temp_store = memory",
    "pragma journal_size_limit = 16777216",
)


class IndexFault(FerruleError):
    """The file of an index cannot be used: one sentence for the user, with the next step."""


class IndexDamaged(IndexFault):
    """It is no index that this version can use."""


class IndexClosed(IndexFault):
    """Its owner has closed it meanwhile."""


class ThreadedConnection:
    """Runs functions of a connection as transactions, `begin` beginning each."""

    def __init__(self, path: Path, begin: str) -> None:
        self._path = path
        self._begin = begin
        self._thread = ThreadPoolExecutor(1, "ferrule-index")
        self._connection: sqlite3.Connection | None = None

    async def run(self, work: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run it in one transaction. A caller that is cancelled leaves it to its end. Raises `IndexFault`."""

        def whole() -> T:
            with explained(self._path):
                connection = self._connection = self._connection or _connect(self._path)
                with _transaction(connection, self._begin):
                    return work(connection, *args, **kwargs)

        try:
            future = self._thread.submit(whole)
        except RuntimeError as error:  # the thread was shut down
            raise IndexClosed(f"The index {self._path} is closed.") from error
        return await asyncio.wrap_future(future)

    async def aclose(self) -> None:
        """Finish what was asked for, and close the connection."""
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._thread.shutdown()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _connect(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=WAIT_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        for setting in _SETTINGS:
            connection.execute(setting)
    except BaseException:  # a full disk: whoever keeps the error would keep the descriptors
        connection.close()
        raise
    return connection


@contextmanager
def _transaction(connection: sqlite3.Connection, begin: str) -> Iterator[None]:
    connection.execute(begin)
    try:
        yield
        connection.execute("commit")
    except BaseException:
        if connection.in_transaction:
            connection.execute("rollback")
        raise


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Raise `IndexFault` for errors of the file `path`."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise IndexFault(f"The index {path} cannot be read or written now: {error}.") from error
    except sqlite3.DatabaseError as error:
        raise IndexDamaged(f"The index {path} is damaged ({error}): remove it, and it is made again.") from error
