"""The parser of documents for what a session searches: in a container, or as confined as this machine can."""

import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

from ferrule.containers.documents import BestPlace, container_alone
from ferrule.documents.extraction import Extractor, Unreadable

log = logging.getLogger("ferrule.documents")

TRY_AGAIN = "server_error"
"""The code of what says nothing about the document."""


class ConfinedParser:
    """Reads PDFs and office files. Nothing is started before the first of them."""

    def __init__(self, home: str) -> None:
        self._home = Path(home)
        self._ends = AsyncExitStack()
        self._extractor: Extractor | None = None

    async def parse(self, name: str, data: bytes) -> str | None:
        """See `DocumentParser`."""
        if self._extractor is None:
            self._extractor = self._opened()
        try:
            return await self._extractor.read_file(name, len(data), _once(data))
        except Unreadable as error:
            log.info("%s: %s", name, error)
            return None if error.code == TRY_AGAIN else ""

    async def aclose(self) -> None:
        """End the processes and their container."""
        await self._ends.aclose()

    def _opened(self) -> Extractor:
        place = BestPlace(container_alone, self._home, log.info)
        self._ends.push_async_callback(place.aclose)
        extractor = Extractor(place)
        self._ends.push_async_callback(extractor.aclose)
        return extractor


async def _once(data: bytes) -> AsyncIterator[bytes]:
    yield data
