"""What SQLite's errors mean to the one who runs the gateway."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ferrule.store.errors import StoreError, StoreFull

_PRIMARY = 0xFF
"""The part of an error code that says the kind; the rest says where it happened."""

_MEANINGS = {
    sqlite3.SQLITE_FULL: "cannot take more: the disk is full; free some space",
    sqlite3.SQLITE_READONLY: "cannot be written; give this user the right to write the file and its folder",
    sqlite3.SQLITE_PERM: "cannot be written; give this user the right to write the file and its folder",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened; give this user the right to write the file and its folder",
    sqlite3.SQLITE_NOTADB: "is no database; move it away, and a new one is made",
    sqlite3.SQLITE_CORRUPT: "is damaged; restore a copy, or move it away, and a new one is made",
    sqlite3.SQLITE_BUSY: "is locked by another program; close that program",
    sqlite3.SQLITE_LOCKED: "is locked by another program; close that program",
    sqlite3.SQLITE_IOERR: "could not be read or written; check the disk and its limits",
}


@contextmanager
def explained(path: Path, *wrapping: type[Exception]) -> Iterator[None]:
    """Raise SQLite's errors as `StoreError`, without what was written: that belongs to clients. Errors `wrapping` them
    have them in `orig`."""
    kinds: tuple[type[Exception], ...] = (sqlite3.Error, *wrapping)
    try:
        yield
    except kinds as error:
        raise _explain(path, getattr(error, "orig", error)) from error


def _explain(path: Path, error: BaseException | None) -> StoreError:
    kind = getattr(error, "sqlite_errorcode", 0) & _PRIMARY
    kind_of_error = StoreFull if kind == sqlite3.SQLITE_FULL else StoreError
    return kind_of_error(f"the store {path} {_MEANINGS.get(kind, 'refused a change')} ({error})")
