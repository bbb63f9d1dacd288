"""The one public face: everything that a gateway keeps."""

import asyncio
import os
from pathlib import Path
from typing import Self

from ferrule.store import place
from ferrule.store.conversations import Conversations
from ferrule.store.database import Database
from ferrule.store.errors import StoreInUse
from ferrule.store.keys import Keys
from ferrule.store.responses import Responses
from ferrule.sync import AsyncClosing


class Store(Responses, Conversations, Keys, AsyncClosing):
    """All that a gateway keeps, in one SQLite file. `open` makes one; its owner closes it.

    Any number of tasks may use it at once.
    """

    def __init__(self, database: Database, lock: int | None) -> None:
        self._database = database
        self._lock = lock

    @classmethod
    async def open(cls, path: str | os.PathLike[str], *, shared: bool = False) -> Self:
        """Open the store in this file; make it if it does not exist.

        One process has a store open, which may then settle what the last one left behind. A short command beside it,
        such as one that adds a key, opens it as `shared` and leaves all else alone.

        Raises `StoreError`: `StoreInUse` if another process has it open, and with a sentence if the file cannot be
        written, is damaged, is no store, or was written by a newer Ferrule.
        """
        return await asyncio.to_thread(cls._open, Path(path), shared)

    @classmethod
    def _open(cls, path: Path, shared: bool) -> Self:
        path = path.resolve()
        place.make_folder(path)
        lock = _lock(path, shared)
        try:
            place.make_file(path)
            return cls(Database(path), lock)
        except BaseException:
            _unlock(lock)
            raise

    async def aclose(self) -> None:
        """Finish what was asked for, and close the file."""
        await asyncio.to_thread(self._database.close)
        lock, self._lock = self._lock, None
        _unlock(lock)


def _lock(path: Path, shared: bool) -> int | None:
    try:
        return place.lock(path)
    except StoreInUse:
        if shared:
            return None
        raise


def _unlock(lock: int | None) -> None:
    if lock is not None:
        os.close(lock)
