"""Files that were added to vector stores are read, cut and indexed in the background.

What is to be done stands in the store: a file is `in_progress` until it has been read. So a restart goes on where the
last run was killed, and since a document replaces the one of its name, no file is in an index twice.
"""

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Iterable

import msgspec

from ferrule.documents.extraction import Extractor, Unreadable
from ferrule.hosted.vector_stores import ClientStores
from ferrule.retrieval.chunking import Chunk, Chunking, chunks
from ferrule.retrieval.connection import IndexClosed, IndexDamaged, IndexFault
from ferrule.store import StoreError, StoreFile
from ferrule.store.vector_stores import Unread
from ferrule.sync import uninterrupted

WORKERS = 4
"""Files that are read at once: while some are parsed, others are embedded and written."""
RETRY_SECONDS = 3.0
"""Between two looks whether an embedder answers again, while some files have no vectors."""
NOT_KEPT = "The server could not keep what is in the file: add it again."
NOT_PUT = "the file %s could not be put into the vector store %s"
NOT_PUT_FOR = f"{NOT_PUT}: %s"
GONE = "The content of the file is not there any more."

log = logging.getLogger("ferrule.ingestion")


class Queue:
    """Files that wait, those of each client in order; clients take turns. A file that is being read does not come again
    before that has ended."""

    def __init__(self) -> None:
        self._waiting: OrderedDict[str, deque[Unread]] = OrderedDict()
        self._busy: set[tuple[str, str]] = set()
        self._changed = asyncio.Event()

    def add(self, files: Iterable[Unread]) -> None:
        """Add files at the end."""
        for file in files:
            self._waiting.setdefault(file.owner, deque()).append(file)
        self._changed.set()

    @property
    def busy(self) -> bool:
        """True while a file is read, or waits."""
        return bool(self._busy or self._waiting)

    async def take(self) -> Unread:
        """Wait for the next file; it is busy until `done`."""
        while (file := self._next()) is None:
            self._changed.clear()
            await self._changed.wait()
        self._busy.add((file.store, file.file))
        return file

    def done(self, file: Unread) -> None:
        """Let the same file be taken again."""
        self._busy.discard((file.store, file.file))
        self._changed.set()

    def _next(self) -> Unread | None:
        for owner, files in self._waiting.items():
            for _ in range(len(files)):
                file = files.popleft()
                if (file.store, file.file) in self._busy:
                    files.append(file)
                    continue
                self._waiting.move_to_end(owner)
                if not files:
                    del self._waiting[owner]
                return file
        return None


class Ingestion:
    """The workers. `start` begins with what the last run left; close it."""

    def __init__(self, stores: ClientStores, extractor: Extractor) -> None:
        self._stores = stores
        self._store = stores.store
        self._extractor = extractor
        self._queue = Queue()
        self._lacking: dict[str, None] = {}
        """Stores that may have texts without vectors."""
        self._tasks: list[asyncio.Task[None]] = []
        self._lacks = asyncio.Event()

    async def start(self) -> None:
        """Go on with what is not read yet, and clean up in the background."""
        self.add(await self._store.unread_files())
        work = [self._work() for _ in range(WORKERS)]
        rest = (self._tidy(), self._restore(), self._complete())
        self._tasks = [asyncio.create_task(one) for one in (*work, *rest)]

    @property
    def busy(self) -> bool:
        """True while a file is read, or waits."""
        return self._queue.busy

    def add(self, files: Iterable[Unread]) -> None:
        """Read these files."""
        self._queue.add(files)

    async def aclose(self) -> None:
        """Stop. What is not read stays `in_progress`."""
        await uninterrupted(self._stop())
        await self._extractor.aclose()

    async def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _work(self) -> None:
        while True:
            file = await self._queue.take()
            try:
                await self._ingest(file)
            except IndexClosed:  # its store is gone, or its index is made again
                self.add([file])
            except (StoreError, IndexFault) as error:
                log.warning(NOT_PUT_FOR, file.file, file.store, error)
                await self._try_again(file)
            except Exception:  # a fault of ours with one file leaves the others to be read
                log.exception(NOT_PUT, file.file, file.store)
                await self._give_up(file)
            finally:
                self._queue.done(file)

    async def _try_again(self, file: Unread) -> None:
        await asyncio.sleep(RETRY_SECONDS)
        self.add([file])

    async def _give_up(self, file: Unread) -> None:
        try:
            await self._store.end_store_file(file.number, error=("server_error", NOT_KEPT))
        except StoreError as error:
            log.warning(NOT_PUT_FOR, file.file, file.store, error)
            await self._try_again(file)

    async def _ingest(self, file: Unread) -> None:
        found = await self._store.unread_file(file.number)
        if found is None:
            return
        record, name = found
        try:
            cut = await self._cut(file, record, name)
            async with self._stores.indexes.use(file.store) as index:
                attributes = msgspec.json.decode(record.attributes)
                used = await index.put(file.file, cut, title=name, attributes=attributes)
            self._lack(file.store)
        except Unreadable as error:
            await self._end(file, record, error=(error.code, str(error)))
        except (IndexClosed, IndexDamaged):
            raise
        except IndexFault as error:
            log.warning(NOT_PUT_FOR, file.file, file.store, error)
            await self._end(file, record, error=("server_error", NOT_KEPT))
        else:
            await self._end(file, record, used=used)

    async def _cut(self, file: Unread, record: StoreFile, name: str) -> list[Chunk]:
        """Return what is in a file. Raises `Unreadable`."""
        try:
            content = await self._store.content(file.owner, file.file)
        except StoreError as error:
            log.warning("%s", error)
            raise Unreadable(GONE, "server_error") from error
        if content is None:
            raise Unreadable(GONE, "server_error")
        async with content:
            text = await self._extractor.read_file(name, content.record.bytes, aiter(content))
        return await asyncio.to_thread(chunks, text, Chunking(record.max_tokens, record.overlap_tokens))

    async def _end(
        self, file: Unread, record: StoreFile, *, used: int = 0, error: tuple[str, str] | None = None
    ) -> None:
        """Note how a file ended. One that nobody wants any more leaves the index, or comes again behind this."""
        attributes = await self._store.end_store_file(file.number, usage_bytes=used, error=error)
        if attributes is None or error is not None:
            await self._stores.forget([(file.store, file.file)])
        elif attributes != record.attributes:
            await self._stores.set_attributes(file.store, file.file, attributes)
        if attributes is None and not await self._exists(file):
            await self._stores.indexes.remove(file.store)

    async def _exists(self, file: Unread) -> bool:
        return await self._store.vector_store(file.owner, file.store) is not None

    def _lack(self, store_id: str) -> None:
        self._lacking[store_id] = None
        self._lacks.set()

    async def _tidy(self) -> None:
        """Take out what was in an index though its store or its file is gone: the last run was killed in between. Read
        again what is missing there: the index was lost."""
        known = await asyncio.to_thread(self._stores.indexes.known)
        kept = await self._store.all_store_files()
        for store_id in {**dict.fromkeys(known), **{store_id: None for store_id, files in kept.items() if files}}:
            try:
                await self._tidied(store_id, kept.get(store_id))
            except IndexFault as error:
                log.warning("the index of the vector store %s could not be tidied: %s", store_id, error)

    async def _tidied(self, store_id: str, kept: frozenset[str] | None) -> None:
        if kept is None:
            await self._stores.indexes.remove(store_id)
            return
        async with self._stores.indexes.use(store_id) as index:
            there = (await index.stamps()).keys()
            gone = there - kept
            for file_id in gone - (await self._store.filenames(store_id, gone)).keys():  # was it added just now?
                await index.remove(file_id)
        self.add(await self._store.read_again(store_id, there))
        self._lack(store_id)

    async def _restore(self) -> None:
        """Read all files of a store again whose index is damaged."""
        while True:
            try:
                store_id = await self._stores.indexes.remove_damaged()
                log.warning("the index of the vector store %s is damaged: its files are read again", store_id)
                self.add(await self._store.read_again(store_id, ()))
            except (StoreError, OSError) as error:
                log.warning("a damaged index could not be made again: %s", error)
                await asyncio.sleep(RETRY_SECONDS)

    async def _complete(self) -> None:
        """Give vectors to what has none, or those of another model, as soon as the embedder answers."""
        while True:
            await self._lacks.wait()
            self._lacks.clear()
            for store_id in list(self._lacking):
                if not await self._completed(store_id):
                    break
                self._lacking.pop(store_id, None)
            await asyncio.sleep(RETRY_SECONDS)
            if self._lacking:
                self._lacks.set()

    async def _completed(self, store_id: str) -> bool:
        """Return whether a store has all its vectors, or can have none."""
        if not self._stores.embeds:
            return True
        try:
            async with self._stores.indexes.use(store_id, existing=True) as index:
                await index.embed_missing()
                return index.mode == "hybrid"
        except IndexClosed:  # its store is gone; if its index is made again, its files come back here
            return True
        except IndexFault as error:
            log.warning("the vectors of the vector store %s could not be completed: %s", store_id, error)
            return True
