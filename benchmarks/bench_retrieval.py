"""Search in documents: putting them in, a question over 100,000 chunks, memory, and a folder of 20,000 source files.

python -m benchmarks.bench_retrieval
"""

import asyncio
import os
import sqlite3
import sysconfig
import tempfile
import time
from collections.abc import Sequence
from itertools import count, cycle, islice
from pathlib import Path
from random import Random

import numpy as np
from numpy.typing import NDArray

from benchmarks.measure import bounded, in_turns, row
from ferrule.protocol.embedding_settings import EmbeddingsSettings
from ferrule.retrieval.chunking import Chunk, Chunking, chunks
from ferrule.retrieval.embedder import Embedder
from ferrule.retrieval.embedders import open_embedder
from ferrule.retrieval.folder_files import survey, text_of
from ferrule.retrieval.folder_index import FolderIndex
from ferrule.retrieval.index import Index
from ferrule.retrieval.tables import Document
from ferrule.retrieval.vectors import VectorMemory
from ferrule.retrieval.words import match_expression

CHUNKS = 100_000
WIDTH = 256
FILES = 20_000
QUESTION = "w11 w240 w37 w5021 w90 w1203"
ONE_CHUNK = "select rowid from words where words match ? order by rank limit 100"


class DrawnVectors:
    """An embedder that takes no time: vectors drawn by chance."""

    name = "drawn"

    def __init__(self) -> None:
        self._drawn = np.random.default_rng(1)

    async def embed(self, texts: Sequence[str], *, query: bool = False, seconds: float = 1.0) -> NDArray[np.float32]:
        """See `Embedder`."""
        rows = self._drawn.standard_normal((len(texts), WIDTH), np.float32)
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        return rows

    async def aclose(self) -> None:
        """Do nothing."""


def main() -> None:
    """Print one line a row."""
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(rows(Path(folder)))


async def rows(folder: Path) -> None:
    """Measure and print."""
    await ingestion_rows(folder)
    await question_rows(folder)
    await folder_rows(folder)


async def ingestion_rows(folder: Path) -> None:
    """Documents of 20 KB, by the vectors of the package, each in a transaction."""
    embedder = open_embedder(EmbeddingsSettings(), {})
    assert embedder is not None, "install wordllama"
    texts = [text[:20_000] for text in islice(sources(20_000), 30)]
    bare = sqlite3.connect(folder / "bare.sqlite3", isolation_level=None)
    for statement in ("pragma journal_mode = wal", "pragma synchronous = normal", "create table t (text, vector)"):
        bare.execute(statement)
    async with await Index.open(folder / "put.sqlite3", embedder=embedder, memory=VectorMemory()) as index:
        numbers = count()

        async def ours() -> None:
            for text in texts:
                await index.put(str(next(numbers)), chunks(text_of(text), Chunking()), title="a.txt")

        ready = [chunks(text_of(text), Chunking()) for text in texts]

        async def least() -> None:
            for text, cut in zip(texts, ready, strict=True):
                text_of(text)
                await insert(bare, embedder, [chunk.text for chunk in cut])

        put, floor = await in_turns([ours, least], 5, 1, time.process_time)
    bare.close()
    each = len(texts)
    print(row("a document of 20 KB put in, over parse, embed, plain insert", put / each, floor / each, 3, "ms", 1e3))


async def insert(bare: sqlite3.Connection, embedder: Embedder, texts: Sequence[str]) -> None:
    """Embed texts and insert them into a plain table."""
    vectors = await embedder.embed(texts)
    bare.execute("begin")
    bare.executemany("insert into t values (?, ?)", zip(texts, (vector.tobytes() for vector in vectors), strict=True))
    bare.execute("commit")


async def question_rows(folder: Path) -> None:
    """A question of six words over 100,000 chunks of 60."""
    path, memory, embedder = folder / "large.sqlite3", VectorMemory(), DrawnVectors()
    async with await Index.open(path, embedder=embedder, memory=memory) as index:
        await fill(index)
        matrix = (await embedder.embed([""])).repeat(CHUNKS, axis=0)
        question = matrix[0]
        bare = sqlite3.connect(path)

        async def ours() -> None:
            assert len(await index.search([QUESTION], limit=10)) == 10

        def least() -> None:
            bare.execute(ONE_CHUNK, (match_expression(QUESTION),)).fetchall()
            matrix @ question

        asked, floor = await in_turns([ours, least], 15, 1, time.process_time)
        bare.close()
        print(row("a question over 100,000 chunks, over BM25 and a matrix product", asked, floor, 1.3, "ms", 1e3))
        print(bounded("memory of their vectors", memory.nbytes, CHUNKS * (WIDTH * 4 + 24) / 2**20, "MB", 2**-20))
        matrix = question
    await memory_row(path)


async def memory_row(path: Path) -> None:
    """The same index where its vectors may take a tenth of what they need."""
    memory = VectorMemory(10 << 20)
    async with await Index.open(path, embedder=DrawnVectors(), memory=memory) as index:
        await index.search([QUESTION], limit=10)
        before = resident()
        for _ in range(5):
            await index.search([QUESTION], limit=10)
        grown = max(0, resident() - before)
    print(bounded("memory that questions add where vectors may take 10 MB", grown, 10, "MB", 2**-20))


async def fill(index: Index) -> None:
    """Documents of 100 chunks, in words as frequent as those of a language."""
    drawn = Random(1)
    words = [f"w{number}" for number in range(50_000)]
    weights = [1 / (number + 1) for number in range(len(words))]
    totals = np.cumsum(weights).tolist()
    for start in range(0, CHUNKS, 1000):
        documents = [
            Document(
                f"d{number}",
                [Chunk(" ".join(drawn.choices(words, cum_weights=totals, k=60)), at) for at in range(100)],
                title=f"d{number}.txt",
            )
            for number in range(start // 100, start // 100 + 10)
        ]
        await index.put_all(documents)


def resident() -> int:
    """The memory of this process, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def folder_rows(folder: Path) -> None:
    """20,000 source files, those of Python itself again and again, up to 8 KB each."""
    top = folder / "sources"
    for number, data in enumerate(islice(cycle(sources(8_000)), FILES)):
        place = top / f"p{number // 100}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"m{number}.py").write_bytes(data)
    clock = time.process_time
    started = clock()
    insert_all(top, folder / "words.sqlite3")
    floor = clock() - started
    index = await FolderIndex.open(str(top), str(folder), None, VectorMemory(), None)
    async with index:
        started = clock()
        await index.start()
        ours = clock() - started
        assert index.state is None
        print(row("a folder of 20,000 source files indexed, over reading and FTS5", ours, floor, 3, "s", 1))
        known = await index.index.stamps()
        again, walked = await in_turns([lambda: survey(index.top, known, None), lambda: looked_at(top)], 3, 1, clock)
        assert len(known) == FILES
        print(row("the same folder looked at again, unchanged, over a walk", again, walked, None, "s", 1))


def insert_all(top: Path, path: Path) -> None:
    """Read the files, and insert their text into FTS5, in one transaction."""
    words = sqlite3.connect(path, isolation_level=None)
    words.execute("create virtual table words using fts5(text)")
    words.execute("begin")
    for folder, _, names in os.walk(top):
        for name in names:
            words.execute("insert into words values (?)", (Path(folder, name).read_bytes().decode(errors="replace"),))
    words.execute("commit")
    words.close()


def looked_at(top: Path) -> int:
    """Walk and stat."""
    return sum(os.lstat(f"{folder}/{name}").st_size for folder, _, names in os.walk(top) for name in names)


def sources(most: int) -> list[bytes]:
    """The source files of Python up to a size, at least half of it."""
    files = sorted(Path(sysconfig.get_path("stdlib")).rglob("*.py"))
    return [file.read_bytes() for file in files if most // 4 < file.stat().st_size <= most]


if __name__ == "__main__":
    main()
