"""`ferrule stores`: the vector stores that clients of `ferrule serve` have made."""

import argparse
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import msgspec

from ferrule.cli.exit_codes import DONE
from ferrule.cli.gateway_state import needs_extra, state_file
from ferrule.cli.options import Parser, add_config_flag, configuration, print_warnings
from ferrule.cli.running import run_interruptibly
from ferrule.protocol.errors import UsageError
from ferrule.protocol.settings import Settings
from ferrule.rendering.safe import safe

if TYPE_CHECKING:
    from ferrule.hosted.vector_stores import ClientStores
    from ferrule.store import Store, VectorStore

DESCRIPTION = """\
List the vector stores of `ferrule serve`, search in one, remove one; the server may run meanwhile. Clients make and
fill them through the API."""
NOTHING = "there are no vector stores; clients of `ferrule serve` make them"
PAGE = 100
HITS = 10


def main(arguments: list[str]) -> int:
    """Do one thing with the vector stores. Return the exit code."""
    options = _parser().parse_args(arguments)
    settings = configuration(options).settings
    with needs_extra("stores"):
        return run_interruptibly(_run(options, settings))


def _parser() -> Parser:
    parser = Parser("stores", DESCRIPTION)
    parser.set_defaults(json=False, assignments=[])
    actions = parser.add_subparsers(dest="action", parser_class=argparse.ArgumentParser)
    listed = actions.add_parser("list", help="list the stores of all keys")
    searched = actions.add_parser("search", help="print what a search finds in a store")
    searched.add_argument("store", metavar="ID")
    searched.add_argument("query", metavar="QUERY")
    removed = actions.add_parser("rm", help="remove a store; its files stay")
    removed.add_argument("store", metavar="ID")
    for each in (listed, searched):
        each.add_argument("--json", action="store_true", help="print one JSON object per line")
    add_config_flag(searched)
    return parser


async def _run(options: argparse.Namespace, settings: Settings) -> int:
    from ferrule.store import Store

    path = state_file(settings.home)
    if not path.exists():
        if options.action in ("search", "rm"):
            raise UsageError(_unknown(options.store))
        _say_nothing(options)
        return DONE
    async with await Store.open(path, shared=True) as store:
        if options.action == "search":
            return await _search(store, settings, options)
        if options.action == "rm":
            return await _remove(store, settings, options.store)
        return await _list(store, options)


def _say_nothing(options: argparse.Namespace) -> None:
    if not options.json:
        print(NOTHING)


async def _all(store: "Store") -> "AsyncIterator[VectorStore]":
    """Yield the stores of each key, and those without one."""
    from ferrule.store import Paging

    for owner in ("", *await store.keys()):
        after: str | None = None
        while True:
            page = await store.vector_stores(owner, Paging(limit=PAGE, after=after))
            for one in page.data:
                yield one
            if not page.has_more:
                break
            after = page.data[-1].id


async def _list(store: "Store", options: argparse.Namespace) -> int:
    found = [one async for one in _all(store)]
    for one in found:
        print(msgspec.json.encode(_fields(one)).decode() if options.json else _line(one))
    if not found:
        _say_nothing(options)
    return DONE


def _fields(store: "VectorStore") -> dict[str, object]:
    return {
        "id": store.id,
        "name": store.name,
        "key": store.owner,
        "files": store.counts.total,
        "in_progress": store.counts.in_progress,
        "failed": store.counts.failed,
        "bytes": store.usage_bytes,
        "expired": store.expired,
    }


def _line(store: "VectorStore") -> str:
    said = [f"{store.counts.total} files", f"{store.usage_bytes / 2**20:.1f} MB"]
    said += [f"{count} {what}" for what, count in _states(store) if count]
    said += [f"of the key {safe(store.owner)}"] if store.owner else []
    said += ["expired"] if store.expired else []
    return f"{store.id}  {safe(store.name) or '-'}  {', '.join(said)}"


def _states(store: "VectorStore") -> list[tuple[str, int]]:
    return [("in progress", store.counts.in_progress), ("failed", store.counts.failed)]


async def _found(store: "Store", store_id: str) -> "VectorStore":
    """Return a store, whoever's it is. Raises `UsageError`."""
    for owner in ("", *await store.keys()):
        found = await store.vector_store(owner, store_id)
        if found is not None:
            return found
    raise UsageError(_unknown(store_id))


def _unknown(store_id: str) -> str:
    return f"there is no vector store {store_id}; `ferrule stores list` lists them"


async def _search(store: "Store", settings: Settings, options: argparse.Namespace) -> int:
    from ferrule.hosted.vector_stores import search_of

    found = await _found(store, options.store)
    if found.expired:
        raise UsageError(f"the vector store {found.id} has expired")
    async with _client_stores(store, settings) as stores:
        hits = await stores.search(found.owner, [found.id], search_of([options.query], HITS))
        reason = stores.reason
    for hit in hits:
        if options.json:
            print(msgspec.json.encode(hit).decode())
        else:
            print(f"{safe(hit.filename)}  {hit.score:.2f}\n{safe(hit.text)}\n")
    print_warnings([] if reason is None else [reason])
    return DONE


async def _remove(store: "Store", settings: Settings, store_id: str) -> int:
    found = await _found(store, store_id)
    await store.delete_vector_store(found.owner, found.id)
    async with _client_stores(store, settings) as stores:
        await stores.indexes.remove(found.id)
    print(f"removed {found.id}")
    return DONE


@asynccontextmanager
async def _client_stores(store: "Store", settings: Settings) -> "AsyncIterator[ClientStores]":
    from ferrule.hosted.vector_stores import ClientStores, Indexes, WatchedEmbedder, index_folder
    from ferrule.retrieval.embedders import open_embedder
    from ferrule.retrieval.vectors import VectorMemory

    embedder = WatchedEmbedder(open_embedder(settings.embeddings, os.environ))
    folder = index_folder(state_file(settings.home))
    indexes = Indexes(folder, embedder, VectorMemory(settings.embeddings.memory_bytes))
    try:
        yield ClientStores(store, indexes, embedder, lambda: int(time.time()))
    finally:
        await indexes.aclose()
        await embedder.aclose()
