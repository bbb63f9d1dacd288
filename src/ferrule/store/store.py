"""The one public face: everything that a gateway keeps."""

import asyncio
import os
from contextlib import ExitStack
from pathlib import Path
from typing import Self

from ferrule.store import place
from ferrule.store.approvals import Approvals
from ferrule.store.containers import Containers
from ferrule.store.contents import Contents
from ferrule.store.conversations import Conversations
from ferrule.store.database import Database
from ferrule.store.files import Files, known_contents
from ferrule.store.keys import Keys
from ferrule.store.responses import Responses
from ferrule.store.skills import Skills, known_bundles
from ferrule.store.vector_stores import VectorStores
from ferrule.sync import AsyncClosing


class Store(Responses, Conversations, Files, Containers, Skills, VectorStores, Approvals, Keys, AsyncClosing):
    """All that a gateway keeps, in one SQLite file and a folder beside it. `open` makes one; its owner closes it.

    Any number of tasks may use it at once.
    """

    def __init__(self, database: Database, contents: Contents, resources: ExitStack) -> None:
        self._database = database
        self._contents = contents
        self._resources = resources

    @classmethod
    async def open(cls, path: str | os.PathLike[str], *, shared: bool = False) -> Self:
        """Open the store in this file; make it if it does not exist.

        One process has a store open, and removes what a killed one left half written. A short command beside it, such
        as one that adds a key, opens it as `shared`: it keeps nobody out, and leaves all else alone.

        Raises `StoreError`: `StoreInUse` if another process has it open, and with a sentence if the file cannot be
        written, is damaged, is no store, or was written by a newer Ferrule.
        """
        return await asyncio.to_thread(cls._open, Path(path), shared)

    @classmethod
    def _open(cls, path: Path, shared: bool) -> Self:
        path = path.resolve()
        place.make_folder(path)
        with ExitStack() as resources:
            if not shared:
                resources.callback(os.close, place.lock(path))
            place.make_file(path)
            contents = Contents(path)
            resources.callback(contents.close)
            with place.alone_in(path):
                database = Database(path)
            resources.callback(database.close)
            if not shared:
                contents.sweep(database.query(known_contents) | database.query(known_bundles))
            return cls(database, contents, resources.pop_all())

    async def aclose(self) -> None:
        """Finish what was asked for, and close the file."""
        await asyncio.to_thread(self._resources.close)
