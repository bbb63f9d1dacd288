"""One SQLite file in WAL: a thread that writes, a few that read, and the lock that keeps a second process out.

`synchronous = NORMAL`: what was committed outlives the process, however it ends, and the file is never damaged. A power
cut may take back the last commits. `FULL` prevents that, but waits for the disk each time: a commit then takes 4 ms
instead of 0.07 ms on the disk where this was measured.
"""

import asyncio
import sqlite3
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection, Engine, QueuePool, create_engine, event
from sqlalchemy.exc import DBAPIError

from ferrule.store import place
from ferrule.store.errors import StoreError
from ferrule.store.faults import explained
from ferrule.store.prepared import Prepared, driver
from ferrule.store.schema import APPLICATION_ID, MIGRATIONS
from ferrule.store.writer import CLOSED, Writer, transaction

P = ParamSpec("P")
T = TypeVar("T")

READERS = 4
"""Connections that read at a time. A read takes less than a millisecond, and Python runs one thread at a time."""

WAIT_SECONDS = 5.0
"""How long to wait for another program that writes the file: `ferrule serve keys`, or a backup."""

LOG_PAGES = 4000
"""Pages of the log, 16 MB, at which SQLite takes it into the file: it waits for the disk then, and writes a page that
changed often once. With its own 1,000 a commit costs three times as much on average."""

_SETTINGS = (
    "pragma journal_mode = wal",
    "pragma synchronous = normal",
    "pragma foreign_keys = on",
    "pragma secure_delete = on",  # deletes are real: what was deleted is overwritten
    f"pragma wal_autocheckpoint = {LOG_PAGES}",
    f"pragma journal_size_limit = {LOG_PAGES * 4096}",
)


class Database:
    """Runs functions of a connection as transactions."""

    def __init__(self, path: Path) -> None:
        """Open the file and bring its schema up to date. Blocking. Raises `StoreError`."""
        self.path = path
        self._writing = _engine(path).execution_options(isolation_level="AUTOCOMMIT")
        self._reading = _engine(path)
        event.listen(self._reading, "begin", lambda connection: driver(connection).execute("begin"))
        self._threads = ThreadPoolExecutor(READERS, "ferrule-store-read")
        with ExitStack() as opened, explained(path, DBAPIError):
            opened.callback(self._dispose)
            _examine(path)
            connection = opened.enter_context(self._writing.connect())
            _migrate(connection)
            self._whole = place.Whole(path)
            self._looking = opened.enter_context(closing(_connect(path)))
            opened.pop_all()
        self._writer = Writer(connection, path, self._whole.check)

    async def write(self, work: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a change in a transaction of its own, as it seems to it, and return when it is committed."""

        def change(connection: Connection) -> T:
            return work(connection, *args, **kwargs)

        return await self._writer.submit(change)

    async def read(self, work: Callable[Concatenate[Connection, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run queries that see one state of the database."""

        def queries(connection: Connection) -> T:
            return work(connection, *args, **kwargs)

        try:
            future = self._threads.submit(self.query, queries)
        except RuntimeError as error:  # the threads were shut down
            raise StoreError(CLOSED) from error
        return await asyncio.wrap_future(future)

    def query(self, work: Callable[[Connection], T]) -> T:
        """`read`, for plain code. Blocking."""
        self._whole.check()
        with explained(self.path, DBAPIError), self._reading.connect() as connection, connection.begin():
            return work(connection)

    def look_up(self, statement: Prepared, values: Mapping[str, object]) -> tuple[Any, ...] | None:
        """Return the first row of a query that finds it by an index. It is done in place: that takes 10 us, changing
        threads ten times as long."""
        self._whole.check()
        with explained(self.path, DBAPIError):
            return statement.first(self._looking, values)

    def close(self) -> None:
        """Finish what was asked for, and close the file. Blocking."""
        self._threads.shutdown()
        self._looking.close()
        self._writer.close()
        self._dispose()

    def _dispose(self) -> None:
        self._threads.shutdown()
        self._reading.dispose()
        self._writing.dispose()


def _engine(path: Path) -> Engine:
    return create_engine("sqlite://", creator=lambda: _connect(path), poolclass=QueuePool, pool_size=READERS)


def _connect(path: Path) -> sqlite3.Connection:
    """Open a connection that leaves transactions to us; the pool hands it from thread to thread, one at a time."""
    connection = sqlite3.connect(
        f"{path.as_uri()}?mode=rw", timeout=WAIT_SECONDS, isolation_level=None, check_same_thread=False, uri=True
    )
    try:
        if connection.execute("pragma page_count").fetchone() == (0,):
            connection.execute("pragma auto_vacuum = full")  # gives back the space of what is deleted
        for setting in _SETTINGS:
            connection.execute(setting)
    except BaseException:
        connection.close()
        raise
    return connection


def _examine(path: Path) -> None:
    """Raise `StoreError` for a file that is not ours to change; it is only read."""
    with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", timeout=WAIT_SECONDS, uri=True)) as connection:
        connection.execute("begin")  # another process may be making it: all of this is of one moment
        ((marked,),) = connection.execute("pragma application_id")
        ((version,),) = connection.execute("pragma user_version")
        if marked != APPLICATION_ID and connection.execute("select 1 from sqlite_master").fetchone():
            raise StoreError(f"{path} is a database of another program; name another file")
    if version > len(MIGRATIONS):
        raise StoreError(
            f"the store {path} was written by a newer Ferrule (schema {version}, this one knows "
            f"{len(MIGRATIONS)}); update Ferrule, or move the file away"
        )


def _migrate(connection: Connection) -> None:
    """Apply the migrations that the file has not seen, in one transaction."""
    with transaction(connection):
        version = connection.exec_driver_sql("pragma user_version").scalar_one()
        for statement in (line for migration in MIGRATIONS[version:] for line in migration):
            connection.exec_driver_sql(statement)
        if version < len(MIGRATIONS):
            connection.exec_driver_sql(f"pragma application_id = {APPLICATION_ID}")
            connection.exec_driver_sql(f"pragma user_version = {len(MIGRATIONS)}")
