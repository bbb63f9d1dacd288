"""The tools of the agent: `query` reads a SQLite database at any time, `change` changes it when somebody has agreed.

What a statement may do is not guessed from its text: SQLite itself asks the authorizer about all that it would do.
"""

import asyncio
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from pydantic import Field

from ferrule import (
    Action,
    Observation,
    RespondToModel,
    ToolAnnotations,
    ToolContext,
    ToolDefinition,
    ToolEffect,
    ToolExecutor,
)

MAX_ROWS = 100
MAX_SECONDS = 10.0
MAX_BYTES = 1_000_000
"""Of one value, and of all that a query returns: more than a model reads, and a statement could make a gigabyte."""

READS = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION, sqlite3.SQLITE_RECURSIVE}
WRITES = READS | {sqlite3.SQLITE_INSERT, sqlite3.SQLITE_UPDATE, sqlite3.SQLITE_DELETE}
EXPLAINED = {
    sqlite3.SQLITE_AUTH: "`query` takes SELECT alone, `change` INSERT, UPDATE and DELETE",
    sqlite3.SQLITE_TOOBIG: f"a value has more than {MAX_BYTES} bytes: select a part of it",
    sqlite3.SQLITE_INTERRUPT: f"it took longer than {MAX_SECONDS:g} s",
}


class Query(Action):
    """Read from the database."""

    sql: str = Field(description="One SELECT statement of SQLite")


class Rows(Observation):
    columns: list[str]
    rows: list[list[str | int | float | None]]
    there_are_more: bool


class Change(Action):
    """Change the database by one statement. A person sees it before it runs, and may decline it."""

    sql: str = Field(description="One INSERT, UPDATE or DELETE statement of SQLite")
    reason: str = Field(description="Why, in one sentence for the person who decides")


class Changed(Observation):
    rows: int


class Database:
    """A SQLite file. Each statement has a connection of its own."""

    def __init__(self, path: Path) -> None:
        self._uri = path.absolute().as_uri()

    def schema(self) -> str:
        """Return the statements that made the tables."""
        return "\n".join(str(row[0]) for row in self.query("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL").rows)

    def query(self, sql: str) -> Rows:
        """Run a statement that only reads. Raises `RespondToModel`."""
        with closing(sqlite3.connect(f"{self._uri}?mode=ro", uri=True)) as connection, limited(connection, READS):
            cursor = connection.execute(sql)
            columns = [column[0] for column in cursor.description or ()]
            rows: list[list[str | int | float | None]] = []
            left = MAX_BYTES
            for row in cursor:
                if len(rows) == MAX_ROWS or left < 0:
                    return Rows(columns=columns, rows=rows, there_are_more=True)
                rows.append([_plain(value) for value in row])
                left -= len(str(rows[-1]))
        return Rows(columns=columns, rows=rows, there_are_more=False)

    def change(self, sql: str, expected: int | None = None) -> int:
        """Run a statement and return how many rows it changes, with those of triggers and foreign keys. It counts only
        if these are as many as expected; else it is taken back. Raises `RespondToModel`."""
        with closing(sqlite3.connect(f"{self._uri}?mode=rw", uri=True, isolation_level=None)) as connection:
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("BEGIN IMMEDIATE")
            with limited(connection, WRITES):
                for _ in connection.execute(sql):
                    pass
            changed = connection.total_changes
            if expected not in (None, changed):
                raise RespondToModel(f"it would change {changed} rows now, not {expected}: look at the data again")
            connection.execute("ROLLBACK" if expected is None else "COMMIT")
        return changed


@contextmanager
def limited(connection: sqlite3.Connection, allowed: set[int]) -> Iterator[None]:
    """Let statements do only what is allowed, and end them in time."""
    deadline = time.monotonic() + MAX_SECONDS
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_BYTES)
    connection.set_progress_handler(lambda: time.monotonic() > deadline, 10_000)
    connection.set_authorizer(lambda act, *_: sqlite3.SQLITE_OK if act in allowed else sqlite3.SQLITE_DENY)
    try:
        yield
    except (sqlite3.Error, sqlite3.Warning) as error:
        code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
        raise RespondToModel(EXPLAINED.get(code, str(error))) from error
    finally:
        connection.set_authorizer(None)


def _plain(value: str | int | float | bytes | None) -> str | int | float | None:
    return f"{len(value)} bytes" if isinstance(value, bytes) else value


class Reader(ToolExecutor[Query, Rows]):
    def __init__(self, database: Database) -> None:
        self._database = database

    def __call__(self, action: Query) -> Rows:
        return self._database.query(action.sql)


class Writer(ToolExecutor[Change, Changed]):
    def __init__(self, database: Database) -> None:
        self._database = database

    async def __call__(self, action: Change, ctx: ToolContext) -> Changed:
        """Try the change and take it back, ask with what was found, and make it if somebody agrees."""
        rows = await asyncio.to_thread(self._database.change, action.sql)
        shown = f"{rows} row{'' if rows == 1 else 's'}:\n\n{action.sql}\n\nThe agent says: {action.reason}"
        effect = ToolEffect(name="change", arguments=shown, annotations=CHANGES)

        async def make(access: object) -> Changed:
            return Changed(rows=await asyncio.to_thread(self._database.change, action.sql, rows))

        return await ctx.run(effect, make)


READ_ONLY = ToolAnnotations(readOnlyHint=True, openWorldHint=False)
CHANGES = ToolAnnotations(destructiveHint=True, openWorldHint=False)


def tools_of(database: Database) -> list[ToolDefinition[Query, Rows] | ToolDefinition[Change, Changed]]:
    return [
        ToolDefinition(name="query", executor=Reader(database), annotations=READ_ONLY),
        ToolDefinition(name="change", executor=Writer(database), annotations=CHANGES),
    ]
