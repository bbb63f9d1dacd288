"""Statements that run with every response: written in Core, compiled once, and handed to SQLite as they are.

Running one through Core takes 100 us, several times as long as SQLite itself.
"""

import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection
from sqlalchemy.dialects.sqlite import dialect
from sqlalchemy.sql.base import Executable
from sqlalchemy.sql.elements import ClauseElement

_DIALECT = dialect(paramstyle="named")


class Prepared:
    """A statement and its named parameters."""

    def __init__(self, statement: ClauseElement) -> None:
        assert isinstance(statement, Executable)
        self._sql = str(statement.compile(dialect=_DIALECT))

    def first(self, connection: sqlite3.Connection, values: Mapping[str, object]) -> tuple[Any, ...] | None:
        """Return its first row. Raises `sqlite3.Error`."""
        row: tuple[Any, ...] | None = connection.execute(self._sql, values).fetchone()
        return row

    def run(self, tx: Connection, values: Mapping[str, object]) -> sqlite3.Cursor:
        """Run it once; the rows come as tuples. Raises `sqlite3.Error`."""
        return driver(tx).execute(self._sql, values)

    def run_each(self, tx: Connection, values: Sequence[Mapping[str, object]]) -> None:
        """Run it for each of these."""
        driver(tx).executemany(self._sql, values)


def driver(tx: Connection) -> sqlite3.Connection:
    """Return the connection below a connection of Core."""
    connection = tx.connection.driver_connection
    assert isinstance(connection, sqlite3.Connection)
    return connection
