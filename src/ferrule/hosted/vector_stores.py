"""The clients' vector stores: what they are called is in the store, what is found in them in an index each."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec

from ferrule.protocol.errors import FerruleError
from ferrule.protocol.json_text import JsonValue
from ferrule.retrieval.connection import IndexClosed, IndexDamaged, IndexFault
from ferrule.retrieval.embedder import PATIENT_SECONDS, Embedder, EmbedderDown, TextRefused
from ferrule.retrieval.filters import Value, read_filter
from ferrule.retrieval.fusion import Weights
from ferrule.retrieval.index import NO_EMBEDDER, SHORT, Index, Mode
from ferrule.retrieval.searching import Hit, Search, search_all
from ferrule.retrieval.vectors import VectorMemory
from ferrule.store import Store

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

MOST_OPEN = 64
"""Indexes that stay open though nobody uses them: each holds two threads and some file descriptors."""
SPARE_HITS = 8
"""Hits that are asked for beyond those wanted: some may be of files that are being taken out."""
MAX_QUERY = 16_000
"""Characters of a query that are looked at: more say nothing more, and every text is to be answered."""
FOLDER_MODE = 0o700
_SUFFIX = ".index"


Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Weight = Annotated[float, msgspec.Meta(ge=0)]


class HybridSearch(msgspec.Struct, frozen=True):
    """How much the two rankings count."""

    embedding_weight: Weight
    text_weight: Weight

    def __post_init__(self) -> None:
        if not self.embedding_weight and not self.text_weight:
            raise ValueError("one of the two weights has to be above 0")


class RankingOptions(msgspec.Struct, frozen=True):
    """How hits are ranked, as the Responses API has it. Rankers with a date are what `auto` was then."""

    ranker: Literal["auto", "none", "default-2024-11-15", "default_2024_08_21"] | None = None
    score_threshold: Share | None = None
    hybrid_search: HybridSearch | None = None


def search_of(
    queries: Sequence[str], limit: int, filters: JsonValue = None, ranking: RankingOptions | None = None
) -> Search:
    """Return a search as a client asks for it. Raises `BadFilter`."""
    options = ranking or RankingOptions()
    hybrid = options.hybrid_search
    return Search(
        queries=[query[:MAX_QUERY] for query in queries],
        limit=limit,
        filter=None if filters is None else read_filter(filters),
        threshold=options.score_threshold or 0.0,
        ranker="none" if options.ranker == "none" else "auto",
        weights=Weights() if hybrid is None else Weights(hybrid.embedding_weight, hybrid.text_weight),
    )


class UnknownStore(FerruleError):
    """There is no such vector store, or it is somebody else's, or it has expired."""


class FileHit(msgspec.Struct, frozen=True):
    """A chunk of a file that was found; `score` from 1 down to 0."""

    file: str
    filename: str
    text: str
    score: float
    attributes: Mapping[str, Value]


class WatchedEmbedder:
    """An embedder whose state everybody can see: `down` says why there are no vectors now."""

    def __init__(self, embedder: Embedder | None) -> None:
        self.embedder = embedder
        self.down: str | None = NO_EMBEDDER if embedder is None else None

    @property
    def name(self) -> str:
        """The model."""
        return "" if self.embedder is None else self.embedder.name

    async def embed(
        self, texts: Sequence[str], *, query: bool = False, seconds: float = PATIENT_SECONDS
    ) -> "NDArray[np.float32]":
        """Embed, and note whether it worked. Raises `EmbedderDown`."""
        assert self.embedder is not None
        try:
            rows = await self.embedder.embed(texts, query=query, seconds=seconds)
        except EmbedderDown as error:
            if not isinstance(error, TextRefused) or max(map(len, texts)) <= SHORT:  # no model finds that too long
                self.down = str(error)
            raise
        self.down = None
        return rows

    async def aclose(self) -> None:
        """End what belongs to it."""
        if self.embedder is not None:
            await self.embedder.aclose()


def index_folder(state: Path) -> Path:
    """Return where the indexes of the gateway lie whose state is in this file."""
    return Path(f"{state}.indexes")


class Indexes:
    """The indexes in a folder, by the ids of their stores. One is opened at its first use."""

    def __init__(self, folder: Path, embedder: WatchedEmbedder, memory: VectorMemory) -> None:
        self._folder = folder
        self._embedder = embedder
        self._memory = memory
        self._open: dict[str, Index] = {}
        self._uses: dict[str, int] = {}
        self._opening = asyncio.Lock()
        self._damaged: dict[str, None] = {}
        self._found_damaged = asyncio.Event()

    def known(self) -> list[str]:
        """Return the ids of the stores that have an index on the disk. Blocking."""
        with suppress(FileNotFoundError):
            return [name.removesuffix(_SUFFIX) for name in os.listdir(self._folder) if name.endswith(_SUFFIX)]
        return []

    @asynccontextmanager
    async def use(self, store_id: str, *, existing: bool = False) -> AsyncIterator[Index]:
        """Give a store's index, which stays open until the block is left. One that is not there is made, or, if only
        an `existing` one will do, raises `IndexClosed`: the store may be gone. Raises `IndexFault`."""
        self._uses[store_id] = self._uses.get(store_id, 0) + 1
        index: Index | None = None
        try:
            async with self._opening:
                index = self._open.pop(store_id, None) or await self._opened(store_id, existing=existing)
                self._open[store_id] = index  # the newest is the last
                await self._close_unused()
            yield index
        except IndexDamaged:
            if self._open.get(store_id) is index:  # it was not made again meanwhile
                self._damaged[store_id] = None
                self._found_damaged.set()
            raise
        finally:
            self._uses[store_id] -= 1
            if not self._uses[store_id]:
                del self._uses[store_id]

    async def remove_damaged(self) -> str:
        """Wait until the index of a store is found damaged, and remove it. Returns the store."""
        while not self._damaged:
            self._found_damaged.clear()
            await self._found_damaged.wait()
        store_id = next(iter(self._damaged))
        await self.remove(store_id)
        self._damaged.pop(store_id, None)
        return store_id

    async def remove(self, store_id: str) -> None:
        """Remove a store's index with all that is in it."""
        async with self._opening:
            index = self._open.pop(store_id, None)
            if index is not None:
                await index.aclose()
            await asyncio.to_thread(self._unlink, store_id)

    async def aclose(self) -> None:
        """Close all."""
        async with self._opening:
            while self._open:
                await self._open.popitem()[1].aclose()

    async def _opened(self, store_id: str, *, existing: bool) -> Index:
        if existing and not await asyncio.to_thread(self._path(store_id).exists):
            raise IndexClosed(f"The vector store {store_id} has no index.")
        try:
            await asyncio.to_thread(self._folder.mkdir, FOLDER_MODE, exist_ok=True)
        except OSError as error:
            raise IndexFault(f"The folder {self._folder} cannot be made: {error.strerror}.") from error
        embedder = self._embedder if self._embedder.embedder is not None else None
        return await Index.open(self._path(store_id), embedder=embedder, memory=self._memory)

    async def _close_unused(self) -> None:
        unused = [store_id for store_id in self._open if store_id not in self._uses]
        for store_id in unused[: max(0, len(self._open) - MOST_OPEN)]:
            await self._open.pop(store_id).aclose()

    def _path(self, store_id: str) -> Path:
        return self._folder / f"{store_id}{_SUFFIX}"

    def _unlink(self, store_id: str) -> None:
        for ending in ("", "-wal", "-shm"):
            Path(f"{self._path(store_id)}{ending}").unlink(missing_ok=True)


class ClientStores:
    """What clients find in their vector stores."""

    def __init__(self, store: Store, indexes: Indexes, embedder: WatchedEmbedder, now: Callable[[], int]) -> None:
        self.store = store
        self.indexes = indexes
        self._embedder = embedder
        self._now = now

    @property
    def embeds(self) -> bool:
        """False if there is nobody who makes vectors."""
        return self._embedder.embedder is not None

    @property
    def mode(self) -> Mode:
        """How files are found now."""
        return "hybrid" if self._embedder.down is None else "lexical"

    @property
    def reason(self) -> str | None:
        """Why they are found only by their words."""
        return self._embedder.down

    async def check(self, owner: str, store_id: str) -> None:
        """Raise `UnknownStore` if a store cannot be searched."""
        found = await self.store.vector_store(owner, store_id)
        if found is None:
            raise UnknownStore(f"There is no vector store {store_id!r}.")
        if found.expired:
            raise UnknownStore(f"The vector store {store_id!r} has expired: make another one.")

    async def search(self, owner: str, store_ids: Sequence[str], search: Search) -> list[FileHit]:
        """Return the best chunks of all these stores together. Raises `UnknownStore` and `IndexFault`."""
        store_ids = list(dict.fromkeys(store_ids))
        for store_id in store_ids:
            await self.check(owner, store_id)
            await self.store.change_vector_store(owner, store_id, {"last_active_at": self._now()})
        more = msgspec.structs.replace(search, limit=search.limit + SPARE_HITS)
        try:
            async with AsyncExitStack() as used:
                indexes = {store_id: one for store_id in store_ids if (one := await self._existing(used, store_id))}
                hits = await search_all([*indexes.values()], more) if indexes else []
        except IndexFault:
            for store_id in store_ids:  # was one deleted meanwhile?
                await self.check(owner, store_id)
            raise
        return (await self._named([*indexes], hits))[: search.limit]

    async def _existing(self, used: AsyncExitStack, store_id: str) -> Index | None:
        """Use a store's index, if it has one: without files it has none, nor if it has just been deleted."""
        with suppress(IndexClosed):
            return await used.enter_async_context(self.indexes.use(store_id, existing=True))
        return None

    async def chunks_of(self, store_id: str, file_id: str) -> list[str]:
        """Return the texts of a file's chunks, in order."""
        async with self.indexes.use(store_id) as index:
            return await index.chunks_of(file_id)

    async def set_attributes(self, store_id: str, file_id: str, attributes: bytes) -> None:
        """Let filters see other attributes of a file, if it is in the index."""
        with suppress(IndexClosed):
            async with self.indexes.use(store_id, existing=True) as index:
                await index.set_attributes(file_id, msgspec.json.decode(attributes))

    async def forget(self, places: Collection[tuple[str, str]]) -> None:
        """Take files out of the indexes of stores, given as pairs of a store and a file. They have left the stores."""
        for store_id, file_id in places:
            with suppress(IndexClosed):  # the store is gone as well
                async with self.indexes.use(store_id, existing=True) as index:
                    await index.remove(file_id)

    async def _named(self, store_ids: Sequence[str], hits: Sequence[tuple[int, Hit]]) -> list[FileHit]:
        """Return the hits of files that are in their stores still, with the files' names."""
        names: dict[tuple[int, str], str] = {}
        for at, store_id in enumerate(store_ids):
            found = await self.store.filenames(store_id, {hit.document for place, hit in hits if place == at})
            names |= {(at, file_id): name for file_id, name in found.items()}
        return [
            FileHit(hit.document, names[at, hit.document], hit.text, hit.score, hit.attributes)
            for at, hit in hits
            if (at, hit.document) in names
        ]
