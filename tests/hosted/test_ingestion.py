"""Files of vector stores while they are read: deleted, cancelled, added again, and by whom."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from numpy import float32
from numpy.typing import NDArray

from ferrule.documents.extraction import Extractor
from ferrule.hosted import ingestion
from ferrule.hosted.ingestion import Ingestion, Queue
from ferrule.hosted.vector_stores import ClientStores, Indexes, UnknownStore, WatchedEmbedder, search_of
from ferrule.retrieval.connection import IndexFault
from ferrule.retrieval.vectors import VectorMemory
from ferrule.store import FileBatch, FileRecord, NewStoreFile, Store, StoreError, VectorStore
from ferrule.store.vector_stores import Unread
from tests.retrieval.toy import toy_vectors


class Held:
    """An embedder that waits until it is let go."""

    name = "held"

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.go = asyncio.Event()

    async def embed(self, texts: Sequence[str], *, query: bool = False, seconds: float = 1.0) -> "NDArray[float32]":
        self.asked.set()
        await self.go.wait()
        return toy_vectors(list(texts), 32)

    async def aclose(self) -> None:
        return


class Place:
    """A store with a vector store, and what reads its files."""

    def __init__(self, store: Store, folder: Path) -> None:
        self.store = store
        self.folder = folder
        self.embedder = Held()
        watched = WatchedEmbedder(self.embedder)
        self.indexes = Indexes(folder / "indexes", watched, VectorMemory())
        self.stores = ClientStores(store, self.indexes, watched, lambda: 1)
        self.ingestion = Ingestion(self.stores, Extractor())

    async def add(self, file: str, attributes: bytes = b"{}") -> None:
        """Add a file, and wait until it is being read."""
        new = NewStoreFile(file=file, param="file_id", max_tokens=800, overlap_tokens=400, attributes=attributes)
        self.embedder.asked.clear()
        self.ingestion.add(await self.store.add_store_files("", "vs_1", [new], 1))

    async def settle(self) -> None:
        """Let everything be read."""
        self.embedder.go.set()
        async with asyncio.timeout(30):
            while await self.store.unread_files() or self.ingestion.busy:  # noqa: ASYNC110 - as clients wait
                await asyncio.sleep(0.01)

    async def finds(self, file: str) -> bool:
        """Whether a search finds the file."""
        try:
            hits = await self.stores.search("", ["vs_1"], search_of(["plums"], 10))
        except IndexFault:
            return False
        return [hit.file for hit in hits] == [file]

    async def documents(self) -> set[str]:
        """What is in the index."""
        async with self.indexes.use("vs_1") as index:
            return set(await index.stamps())


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(30):
        while not await holds():  # noqa: ASYNC110 - as clients wait
            await asyncio.sleep(0.01)


def another_version(index: bytes) -> bytes:
    """Return the file of an index with another `user_version`, which is at byte 60 of SQLite's files."""
    return index[:60] + (99).to_bytes(4, "big") + index[64:]


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    async def words() -> AsyncIterator[bytes]:
        yield b"plums"

    async with await Store.open(tmp_path / "store.db") as store:
        for file in ("file-1", "file-2"):
            record = FileRecord(id=file, owner="", created_at=1, filename=f"{file}.txt", purpose="p")
            await store.create_file(record, words())
        await store.create_vector_store(VectorStore(id="vs_1", owner="", created_at=1, last_active_at=1), [])
        made = Place(store, tmp_path)
        await made.ingestion.start()
        yield made
        await made.ingestion.aclose()
        await made.indexes.aclose()


async def test_an_index_is_made_for_files_alone(place: Place) -> None:
    """Whoever else uses one may be late: the store is gone, and nobody would remove it."""
    assert await place.stores.search("", ["vs_1"], search_of(["plums"], 10)) == []
    await place.stores.set_attributes("vs_1", "file-1", b"{}")
    await place.stores.forget([("vs_1", "file-1")])
    await place.ingestion._completed("vs_1")
    assert place.indexes.known() == []


async def test_what_is_deleted_while_it_is_indexed_does_not_come_back(place: Place) -> None:
    await place.add("file-1")
    await place.embedder.asked.wait()
    await place.store.remove_store_file("", "vs_1", "file-1")
    await place.stores.forget([("vs_1", "file-1")])
    await place.settle()
    assert await place.documents() == set()
    await place.add("file-2")
    await place.store.delete_vector_store("", "vs_1")
    await place.indexes.remove("vs_1")
    await place.settle()
    assert place.indexes.known() == []


async def test_what_is_cancelled_while_it_is_indexed_is_not_found(place: Place) -> None:
    new = NewStoreFile(file="file-1", param="x", max_tokens=800, overlap_tokens=400)
    made = await place.store.add_file_batch("", FileBatch(id="b", store="vs_1", created_at=1), [new])
    assert made is not None
    place.ingestion.add(made[1])
    await place.embedder.asked.wait()
    await place.store.cancel_file_batch("", "vs_1", "b")
    await place.settle()
    assert await place.documents() == set()


async def test_what_is_added_again_while_it_is_indexed_is_there_once_as_it_was_added_last(place: Place) -> None:
    await place.add("file-1", b'{"n":1}')
    await place.embedder.asked.wait()
    await place.add("file-1", b'{"n":2}')
    await place.store.set_file_attributes("", "vs_1", "file-1", b'{"n":3}')
    await place.settle()
    hits = await place.stores.search("", ["vs_1"], search_of(["plums"], 10))
    assert [(hit.file, hit.attributes) for hit in hits] == [("file-1", {"n": 3})]


async def test_a_file_is_cut_as_the_client_wants(place: Place) -> None:
    async def words() -> AsyncIterator[bytes]:
        yield b"plums " * 500

    await place.store.create_file(
        FileRecord(id="long", owner="", created_at=1, filename="long.txt", purpose="p"), words()
    )
    found = []
    for most, overlap in ((800, 400), (200, 0), (200, 100)):
        new = NewStoreFile(file="long", param="file_id", max_tokens=most, overlap_tokens=overlap)
        place.ingestion.add(await place.store.add_store_files("", "vs_1", [new], 1))
        await place.settle()
        found.append(len(await place.stores.search("", ["vs_1"], search_of(["plums"], 10))))
    assert found[0] == 1 < found[1] < found[2]


async def test_a_fault_with_one_file_leaves_the_others(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    read = place.ingestion._extractor.read_file

    async def breaks(name: str, *args: Any) -> str:
        if name == "file-1.txt":
            raise RuntimeError("a fault")
        return await read(name, *args)

    monkeypatch.setattr(place.ingestion._extractor, "read_file", breaks)
    await place.add("file-1")
    await place.add("file-2")
    await place.settle()
    failed = await place.store.store_file("", "vs_1", "file-1")
    assert failed is not None and (failed.status, failed.error_code) == ("failed", "server_error")
    assert await place.documents() == {"file-2"}


async def test_a_fault_while_the_store_cannot_be_written_ends_no_worker(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.embedder.go.set()
    monkeypatch.setattr(ingestion, "RETRY_SECONDS", 0.0)
    read, end = place.ingestion._extractor.read_file, place.store.end_store_file
    faults = [RuntimeError("a fault")] * ingestion.WORKERS
    refusals = [StoreError("The disk is full.")] * ingestion.WORKERS

    async def breaks(*args: Any) -> str:
        if faults:
            raise faults.pop()
        return await read(*args)

    async def refuses(number: int, **more: Any) -> bytes | None:
        if refusals:
            raise refusals.pop()
        return await end(number, **more)

    monkeypatch.setattr(place.ingestion._extractor, "read_file", breaks)
    monkeypatch.setattr(place.store, "end_store_file", refuses)
    await place.add("file-1")
    await place.settle()
    assert await place.documents() == {"file-1"}


async def test_an_index_that_was_lost_is_made_again_at_the_next_start(place: Place) -> None:
    await place.add("file-1")
    await place.settle()
    await place.indexes.remove("vs_1")
    again = Ingestion(place.stores, Extractor())
    await again.start()
    await until(lambda: place.finds("file-1"))
    await again.aclose()


async def test_an_index_that_is_damaged_is_made_again(place: Place) -> None:
    await place.add("file-1")
    await place.settle()
    await place.indexes.aclose()
    [path] = (one for one in place.folder.rglob("*.index"))
    for bad in (b"damage" * 1000, another_version(path.read_bytes())):
        path.write_bytes(bad)
        with pytest.raises(IndexFault):
            await place.stores.search("", ["vs_1"], search_of(["plums"], 10))
        await until(lambda: place.finds("file-1"))
        await place.indexes.aclose()


async def test_another_client_s_store_is_not_searched(place: Place) -> None:
    for owner, store in (("them", "vs_1"), ("", "vs_2")):
        with pytest.raises(UnknownStore):
            await place.stores.search(owner, [store], search_of(["plums"], 10))


async def test_clients_take_turns_and_a_file_is_not_read_twice_at_once() -> None:
    queue = Queue()
    queue.add(Unread(number, "ann", "vs_1", f"f{number}") for number in range(3))
    queue.add([Unread(9, "bob", "vs_2", "f"), Unread(10, "bob", "vs_2", "f")])
    taken = [await queue.take() for _ in range(4)]
    assert [one.number for one in taken] == [0, 9, 1, 2]
    waiting = asyncio.create_task(queue.take())
    await asyncio.sleep(0)
    assert not waiting.done(), "the same file is being read"
    queue.done(taken[1])
    assert (await waiting).number == 10
