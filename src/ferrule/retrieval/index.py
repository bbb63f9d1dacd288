"""An index: documents as chunks in one SQLite file, found by their words and by what they mean.

A document is wholly in it or not at all, whenever the program ends. Where there is no embedder, or it does not answer,
documents go in without vectors and are found by their words; `embed_missing` gives them vectors later.
"""

import asyncio
import os
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, Self

import msgspec

from ferrule.retrieval import tables
from ferrule.retrieval.chunking import Chunk
from ferrule.retrieval.connection import IndexDamaged, IndexFault, ThreadedConnection, explained
from ferrule.retrieval.embedder import PATIENT_SECONDS, Embedder, EmbedderDown, TextRefused
from ferrule.retrieval.filters import Attributes, Filter
from ferrule.retrieval.fusion import Weights
from ferrule.retrieval.searching import Hit, Ranker, Rankings, Search, Vectors, ranked, search_all
from ferrule.retrieval.tables import Counts, Document, Found
from ferrule.retrieval.vectors import VectorMemory
from ferrule.retrieval.words import writable
from ferrule.sync import AsyncClosing

Mode = Literal["hybrid", "lexical"]

BATCH = 32
"""Texts in a request to an embedder: the most that each of the usual servers takes."""
PUT_SECONDS = 4.0
"""How long a document waits for the vectors of a batch before it goes in without: it is to be found within 5."""
PROBE = "dimension"
"""What a server is asked for to see whether it answers, and with how many numbers."""
SHORT = 200
"""Characters of a text that no model finds too long."""
CHANGED = "The model of the vectors has just changed: what has those of another gets new ones."
NO_EMBEDDER = "There are no vectors: set embeddings.base_url and embeddings.model, or install 'ferrule[search]'."


class Index(AsyncClosing):
    """Documents that can be searched. Several programs may use one file; one at a time writes."""

    def __init__(self, path: Path, embedder: Embedder | None, memory: VectorMemory) -> None:
        self._path = path
        self._embedder = embedder
        self._memory = memory
        self._down: str | None = NO_EMBEDDER if embedder is None else None
        self._model = ""  # of the last vectors that came: its name and dimension
        self._writes = ThreadedConnection(path, "begin immediate")
        self._reads = ThreadedConnection(path, "begin")
        self._embedding = asyncio.Lock()

    @classmethod
    async def open(cls, path: str | os.PathLike[str], *, embedder: Embedder | None, memory: VectorMemory) -> Self:
        """Open the file of an index, or make it; its folder has to exist. The embedder stays the caller's. Raises
        `IndexFault`."""
        index = cls(Path(path), embedder, memory)
        try:
            with explained(index._path):
                await asyncio.to_thread(_make_file, index._path)
            if not await index._writes.run(tables.make_tables):
                raise IndexDamaged(f"The index {path} was made by another version: remove it, and it is made again.")
        except BaseException:
            await index.aclose()
            raise
        return index

    @property
    def mode(self) -> Mode:
        """`lexical` if documents are found only by their words now."""
        return "hybrid" if self._down is None else "lexical"

    @property
    def reason(self) -> str | None:
        """Why the mode is `lexical`: a sentence for the user."""
        return self._down

    async def put(
        self,
        document: str,
        chunks: Sequence[Chunk],
        *,
        title: str,
        attributes: Attributes = {},  # noqa: B006 - is only read
        stamp: str = "",
    ) -> int:
        """Put a document in, in the place of one of that name. Returns the bytes that its text and vectors take. Raises
        `IndexFault`."""
        return sum(await self.put_all([Document(document, chunks, title, attributes, stamp)]))

    async def put_all(self, documents: Sequence[Document], *, embed: bool = True) -> list[int]:
        """`put` several in one transaction, without `embed` for `embed_missing` to go on with. They have different
        names."""
        documents = [_written(document) for document in documents]
        texts = [chunk.text for document in documents for chunk in document.chunks] if embed else []
        return await self._writes.run(_put_all, documents, await self._vectors_for(texts))

    async def set_attributes(self, document: str, attributes: Attributes) -> bool:
        """Give a document other attributes. False if there is none of that name."""
        return await self._writes.run(tables.set_attributes, document, attributes)

    async def remove(self, document: str) -> bool:
        """Take a document out; no search finds it after this has returned. False if there is none of that name."""
        return await self._writes.run(tables.remove, document)

    async def remove_all(self, documents: Sequence[str]) -> None:
        """`remove` several in one transaction."""
        await self._writes.run(_remove_all, documents)

    async def set_stamps(self, stamps: Mapping[str, str]) -> None:
        """Give documents other stamps, by their names."""
        await self._writes.run(tables.set_stamps, stamps)

    async def chunks_of(self, document: str) -> list[str]:
        """Return the texts of a document's chunks, in order."""
        return await self._reads.run(tables.chunks_of, document)

    async def stamps(self) -> dict[str, str]:
        """Return the stamps of all documents by their names."""
        return await self._reads.run(tables.stamps)

    async def counts(self) -> Counts:
        """Count what is in it."""
        return await self._reads.run(tables.counts)

    async def fact(self, name: str) -> str:
        """Return what `set_fact` has noted, for the caller's own use; empty if nothing was."""
        return await self._reads.run(tables.fact, name)

    async def set_fact(self, name: str, value: str) -> None:
        """Note something about the index."""
        await self._writes.run(tables.set_fact, name, value)

    async def search(
        self,
        queries: Sequence[str],
        *,
        limit: int,
        filter: Filter | None = None,  # noqa: A002 - the API's name
        threshold: float = 0.0,
        ranker: Ranker = "auto",
        weights: Weights = Weights(),  # noqa: B008 - frozen
    ) -> list[Hit]:
        """Return up to `limit` chunks that answer one of the questions, the best first.

        `auto` joins the rankings by words and by vectors, each with its weight; a score of 1 is the first place in
        both. `none` takes the vectors' ranking as it is, with the cosine as the score, or that by words where there is
        no other. Hits below `threshold` are left out. Raises `IndexFault`.
        """
        wanted = Search(queries, limit, filter, threshold, ranker, weights)
        return [hit for _, hit in await search_all([self], wanted)]

    async def question_vectors(self, queries: Sequence[str]) -> Vectors | None:
        """Return the vectors of questions, None if they are not to be had now. Blank ones, which servers refuse, have
        vectors of nothing."""
        asked = [query for query in queries if query.strip()]
        if self._embedder is None or not asked:
            return None
        try:
            made = await self._embedded(self._embedder, asked, query=True, seconds=PUT_SECONDS)
        except EmbedderDown:
            return None
        if len(asked) == len(queries):
            return made
        import numpy as np

        rows = np.zeros((len(queries), made.rows.shape[1]), np.float32)
        rows[[place for place, query in enumerate(queries) if query.strip()]] = made.rows
        return Vectors(made.model, rows)

    async def rank(self, search: Search, vectors: Vectors | None) -> list[Rankings]:
        """Return the chunks that each question finds. Raises `IndexFault`."""
        return await self._reads.run(ranked, search, vectors, self._memory, self)

    async def found(self, chunks: Sequence[int]) -> dict[int, Found]:
        """Return chunks by their numbers, as far as they are still there. Raises `IndexFault`."""
        return await self._reads.run(tables.found, chunks)

    async def embed_missing(self) -> int:
        """Give vectors to chunks that have none of the embedder's model. Returns how many got theirs; while the
        embedder does not answer, or has become another, none more. Raises `IndexFault`."""
        if self._embedder is None:
            return 0
        async with self._embedding:
            done = 0
            try:
                if not self._model:
                    await self._probe(self._embedder)
                model = self._model
                await self._writes.run(tables.adopt, model)
                while some := await self._reads.run(tables.waiting, BATCH):
                    done += await self._embed(self._embedder, some)
                    if self._model != model:  # two models that take turns would be asked for ever
                        self._down = CHANGED
                        break
            except EmbedderDown:
                pass  # `reason` says it
            return done

    async def aclose(self) -> None:
        """Finish what was asked for, and close the file."""
        await self._writes.aclose()
        await self._reads.aclose()
        self._memory.drop(self)

    async def _embed(self, embedder: Embedder, some: Sequence[tuple[int, str]]) -> int:
        """Embed chunks, one by one if the model refuses one of them: that one gets no vector of this model."""
        numbers, texts = [number for number, _ in some], [text for _, text in some]
        try:
            made = await self._embedded(embedder, texts)
        except TextRefused:
            if len(some) > 1:
                return sum([await self._embed(embedder, [one]) for one in some])
            if len(texts[0]) > SHORT:  # too long for the model: its beginning is better than nothing
                return await self._embed(embedder, [(numbers[0], texts[0][: len(texts[0]) // 2])])
            await self._probe(embedder)  # is it the text, or is it the server?
            await self._writes.run(tables.give_up, numbers[0])
            return 0
        await self._writes.run(tables.give_vectors, made.model, numbers, made.rows)
        return len(some)

    async def _probe(self, embedder: Embedder) -> None:
        """See whether the embedder answers at all. Raises `EmbedderDown`."""
        try:
            await self._embedded(embedder, [PROBE])
        except TextRefused as error:
            self._down = str(error)
            raise

    async def _vectors_for(self, texts: Sequence[str]) -> Vectors | None:
        """Return the vectors of documents, None if they are not to be had now."""
        if self._embedder is None or not texts:
            return None
        import numpy as np

        parts: list[Vectors] = []
        try:
            for start in range(0, len(texts), BATCH):
                some = texts[start : start + BATCH]
                parts.append(await self._embedded(self._embedder, some, seconds=PUT_SECONDS))
        except EmbedderDown:  # or it refuses a text: `embed_missing` finds out which
            return None
        if {part.model for part in parts} != {self._model}:  # another model took its place meanwhile
            return None
        return Vectors(self._model, np.concatenate([part.rows for part in parts]))

    async def _embedded(
        self, embedder: Embedder, texts: Sequence[str], *, query: bool = False, seconds: float = PATIENT_SECONDS
    ) -> Vectors:
        """Ask the embedder, and remember whether it answers. Raises `EmbedderDown`."""
        try:
            rows = await embedder.embed(texts, query=query, seconds=seconds)
        except TextRefused:
            raise
        except EmbedderDown as error:
            self._down = str(error)
            raise
        self._down, self._model = None, f"{embedder.name}, {rows.shape[1]} dimensions"
        return Vectors(self._model, rows)


def _make_file(path: Path) -> None:
    """Make the file where there is none, for this user alone."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    except OSError as error:
        raise IndexFault(f"The index {path} cannot be opened: {error.strerror}.") from error


def _written(document: Document) -> Document:
    """Return a document whose texts can be stored."""
    if document.title.isascii() and all(chunk.text.isascii() for chunk in document.chunks):
        return document
    written = [Chunk(writable(chunk.text), chunk.start) for chunk in document.chunks]
    return msgspec.structs.replace(document, chunks=written, title=writable(document.title))


def _remove_all(tx: sqlite3.Connection, documents: Sequence[str]) -> None:
    for document in documents:
        tables.remove(tx, document)


def _put_all(tx: sqlite3.Connection, documents: Sequence[Document], vectors: Vectors | None) -> list[int]:
    if vectors is not None:
        tables.adopt(tx, vectors.model)
    used, start = [], 0
    for document in documents:
        stop = start + len(document.chunks)
        used.append(tables.put(tx, document, None if vectors is None else vectors.rows[start:stop]))
        start = stop
    return used
