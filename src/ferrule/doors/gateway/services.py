"""The objects that the routes of a gateway share."""

import asyncio
from collections import Counter

import msgspec

from ferrule.hosted.containers import ClientContainers
from ferrule.hosted.ingestion import Ingestion
from ferrule.hosted.skills import ClientSkills
from ferrule.hosted.vector_stores import ClientStores
from ferrule.protocol.settings import GatewaySettings
from ferrule.responses.engine import ResponseEngine
from ferrule.responses.errors import ApiError
from ferrule.responses.history import ResponseCache
from ferrule.responses.ledger import Ledger
from ferrule.responses.request import ResponseRequest
from ferrule.store import Store

RETRY_MS = 1000
"""When a client may ask again that has as many responses running as it may: soon, for many are short."""


class Vectors(msgspec.Struct, frozen=True):
    """The clients' vector stores, and what fills them."""

    stores: ClientStores
    ingestion: Ingestion


class Services(msgspec.Struct, frozen=True):
    """The engine, what is stored, and the limits."""

    engine: ResponseEngine
    store: Store
    settings: GatewaySettings
    running: "Running"
    vectors: Vectors
    containers: ClientContainers | None = None
    """None where there can be none."""

    @property
    def skills(self) -> ClientSkills:
        """The clients' skills, which can be kept without containers, too."""
        return self.containers.skills if self.containers else ClientSkills(self.store)


class Running:
    """Counts the responses of each owner that run, or whose client still takes them."""

    def __init__(self, engine: ResponseEngine, most: int) -> None:
        self._engine = engine
        self._most = most
        self._count: Counter[str] = Counter()
        self._in_background: set[asyncio.Task[None]] = set()

    async def open(self, request: ResponseRequest, owner: str, *, cache: ResponseCache | None = None) -> Ledger:
        """Start a response, which must be left. Raises `ApiError`, also if the owner has as many as it may."""
        if self._count[owner] >= self._most:
            raise ApiError(
                f"{self._most} responses run for this key already: wait until one has ended.",
                status=429,
                kind="rate_limit_error",
                code="rate_limit_exceeded",
                retry_after_ms=RETRY_MS,
            )
        self._count[owner] += 1
        try:
            ledger = await self._engine.open(request, owner, cache=cache)
        except BaseException:
            self._end(owner)
            raise
        if request.background:
            self._watch(ledger, owner)
        return ledger

    async def leave(self, ledger: Ledger, owner: str) -> None:
        """The client has all or is gone: end a response that does not run in the background."""
        if not ledger.object["background"]:
            self._end(owner)
            await self._engine.abandon(ledger)

    def _watch(self, ledger: Ledger, owner: str) -> None:
        def end(task: "asyncio.Task[None]") -> None:
            self._in_background.discard(task)
            self._end(owner)

        watching = asyncio.create_task(ledger.finished())
        self._in_background.add(watching)
        watching.add_done_callback(end)

    def _end(self, owner: str) -> None:
        self._count[owner] -= 1
        if not self._count[owner]:
            del self._count[owner]
