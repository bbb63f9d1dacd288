"""Search in several folders at once."""

import asyncio
import os
from collections.abc import Sequence

import msgspec

from ferrule.kernel_files import Shown
from ferrule.retrieval.connection import IndexClosed, IndexDamaged, IndexFault
from ferrule.retrieval.embedder import Embedder
from ferrule.retrieval.folder_index import FolderIndex
from ferrule.retrieval.parser import DocumentParser
from ferrule.retrieval.searching import Search, search_all
from ferrule.retrieval.vectors import VectorMemory
from ferrule.sync import AsyncClosing

WAIT_SECONDS = 15.0
"""How long a search waits for what is being indexed: some 20,000 source files. After that it says what is missing."""
HITS = 8
"""Chunks of an answer: some 3,000 tokens."""


class FileHit(msgspec.Struct, frozen=True):
    """A passage of a file, from `line` on (1-based)."""

    path: str
    line: int
    text: str
    score: float


class FileHits(msgspec.Struct, frozen=True):
    """What a search has found. `notes` are sentences on what is not in the index, and why."""

    hits: list[FileHit]
    notes: list[str]


class FolderSearch(AsyncClosing):
    """Folders (absolute) that are searched, with the indexes of each below `home`. Owns the embedder and the
    parser."""

    def __init__(
        self,
        folders: Sequence[str],
        home: str,
        embedder: Embedder | None,
        memory: VectorMemory,
        *,
        parser: DocumentParser | None = None,
        shown: Shown = None,
        wait: float | None = WAIT_SECONDS,
    ) -> None:
        self._folders = tuple(dict.fromkeys(map(os.path.realpath, folders)))
        self._home = home
        self._embedder = embedder
        self._memory = memory
        self._parser = parser
        self._shown = shown
        self._wait = wait
        self._opening: asyncio.Task[None] | None = None
        self._indexes: list[FolderIndex] = []
        self._problems: list[str] = []

    def start(self) -> None:
        """Begin to index in the background."""
        if self._opening is None:
            self._opening = asyncio.create_task(self._open())

    async def search(self, question: str) -> FileHits:
        """Return the best passages, once what has changed is indexed, or the time for that is over. Raises
        `IndexFault`."""
        self.start()
        assert self._opening is not None
        await asyncio.shield(self._opening)
        wanted = Search([question], HITS)
        searched = await self._looked_at()
        try:
            hits = await search_all([index.index for index in searched], wanted)
        except (IndexClosed, IndexDamaged):
            await _note_damage(searched, wanted)
            searched = await self._looked_at()
            hits = await search_all([index.index for index in searched], wanted)
        found = {
            (path, hit.start): FileHit(path, hit.start, hit.text, hit.score)
            for place, hit in hits
            for path in [os.path.join(searched[place].top, hit.document)]
        }
        return FileHits(list(found.values()), self._notes())

    async def aclose(self) -> None:
        """Stop what runs in the background, and close the indexes."""
        if self._opening is not None:
            await asyncio.gather(self._opening, return_exceptions=True)
        for index in self._indexes:
            await index.aclose()
        for owned in (self._embedder, self._parser):
            if owned is not None:
                await owned.aclose()

    async def _looked_at(self) -> list[FolderIndex]:
        """Return what can be searched, once what has changed is indexed, or the time for that is over."""
        looking = [index.start() for index in self._indexes]
        if looking:
            done, _ = await asyncio.wait(looking, timeout=self._wait)
            for task in done:
                task.result()  # raises only what is a fault of ours
        return [index for index in self._indexes if index.readable]

    async def _open(self) -> None:
        for folder in self._folders:
            try:
                index = await FolderIndex.open(
                    folder, self._home, self._embedder, self._memory, self._shown, self._parser
                )
            except IndexFault as error:
                self._problems.append(str(error))
                continue
            self._indexes.append(index)
            index.start()

    def _notes(self) -> list[str]:
        notes = [*self._problems, *(state for index in self._indexes if (state := index.state) is not None)]
        notes += [
            f"{index.left_out} files of {index.top} are too large, or too many, for the index."
            for index in self._indexes
            if index.left_out
        ]
        if any(index.index.mode == "lexical" for index in self._indexes):
            notes.append("Passages are found by their words alone: use words that they contain.")
        return notes


async def _note_damage(indexes: Sequence[FolderIndex], wanted: Search) -> None:
    """Find out which of several indexes cannot be searched. Raises `IndexFault`."""
    for index in indexes:
        try:
            await search_all([index.index], wanted)
        except IndexClosed:  # it is made again just now
            continue
        except IndexDamaged:
            index.damaged = True
