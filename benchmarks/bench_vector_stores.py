"""Files that are added to a vector store of the gateway: parsed in a process apart, cut, embedded, indexed, counted.

python -m benchmarks.bench_vector_stores
"""

import asyncio
import sqlite3
import tempfile
from collections.abc import AsyncIterator
from itertools import count, islice
from pathlib import Path

from benchmarks.bench_retrieval import insert, sources
from benchmarks.measure import in_turns, row
from ferrule.documents.extraction import Extractor
from ferrule.hosted.ingestion import Ingestion
from ferrule.hosted.vector_stores import ClientStores, Indexes, WatchedEmbedder
from ferrule.protocol.embedding_settings import EmbeddingsSettings
from ferrule.retrieval.chunking import Chunking, chunks
from ferrule.retrieval.embedders import open_embedder
from ferrule.retrieval.vectors import VectorMemory
from ferrule.store import FileRecord, NewStoreFile, Store, VectorStore

FILES = 60


def main() -> None:
    """Print one line a row."""
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(rows(Path(folder)))


async def rows(folder: Path) -> None:
    """Measure and print."""
    embedder = open_embedder(EmbeddingsSettings(), {})
    assert embedder is not None, "install wordllama"
    texts = [text[:20_000] for text in islice(sources(20_000), FILES)]
    async with await Store.open(folder / "store.db") as store:
        watched, extractor, numbers = WatchedEmbedder(embedder), Extractor(), count()
        indexes = Indexes(folder / "indexes", watched, VectorMemory())
        stores = ClientStores(store, indexes, watched, lambda: 1)
        added = [await kept(store, f"file-{number}", text) for number, text in enumerate(texts)]
        ingestion = Ingestion(stores, extractor)
        await ingestion.start()

        async def ours() -> None:
            made = VectorStore(id=f"vs_{next(numbers)}", owner="", created_at=1, last_active_at=1)
            _, unread = await store.create_vector_store(made, added)
            ingestion.add(unread)
            while (found := await store.vector_store("", made.id)) and found.counts.in_progress:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            assert found is not None and found.counts.completed == FILES

        bare = sqlite3.connect(folder / "bare.sqlite3", isolation_level=None)
        for statement in ("pragma journal_mode = wal", "pragma synchronous = normal", "create table t (text, vector)"):
            bare.execute(statement)

        async def least() -> None:
            for text in texts:
                read = await extractor.read_file("a.py", len(text), pieces(text))
                await insert(bare, embedder, [chunk.text for chunk in chunks(read, Chunking())])

        put, floor = await in_turns([ours, least], 3)
        bare.close()
        await ingestion.aclose()
        await indexes.aclose()
    await embedder.aclose()
    name = "a file of 20 KB in a vector store, over parse, embed, plain insert one by one"
    print(row(name, put / FILES, floor / FILES, 3, "ms", 1e3))


async def kept(store: Store, file_id: str, data: bytes) -> NewStoreFile:
    """Keep a file; return how it is added."""
    record = FileRecord(id=file_id, owner="", created_at=1, filename="a.py", purpose="assistants")
    await store.create_file(record, pieces(data))
    return NewStoreFile(file=file_id, param="file_id", max_tokens=800, overlap_tokens=400)


async def pieces(data: bytes) -> AsyncIterator[bytes]:
    """Yield it whole."""
    yield data


if __name__ == "__main__":
    main()
