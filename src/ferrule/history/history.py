"""The conversation as it is sent: every call has exactly one output, in call order."""

from collections.abc import Iterable
from typing import NamedTuple

from ferrule.history.pairs import in_place
from ferrule.history.tokens import estimate, estimate_all
from ferrule.protocol.items import ResponseItem


class Stored(NamedTuple):
    """A response stored by the provider: its id stands for the first `items` items of the history."""

    response_id: str
    items: int


class History:
    """The items of a conversation, in the order in which they are sent."""

    __slots__ = ("_items", "_snapshot", "lineage", "stored", "tokens", "weight")

    def __init__(self, items: Iterable[ResponseItem] = ()) -> None:
        self._items = list(items)
        self._snapshot: tuple[ResponseItem, ...] | None = None
        self.weight = _weight(self._items)
        """Bytes of all items."""
        self.tokens = estimate_all(self._items)
        """Approximate tokens of all items."""
        self.lineage = object()
        """Replaced once the history no longer begins with the items that were sent."""
        self.stored: Stored | None = None

    @property
    def items(self) -> tuple[ResponseItem, ...]:
        """All items; the same tuple until something changes."""
        if self._snapshot is None:
            self._snapshot = tuple(self._items)
        return self._snapshot

    @property
    def count(self) -> int:
        """The number of items."""
        return len(self._items)

    def since(self, count: int) -> tuple[ResponseItem, ...]:
        """Return the items after the first `count`, without a copy of the rest."""
        return tuple(self._items[count:])

    def append(self, item: ResponseItem) -> None:
        """Add one item at the end."""
        self._items.append(item)
        self.weight += len(item.raw)
        self.tokens += estimate(item)
        self._snapshot = None

    def settle(self, start: int) -> None:
        """Put the items of one response, which begin at `start`, into the order in which they began."""
        if len(self._items) - start < 2:
            return
        items = in_place(self._items[start:])
        if any(one is not other for one, other in zip(items, self._items[start:], strict=True)):
            self._items[start:] = items
            self._snapshot = None

    def mark_stored(self, response_id: str) -> None:
        """Note that the provider knows all items so far under this id; empty if it does not know them as they are."""
        self.stored = Stored(response_id, len(self._items)) if response_id else None

    def replace(self, items: Iterable[ResponseItem]) -> None:
        """Go on with other items, of which the provider has stored none."""
        self._items = list(items)
        self.weight = _weight(self._items)
        self.tokens = estimate_all(self._items)
        self._snapshot = self.stored = None
        self.lineage = object()

    def extend(self, items: Iterable[ResponseItem]) -> None:
        """Add items at the end."""
        more = list(items)
        self._items += more
        self.weight += _weight(more)
        self.tokens += estimate_all(more)
        self._snapshot = None


def _weight(items: Iterable[ResponseItem]) -> int:
    return sum(len(item.raw) for item in items)
