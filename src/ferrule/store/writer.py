"""The one thread that writes. What waits while a transaction is committed goes into the next one together."""

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

import msgspec
from sqlalchemy import Connection

from ferrule.store.errors import StoreError
from ferrule.store.faults import explained

T = TypeVar("T")

MAX_BATCH = 128
"""Changes that share a transaction: the first of them waits for the last, at some 100 us each."""

CLOSED = "the store is closed"


class _Change(msgspec.Struct, Generic[T]):
    """A change, and who waits for it."""

    work: Callable[[Connection], T]
    done: "Future[T]"


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

    def submit(self, work: Callable[[Connection], T]) -> "Future[T]":
        """Run a change; the future is done when it is committed. One cancelled before it began is left out."""
        change = _Change(work, Future[T]())
        with self._closing:
            if self._closed:
                raise StoreError(CLOSED)
            self._queue.put(change)  # type: ignore[arg-type]
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
                self._commit([one for one in batch if one.done.set_running_or_notify_cancel()])
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

    def _commit(self, batch: Sequence[_Change[object]]) -> None:
        """Commit all together. If one of them fails, run each by itself: none suffers from another."""
        if not batch:
            return
        try:
            with self._transaction() as connection:
                results = [change.work(connection) for change in batch]
        except BaseException as error:  # noqa: BLE001 - it is raised where the change is awaited
            if len(batch) == 1:
                batch[0].done.set_exception(error)
                return
            for change in batch:
                self._commit([change])
        else:
            for change, result in zip(batch, results, strict=True):
                change.done.set_result(result)

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        with explained(self._path), self._connection.begin():
            yield self._connection
            self._check()
