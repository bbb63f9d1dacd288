"""What the parts of a store have in common."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Concatenate, ParamSpec, TypeVar

from sqlalchemy import Connection

from ferrule.store.contents import Contents, Received
from ferrule.store.database import Database

P = ParamSpec("P")
T = TypeVar("T")


class Part:
    """The methods for one kind of record; `Store` is made of these.

    Each method is one transaction. One that is cancelled has happened whole or not at all. All raise `StoreError` if
    the database cannot be used, and see only what belongs to the owner.
    """

    _database: Database
    _contents: Contents

    async def _kept(
        self,
        received: Received,
        work: Callable[Concatenate[Connection, Received, P], T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Make a content known to the database, or delete it. If this is cancelled, what was committed counts."""
        change = asyncio.ensure_future(self._database.write(work, received, *args, **kwargs))
        try:
            return await asyncio.shield(change)
        finally:
            await asyncio.wait([change])
            # Nobody knows how one ends that is cancelled with all others: the next start looks.
            if not change.cancelled() and (change.exception() or change.result() is None):
                await asyncio.to_thread(self._contents.remove, [received.name])

    async def _forgotten(
        self,
        work: Callable[Concatenate[Connection, P], tuple[T, Sequence[str]]],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Run a change, then delete the contents that it names, even if this is cancelled."""

        async def change() -> T:
            result, contents = await self._database.write(work, *args, **kwargs)
            await asyncio.to_thread(self._contents.remove, contents)
            return result

        return await asyncio.shield(change())
