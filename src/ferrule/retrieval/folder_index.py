"""A folder whose files can be searched. Its index is a cache: it is brought up to date in the background, before each
search, and made again when it is damaged.

Only what has changed is read, and only texts that are new are embedded. Of several programs one at a time does it.
"""

import asyncio
import hashlib
import logging
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import NamedTuple, Self

from ferrule.kernel_files import Shown
from ferrule.locks import take_in_time, try_lock
from ferrule.retrieval.connection import IndexDamaged, IndexFault
from ferrule.retrieval.embedder import Embedder
from ferrule.retrieval.folder_files import batches, check_readable, document, read, survey
from ferrule.retrieval.index import NO_EMBEDDER, Index
from ferrule.retrieval.parser import DocumentParser
from ferrule.retrieval.tables import Counts
from ferrule.retrieval.vectors import VectorMemory
from ferrule.sync import AsyncClosing

log = logging.getLogger("ferrule.retrieval")

FRESH_SECONDS = 2.0
"""How long a look at the folder counts: several calls of one answer share it."""
AGAIN_SECONDS = 10.0
"""How soon an embedder that did not answer is asked again."""
LOCK_SECONDS = 2.0
"""How long another program may take that only looks at the folder."""
SUFFIXES = (".sqlite3", ".sqlite3-wal", ".sqlite3-shm", ".reading", ".embedding")
"""The files of an index."""
TOP = "folder"
"""The fact of an index that says whose it is."""
FOLDER = "file_search"
"""Where the indexes lie, below the folder of Ferrule's own files."""


Reopen = Callable[[], Awaitable[Index]]
"""Opens the index of a folder, or makes it. Raises `IndexFault`."""


class FolderIndex(AsyncClosing):
    """A folder and its index. `shown` are the folders outside of which nothing is read."""

    def __init__(
        self, top: str, path: Path, index: Index, reopen: Reopen, shown: Shown, parser: DocumentParser | None
    ) -> None:
        self.top = top
        self.index = index
        self.damaged = False
        """Whether a search has found it damaged: the next look makes it again."""
        self.problem: str | None = None
        """Why the folder cannot be looked at: the rest of a sentence about it."""
        self.readable = False
        """Whether the folder may be read, as far as is known. What is in the index of another is not shown either."""
        self.left_out = 0
        """Files that are not taken, because they are too large or too many."""
        self._path = path
        self._reopen = reopen
        self._inode = _inode(path)
        self._shown = shown
        self._parser = parser
        self._left: int | None = None
        self._looked = -FRESH_SECONDS
        self._looking: asyncio.Task[None] | None = None
        self._embedding: asyncio.Task[None] | None = None

    @classmethod
    async def open(
        cls,
        folder: str,
        home: str,
        embedder: Embedder | None,
        memory: VectorMemory,
        shown: Shown = None,
        parser: DocumentParser | None = None,
    ) -> Self:
        """Open the index of a folder, or make it. The embedder and the parser stay the caller's. Raises
        `IndexFault`."""
        top = os.path.realpath(folder)
        path = index_path(home, top)

        async def reopen() -> Index:
            return await _opened(path, top, embedder, memory)

        return cls(top, path, await reopen(), reopen, shown, parser)

    @property
    def state(self) -> str | None:
        """What of the folder is not in the index: a sentence, or None if all of it is."""
        if self.problem is not None:
            return f"{self.top} {self.problem}."
        if self._left is None:
            return f"{self.top} is not in the index yet: its files are being listed."
        return f"{self._left} changed files of {self.top} are not in the index yet." if self._left else None

    def start(self) -> "asyncio.Task[None]":
        """Bring the index up to date in the background, unless that was done just now."""
        running = self._looking
        fresh = time.monotonic() < self._looked + FRESH_SECONDS and not self.damaged
        if running is not None and (fresh or not running.done()):
            return running
        self._looking = asyncio.create_task(self._look())
        return self._looking

    async def aclose(self) -> None:
        """Stop what runs, and close the index."""
        tasks = [task for task in (self._looking, self._embedding) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self.index.aclose()

    async def _look(self) -> None:
        """Read what has changed. What goes wrong is in `problem`."""
        try:
            await self._check()
            _make_folder(self._path)
            async with _alone(self._path.with_suffix(".reading")) as alone:
                self.problem = None if alone else "is being indexed by another program"
                if alone:
                    await self._bring_up_to_date()
        except (IndexFault, OSError) as error:
            log.info("%s is not indexed: %s", self.top, error)
            self.problem = f"cannot be indexed: {error.strerror if isinstance(error, OSError) else error}".rstrip(".")
        self._looked = time.monotonic()
        if self._embedding is None or self._embedding.done():
            self._embedding = asyncio.create_task(self._embed())

    async def _check(self) -> None:
        """Note whether the folder may be read. Raises `OSError` if not."""
        try:
            await asyncio.to_thread(check_readable, self.top, self._shown)
        except OSError:
            self.readable = False
            raise
        self.readable = True

    async def _bring_up_to_date(self) -> None:
        if self.damaged or _inode(self._path) != self._inode:
            await self._make_again()
        try:
            await self._read_changed()
        except IndexDamaged:
            await self._make_again()
            await self._read_changed()

    async def _make_again(self) -> None:
        """Open what is there now, without what is damaged. Another program may have made it again already."""
        self.damaged, self._left = True, None
        await self.index.aclose()
        if _inode(self._path) in (None, self._inode):
            _remove(self._path, SUFFIXES[:3])
        self.index = await self._reopen()
        self._inode, self.damaged = _inode(self._path), False

    async def _read_changed(self) -> None:
        known = await self.index.stamps()
        found = await asyncio.to_thread(survey, self.top, known, self._shown)
        self.left_out, self._left = found.left_out, len(found.changed)
        await self.index.remove_all(found.gone)
        for batch in batches(found.changed):
            contents = await asyncio.to_thread(read, self.top, batch, known, self._shown)
            await self.index.put_all(contents.documents, embed=False)
            await self.index.set_stamps(contents.stamps)
            for name, stamp, data in contents.unparsed:
                await self._parse(name, stamp, data)
            self._left -= len(batch)

    async def _parse(self, name: str, stamp: str, data: bytes) -> None:
        """Put in a document that a parser reads. What it cannot read now is tried again at the next look."""
        text = None if self._parser is None else await self._parser.parse(name, data)
        if text is not None:
            made = await asyncio.to_thread(document, name, stamp, text)
            await self.index.put_all([made], embed=False)

    async def _embed(self) -> None:
        """Embed what has no vectors, and ask again while the embedder does not answer."""
        try:
            while True:
                async with _alone(self._path.with_suffix(".embedding")) as alone:
                    if alone:
                        await self.index.embed_missing()
                        if self.index.reason in (None, NO_EMBEDDER):
                            return
                await asyncio.sleep(AGAIN_SECONDS)
        except (IndexFault, OSError) as error:
            log.info("%s is not embedded: %s", self.top, error)


class Known(NamedTuple):
    """An index on the disk, and what is in it."""

    path: Path
    counts: Counts

    @property
    def bytes(self) -> int:
        """What it takes on the disk."""
        files = (self.path.with_suffix(suffix) for suffix in SUFFIXES)
        return sum(file.stat().st_size for file in files if file.exists())


async def known_folders(home: str) -> dict[str, Known]:
    """Return the folders that have an index. Those whose index cannot be read are left out."""
    found: dict[str, Known] = {}
    for path in sorted((Path(home) / FOLDER).glob(f"*{SUFFIXES[0]}")):
        try:
            async with await Index.open(path, embedder=None, memory=VectorMemory()) as index:
                found[await index.fact(TOP)] = Known(path, await index.counts())
        except IndexFault as error:
            log.info("%s", error)
    return found


def _as_text(path: str) -> str:
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def index_path(home: str, top: str) -> Path:
    """Return where the index of a folder (a real path) lies."""
    return Path(home) / FOLDER / f"{hashlib.blake2b(os.fsencode(top), digest_size=12).hexdigest()}.sqlite3"


def remove_index(path: Path) -> None:
    """Remove the file of an index and those beside it. Raises `IndexFault`."""
    _remove(path, SUFFIXES)


def _remove(path: Path, suffixes: Sequence[str]) -> None:
    with _explained(path):
        for suffix in suffixes:
            path.with_suffix(suffix).unlink(missing_ok=True)


def _inode(path: Path) -> int | None:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return None


def _make_folder(path: Path) -> None:
    with _explained(path):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)


async def _opened(path: Path, top: str, embedder: Embedder | None, memory: VectorMemory) -> Index:
    """Open the index of a folder, or make it where there is none that can be used. Raises `IndexFault`."""
    _make_folder(path)
    try:
        index = await Index.open(path, embedder=embedder, memory=memory)
    except IndexDamaged:
        remove_index(path)
        index = await Index.open(path, embedder=embedder, memory=memory)
    if await index.fact(TOP) != (shown_top := _as_text(top)):
        await index.set_fact(TOP, shown_top)
    return index


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise IndexFault(f"The index {path} cannot be written: {error.strerror}.") from error


@asynccontextmanager
async def _alone(path: Path) -> AsyncIterator[bool]:
    """Hold a lock that one program at a time has; False if another one keeps it."""
    with ExitStack() as ends:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        ends.callback(os.close, descriptor)
        yield await take_in_time(lambda: try_lock(descriptor), LOCK_SECONDS)
