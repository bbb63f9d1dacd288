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
        self._stored = 0
        self._ended = asyncio.Event()
        self._writing = asyncio.create_task(self._write_on(), name=f"ferrule-events-{ledger.id}")

    async def _write_on(self) -> None:
        while not self._ended.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ended.wait(), PAUSE)
            await self._flush()

    async def _flush(self) -> None:
        """Write what came since the last time. What cannot be written now is tried again with the next events."""
        events = self._ledger.since(self._stored)
        try:
            if events:
                await self._store.append_events(self._ledger.id, self._stored, events)
        except StoreError as error:
            log.warning("events of %s could not be stored: %s", self._ledger.id, error)
        else:
            self._stored += len(events)

    async def close(self) -> None:
        """Write what is left. The last event follows from the response itself."""
        self._ended.set()
        await self._writing
        await self._flush()


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
