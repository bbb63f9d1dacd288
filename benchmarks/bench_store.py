"""What `ferrule serve` keeps: a stored response, many at once, and the room that one takes.

python -m benchmarks.bench_store
"""

import asyncio
import os
import sqlite3
import tempfile
import time
from itertools import count
from pathlib import Path

from benchmarks.measure import Work, bounded, in_turns, row
from ferrule.store import Store, StoredResponse
from ferrule.store.database import LOG_PAGES

BODY = b'{"text":"%s"}' % os.urandom(1018).hex().encode()
"""2 KB."""
AT_ONCE = 64
CHAIN = 100


def main() -> None:
    """Print one line a row."""
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(rows(Path(folder)))


async def rows(folder: Path) -> None:
    """Measure and print."""
    bare = connection(folder / "bare.sqlite3")
    async with await Store.open(folder / "store.sqlite3") as store:
        one, commit, two = stored(store), committed(bare, 1), committed(bare, 2)
        ours, least, twice = await in_turns([one, commit, two], 15, 100, time.process_time)
        print(row("store, a response of 2 KB created and finished, over one commit of sqlite3", ours, least, 3))
        print(row("store, the same over the two commits that it takes", ours, twice, None))
        many, rest = await in_turns([at_once(store), committed(bare, AT_ONCE)], 9)
        print(row(f"store, {AT_ONCE} responses at once, each, over a commit", many / AT_ONCE, rest / AT_ONCE, 3))
        (read,) = await in_turns([chain(store, await a_chain(store))], 15)
        print(bounded(f"store, a chain of {CHAIN} read", read, None, "ms", 1e3))
    await size_row(folder / "size.sqlite3")
    bare.close()


async def size_row(path: Path) -> None:
    """What is on the disk after the log was taken in."""
    async with await Store.open(path) as store:
        for _ in range(20):
            await at_once(store)()
    each = path.stat().st_size / (20 * AT_ONCE)
    print(bounded("store, bytes on disk of a response of 2 KB", each, None, "B"))


def connection(path: Path) -> sqlite3.Connection:
    """A database like that of the store."""
    bare = sqlite3.connect(path, isolation_level=None)
    for pragma in ("journal_mode = wal", "synchronous = normal", f"wal_autocheckpoint = {LOG_PAGES}"):
        bare.execute(f"pragma {pragma}")
    bare.execute("create table t (id text, body blob)")
    return bare


def committed(bare: sqlite3.Connection, times: int) -> Work:
    """Transactions with 2 KB each."""

    def work() -> None:
        for _ in range(times):
            bare.execute("begin immediate")
            bare.execute("insert into t values (?, ?)", ("resp", BODY))
            bare.execute("commit")

    return work


NUMBERS = count()


def a_response(number: int, parent: str | None = None) -> StoredResponse:
    """A response as it is stored when it begins."""
    given = (b'{"id":"msg_%d","type":"message","role":"user","content":"hello"}' % number,)
    return StoredResponse(
        id=f"resp_{number}", owner="", created_at=1, status="in_progress", body=b"{}", parent=parent, input=given
    )


async def store_one(store: Store, parent: str | None = None) -> str:
    """Create a response and finish it."""
    record = a_response(next(NUMBERS), parent)
    await store.create_response(record)
    output = [b'{"id":"out_%s","type":"message"}' % record.id.encode()]
    assert await store.finish_response(
        "", record.id, status="completed", body=BODY, output=output, transcript=output[0]
    )
    return record.id


def stored(store: Store) -> Work:
    """One response."""

    async def work() -> None:
        await store_one(store)

    return work


def at_once(store: Store) -> Work:
    """Many responses at once."""

    async def work() -> None:
        await asyncio.gather(*(store_one(store) for _ in range(AT_ONCE)))

    return work


async def a_chain(store: Store) -> str:
    """A chain of responses; the id of the last."""
    last = None
    for _ in range(CHAIN):
        last = await store_one(store, last)
    assert last is not None
    return last


def chain(store: Store, last: str) -> Work:
    """The chain, read."""

    async def work() -> None:
        assert len(await store.chain("", last)) == CHAIN

    return work


if __name__ == "__main__":
    main()
