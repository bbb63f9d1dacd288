"""The one thread that writes. What waits while a transaction is committed goes into the next one together."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

import msgspec
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from ferrule.store.errors import StoreError
from ferrule.store.faults import explained
from ferrule.store.prepared import driver

T = TypeVar("T")

MAX_BATCH = 128
"""Changes that share a transaction: the first of them waits for the last, at some 100 us each."""

CLOSED = "the store is closed"


class _Change(msgspec.Struct, Generic[T]):
    """A change, and who waits for it."""

    work: Callable[[Connection], T]
    done: "asyncio.Future[T]"


class _Outcome(msgspec.Struct, frozen=True):
    """How a change ended."""

    change: _Change[object]
    result: object = None
    error: BaseException | None = None

    def tell(self) -> None:
        """Tell who waits. Runs in their event loop."""
        done = self.change.done
        if done.done():  # cancelled
            return
        if self.error is None:
            done.set_result(self.result)
        else:
            done.set_exception(self.error)


class Writer:
    """Runs changes in order, each whole or not at all. Owns its connection. `check` raises what forbids a commit."""

    def __init__(self, connection: Connection, path: Path, check: Callable[[], None]) -> None:
        self._connection = connection
        self._path = path
        self._check = check
        self._queue: SimpleQueue[_Change[object] | None] = SimpleQueue()
        self._closing = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="ferrule-store", daemon=True)
        self._thread.start()

    def submit(self, work: Callable[[Connection], T]) -> "asyncio.Future[T]":
        """Run a change; the future, of the running event loop, is done when it is committed. One cancelled before it
        began is left out."""
        change = _Change(work, asyncio.get_running_loop().create_future())
        with self._closing:
            if self._closed:
                raise StoreError(CLOSED)
            self._queue.put(change)
        return change.done

    def close(self) -> None:
        """Finish what was submitted, then close the connection. Blocking."""
        with self._closing:
            if not self._closed:
                self._closed = True
                self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        try:
            while (change := self._queue.get()) is not None:
                batch, last = self._waiting(change)
                _tell(self._commit([one for one in batch if not one.done.cancelled()]))
                if last:
                    break
        finally:
            self._connection.close()

    def _waiting(self, first: _Change[object]) -> tuple[list[_Change[object]], bool]:
        """Take what waits behind a change; True if nothing comes after it."""
        batch = [first]
        while len(batch) < MAX_BATCH:
            try:
                change = self._queue.get_nowait()
            except Empty:
                break
            if change is None:
                return batch, True
            batch.append(change)
        return batch, False

    def _commit(self, batch: Sequence[_Change[object]]) -> list[_Outcome]:
        """Commit all together. If one of them fails, run each by itself: none suffers from another."""
        if not batch:
            return []
        try:
            with explained(self._path, DBAPIError), transaction(self._connection):
                results = [change.work(self._connection) for change in batch]
                self._check()
        except BaseException as error:  # noqa: BLE001 - it is raised where the change is awaited
            if len(batch) == 1:
                return [_Outcome(batch[0], error=error)]
            return [outcome for change in batch for outcome in self._commit([change])]
        return [_Outcome(change, result) for change, result in zip(batch, results, strict=True)]


@contextmanager
def transaction(connection: Connection) -> Iterator[None]:
    """Begin a change, and commit it. SQLite is told itself: Core takes three times as long for it."""
    database = driver(connection)
    database.execute("begin immediate")
    try:
        yield
        database.execute("commit")
    except BaseException:
        if database.in_transaction:
            database.execute("rollback")
        raise


def _tell(outcomes: Sequence[_Outcome]) -> None:
    """Tell all who wait in one event loop at once: waking it takes as long as a commit."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Outcome]] = {}
    for outcome in outcomes:
        by_loop.setdefault(outcome.change.done.get_loop(), []).append(outcome)
    for loop, of_this in by_loop.items():
        with suppress(RuntimeError):  # it is closed: nobody waits
            loop.call_soon_threadsafe(_tell_each, of_this)


def _tell_each(outcomes: Sequence[_Outcome]) -> None:
    for outcome in outcomes:
        outcome.tell()
