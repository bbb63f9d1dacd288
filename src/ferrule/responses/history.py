"""What comes before a response: the responses that it continues, its conversation, and items that it refers to."""

from collections import OrderedDict
from collections.abc import Callable, Sequence

import msgspec

from ferrule.protocol.items import ResponseItem, read_item
from ferrule.protocol.json_text import JsonObject
from ferrule.responses.errors import ApiError, not_found
from ferrule.responses.transcript import decode_items
from ferrule.store import Store

BOUNDARY = read_item(b'{"type":"ferrule_compacted"}')
"""Stands in a transcript where a summary begins: what precedes it is over."""
RUNS = ("queued", "in_progress")
"""The states of a response that has not ended."""
KEPT_HISTORIES = 256
"""Conversations whose newest history stays in memory: the next request need not read it again."""

MOST_BYTES = 128 << 20
"""Bytes of histories that stay in memory: a request may bring 32 MB, so their number alone bounds nothing."""


class History(msgspec.Struct, frozen=True):
    """The items before a request, as the upstream saw them. `lane` names the conversation to the model: its requests
    share what is cached."""

    items: tuple[ResponseItem, ...] = ()
    lane: str = ""

    @property
    def bytes(self) -> int:
        """The size of all items."""
        return sum(len(item.raw) for item in self.items)


class ResponseCache:
    """The histories of one connection's responses, for those that are not stored. They go with the connection.

    It has so many entries at most, and `MOST_BYTES` unless the newest alone has more.
    """

    def __init__(self, size: int = 1) -> None:
        self._size = size
        self._kept: OrderedDict[str, History] = OrderedDict()
        self._bytes = 0

    def get(self, response_id: str) -> History | None:
        """Return the history up to and with a response."""
        return self._kept.get(response_id)

    def put(self, response_id: str, history: History) -> None:
        """Keep a history; the oldest ones go."""
        self.drop(response_id)
        self._kept[response_id] = history
        self._bytes += history.bytes
        while len(self._kept) > self._size or (self._bytes > MOST_BYTES and len(self._kept) > 1):
            self.drop(next(iter(self._kept)))

    def drop(self, response_id: str) -> None:
        """Forget a history."""
        history = self._kept.pop(response_id, None)
        if history is not None:
            self._bytes -= history.bytes

    def drop_all_with(self, response_id: str) -> None:
        """Forget the histories that may hold what a response added."""
        known = self._kept.get(response_id)
        for kept, history in list(self._kept.items()):
            if known is None or history.lane == known.lane:
                self.drop(kept)


class Histories:
    """Finds what a request continues. `recent` holds histories of stored responses."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.recent = ResponseCache(KEPT_HISTORIES)

    async def before(self, response_id: str | None, owner: str, cache: ResponseCache | None) -> History:
        """Return the history that `previous_response_id` names. Raises `ApiError` if there is none."""
        if response_id is None:
            return History()
        cached = cache.get(response_id) if cache is not None else None
        if cached is not None:
            return cached
        last = await self._store.response(owner, response_id)
        if last is None:
            raise _no_parent(response_id)
        if last.status in RUNS:
            raise ApiError(
                f"The response {response_id!r} has not ended yet: wait for it, or cancel it.",
                code="response_not_ended",
                param="previous_response_id",
            )
        if (recent := self.recent.get(response_id)) is not None:
            return recent
        chain = await self._store.chain(owner, response_id)
        if not chain:  # it was deleted just now
            raise _no_parent(response_id)
        items = [item for stored in chain for item in decode_items(stored.transcript)]
        return History(since_summary(items), chain[0].id)

    async def of_conversation(
        self, conversation_id: str, owner: str, form: Callable[[Sequence[JsonObject]], Sequence[ResponseItem]]
    ) -> History:
        """Return the history of a conversation; `form` turns a client's items into the upstream's. Raises `ApiError`
        if there is none."""
        entries = await self._store.conversation_entries(owner, conversation_id)
        if entries is None:
            raise not_found("conversation", conversation_id, "conversation")
        items: list[ResponseItem] = []
        for entry in entries:
            if entry.transcript:
                items += decode_items(entry.transcript)
            else:
                items += form([msgspec.json.decode(item) for item in entry.items])
        return History(since_summary(items), conversation_id)

    async def referenced(self, items: Sequence[JsonObject], owner: str, field: str = "input") -> tuple[JsonObject, ...]:
        """Replace references by the items that they name, and images that are named by their ids alone, as clients may.
        Raises `ApiError` for a reference to what does not exist."""
        return tuple([await self._named(item, f"{field}[{index}].id", owner) for index, item in enumerate(items)])

    async def _named(self, item: JsonObject, param: str, owner: str) -> JsonObject:
        is_image = item.get("type") == "image_generation_call" and not item.get("result")
        if item.get("type") != "item_reference" and not is_image:
            return item
        stored = await self._store.item(owner, str(item.get("id") or ""))
        if stored is None and is_image:
            return item
        if stored is None:
            raise ApiError(f"{param}: there is no item {item.get('id')!r}", status=404, code="not_found", param=param)
        found: JsonObject = msgspec.json.decode(stored)
        return found


def _no_parent(response_id: str) -> ApiError:
    return ApiError(
        f"There is no response {response_id!r} to continue: it was not stored, or it was deleted.",
        status=404,
        code="previous_response_not_found",
        param="previous_response_id",
    )


def since_summary(items: Sequence[ResponseItem]) -> tuple[ResponseItem, ...]:
    """Return the items from the newest summary on."""
    starts = (at + 1 for at in range(len(items) - 1, -1, -1) if items[at].raw == BOUNDARY.raw)
    return tuple(items[next(starts, 0) :])
