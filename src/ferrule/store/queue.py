"""A queue of tasks in one SQLite file: each is handed out to one owner at a time, and has one result.

A task waits, is handed out, and is done; its result stays until whoever keeps it says so. What changes together, such
as a result and the count of tries, is one transaction. One process has the file open, and nobody beside it.
"""

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import islice
from pathlib import Path

import msgspec

from ferrule.store import place
from ferrule.store.errors import StoreError
from ferrule.store.faults import explained

APPLICATION_ID = 0x4652_4C51
"""Marks our files ("FRLQ"), so that the database of another program is never taken for one."""
VERSION = 1
SUFFIXES = ("", "-wal", "-shm", "-journal")
"""What SQLite keeps in files beside the first."""

_SETTINGS = (
    "pragma journal_mode = wal",
    "pragma synchronous = normal",  # results are on disk in their file before they are taken out here
    "pragma cache_size = -65536",  # 64 MiB: keys come in any order
)
_TABLES = (
    """
    create table tasks (
        number integer primary key,
        key text not null unique,
        task blob not null,
        result blob
    )
    """,
    "create index tasks_done on tasks (number) where result is not null",
    """
    create table states (
        number integer primary key references tasks (number),
        position integer not null,
        state text not null default 'waiting' check (state in ('waiting', 'running', 'done')),
        tries integer not null default 0,
        deaths integer not null default 0,
        asked integer not null default 1
    )
    """,
    "create index states_waiting on states (position) where state = 'waiting' and asked = 1",
)
"""What changes often is apart from the tasks, which may be long."""
_ADD = """
    insert into tasks (key, task) values (?, ?)
    on conflict (key) do update set task = excluded.task where task <> excluded.task
"""
_ASK = """
    insert into states (number, position) select number, ? from tasks where key = ?
    on conflict (number) do update set position = excluded.position, asked = 1
"""
_TAKE = """
    update states set state = 'running', tries = tries + 1
    where number in (
        select number from states where state = 'waiting' and asked = 1 and (deaths >= ?) = ? order by position limit ?
    )
    returning position, number, tries, deaths
"""
_NUMBER = "(select number from tasks where key = ?)"
_AT_ONCE = 1000
"""Tasks that are added by one pair of statements."""


class Taken(msgspec.Struct, frozen=True):
    """A task that was handed out. `tries` counts this one; `deaths` those whose owner died of something."""

    key: str
    task: bytes
    tries: int
    deaths: int


class TaskQueue:
    """Tasks by their keys. All methods block for a fraction of a millisecond, and raise `StoreError`.

    A task with `alone_after` deaths is handed out by itself: what else its owner does would die with it.
    """

    def __init__(self, path: Path, alone_after: int) -> None:
        """Open the queue, or make it. What was handed out by a process that has ended waits again."""
        self.path = path
        self._alone_after = alone_after
        place.make_file(path)
        with explained(path):
            self._database = sqlite3.connect(f"{path.as_uri()}?mode=rw", isolation_level=None, uri=True)
            try:
                self._open()
            except BaseException:
                self._database.close()
                raise

    def _open(self) -> None:
        run = self._database.execute
        run("pragma locking_mode = exclusive")  # from the first look on: disks in the network lack shared memory
        ((marked,),), ((version,),) = run("pragma application_id"), run("pragma user_version")
        if marked != APPLICATION_ID and run("select 1 from sqlite_master").fetchone():
            raise StoreError(f"{self.path} is a database of another program; move it away")
        if version > VERSION:
            raise StoreError(f"the queue {self.path} was written by a newer Ferrule; update Ferrule, or move it away")
        for setting in _SETTINGS:
            run(setting)
        with self._transaction():
            for statement in () if version else _TABLES:
                run(statement)
            if not version:
                run(f"pragma application_id = {APPLICATION_ID}")
                run(f"pragma user_version = {VERSION}")
            run("update states set state = 'waiting' where state = 'running'")
            run("update states set asked = 0 where asked = 1")

    def add(self, tasks: Iterator[tuple[str, bytes]]) -> None:
        """Ask for these tasks, in their order; one that is known keeps what was counted of it, and its result. What an
        earlier run asked for and this one does not is not handed out."""
        position = 0
        with self._transaction():
            while some := [*islice(tasks, _AT_ONCE)]:
                self._database.executemany(_ADD, some)
                self._database.executemany(_ASK, [(position + place, key) for place, (key, _) in enumerate(some)])
                position += len(some)

    def take(self, count: int, *, alone: bool = False) -> list[Taken]:
        """Hand out up to `count` tasks, the first ones first; those that must be alone, or the others."""
        with self._transaction():
            rows = sorted(self._database.execute(_TAKE, (self._alone_after, alone, count)).fetchall())
            return [Taken(*self._task(number), tries, deaths) for _, number, tries, deaths in rows]

    def _task(self, number: int) -> tuple[str, bytes]:
        key, task = self._database.execute("select key, task from tasks where number = ?", (number,)).fetchone()
        return key, task

    def give_back(self, keys: Iterable[str], *, died: bool) -> None:
        """Let tasks wait again whose owner has ended without a result."""
        with self._transaction():
            waits = "update states set state = 'waiting', deaths = deaths + ?"
            statement = f"{waits} where number = {_NUMBER} and state = 'running'"
            self._database.executemany(statement, [(died, key) for key in keys])

    def finish(self, results: Iterable[tuple[str, bytes]]) -> None:
        """Keep the results of tasks; one that has a result already keeps it."""
        with self._transaction():
            kept = [(result, key) for key, result in results]
            self._database.executemany("update tasks set result = ? where key = ? and result is null", kept)
            statement = f"update states set state = 'done' where number = {_NUMBER}"
            self._database.executemany(statement, [(key,) for _, key in kept])

    def results(self) -> Iterator[tuple[str, bytes]]:
        """Yield the results that are kept, with their keys."""
        with explained(self.path), closing(self._database.cursor()) as cursor:
            yield from cursor.execute("select key, result from tasks where result is not null order by number")

    def forget(self, keys: Iterable[str]) -> None:
        """Take out tasks whose results are kept elsewhere now."""
        with self._transaction():
            given = [(key,) for key in keys]
            self._database.executemany(f"delete from states where number = {_NUMBER}", given)
            self._database.executemany("delete from tasks where key = ?", given)

    def waiting(self, *, alone: bool) -> int:
        """Return how many tasks wait; those that must be alone, or the others."""
        statement = "select count(*) from states where state = 'waiting' and asked = 1 and (deaths >= ?) = ?"
        return self._one(statement, (self._alone_after, alone))

    def is_empty(self) -> bool:
        """Return whether nothing is left to do or to remember: of a task that no run asks for any more and that was
        never tried, nothing is."""
        kept = "select exists (select 1 from states where asked = 1 or tries > 0)"
        return not self._one(kept, ())

    def close(self) -> None:
        """Close the file."""
        with explained(self.path):
            self._database.close()

    def remove(self) -> None:
        """Close the file, and remove it."""
        self.close()
        for suffix in SUFFIXES:
            with suppress(FileNotFoundError):
                Path(f"{self.path}{suffix}").unlink()

    def _one(self, statement: str, values: Sequence[object]) -> int:
        with explained(self.path):
            value: int = self._database.execute(statement, values).fetchone()[0]
            return value

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with explained(self.path):
            self._database.execute("begin immediate")
            try:
                yield
                self._database.execute("commit")
            except BaseException:
                if self._database.in_transaction:
                    self._database.execute("rollback")
                raise
