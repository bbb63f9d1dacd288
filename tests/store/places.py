"""Stores in files of their own, and records to put into them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ferrule.store import Store, StoredResponse

FILE = "home/gateway.sqlite3"


@asynccontextmanager
async def opened(folder: Path) -> AsyncIterator[Store]:
    """The store of a folder."""
    async with await Store.open(folder / FILE) as store:
        yield store


def a_response(number: int = 1, **fields: Any) -> StoredResponse:
    """A response that runs, of the owner `us`, created at second `number`, with one input item."""
    given: dict[str, Any] = {
        "id": f"resp_{number}",
        "owner": "us",
        "created_at": number,
        "status": "in_progress",
        "body": b'{"n":%d}' % number,
        "input": (item(f"in_{number}"),),
    }
    return StoredResponse(**given | fields)


def item(item_id: str, text: str = "") -> bytes:
    """A public item."""
    return b'{"type":"message","id":"%s","content":"%s"}' % (item_id.encode(), text.encode())


async def finish(store: Store, number: int = 1, owner: str = "us", **fields: Any) -> bool:
    """End a response as completed, with one output item."""
    given: dict[str, Any] = {
        "status": "completed",
        "body": b'{"done":%d}' % number,
        "output": [item(f"out_{number}")],
        "transcript": b"t%d" % number,
    }
    return await store.finish_response(owner, f"resp_{number}", **given | fields)


async def a_chain(store: Store, length: int, **fields: Any) -> None:
    """Finished responses 1 to `length`, each of which continues the one before it."""
    for number in range(1, length + 1):
        await store.create_response(a_response(number, parent=f"resp_{number - 1}", **fields))
        await finish(store, number)


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    """An empty store."""
    async with opened(tmp_path) as store:
        yield store
