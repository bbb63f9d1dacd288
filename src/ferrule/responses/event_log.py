"""The events of a background response, stored as they come, so that they can be read again under their numbers."""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from contextlib import suppress

import msgspec

from ferrule.responses.ledger import TERMINAL, Ledger
from ferrule.store import Store, StoredResponse, StoreError

log = logging.getLogger("ferrule.responses")

PAUSE = 0.1
"""Seconds between two writes: a crash loses at most the events of this time."""


class EventLog:
    """Writes the events of one ledger to the store."""

    def __init__(self, store: Store, ledger: Ledger) -> None:
        self._store = store
        self._ledger = ledger
        self._waiting: list[bytes] = []
        self._next = 0
        self._ended = asyncio.Event()
        ledger.on_event = self._take
        self._writing = asyncio.create_task(self._write_on(), name=f"ferrule-events-{ledger.id}")

    def _take(self, number: int, event: bytes) -> None:
        self._waiting.append(event)

    async def _write_on(self) -> None:
        while not self._ended.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), PAUSE)
            try:
                await self._flush()
            except StoreError:
                log.exception("events of %s could not be stored", self._ledger.id)

    async def _flush(self) -> None:
        events = self._waiting
        if events:
            self._waiting = []
            first, self._next = self._next, self._next + len(events)
            await self._store.append_events(self._ledger.id, first, events)

    async def close(self) -> None:
        """Write what is left. The last event follows from the response itself."""
        self._ended.set()
        await self._writing


class _Event(msgspec.Struct):
    type: str
    output_index: int = 0
    item: msgspec.Raw = msgspec.Raw()


def output_in(events: Iterable[bytes]) -> tuple[bytes, ...]:
    """Return the items that these events tell of as complete, in order."""
    read = (msgspec.json.decode(event, type=_Event) for event in events)
    done = {event.output_index: bytes(event.item) for event in read if event.type == "response.output_item.done"}
    return tuple(item for _, item in sorted(done.items()))


def terminal_event(stored: StoredResponse, events: Sequence[tuple[int, bytes]]) -> tuple[tuple[int, bytes], ...]:
    """Return the event that ends a stored response, if it has one."""
    if stored.status not in TERMINAL - {"cancelled"}:
        return ()
    number = events[-1][0] + 1 if events else 0
    event = {"type": f"response.{stored.status}", "sequence_number": number, "response": msgspec.Raw(stored.body)}
    return ((number, msgspec.json.encode(event)),)
