"""Lists to choose one thing from: a session, a model, an earlier message."""

from collections.abc import Callable, Sequence
from datetime import datetime

import msgspec
from textual.strip import Strip

from ferrule.doors.terminal.panel import Panel, Rows
from ferrule.doors.terminal.strips import BOLD, CHOSEN, DIM, PLAIN, row
from ferrule.rendering.safe import plain
from ferrule.rendering.width import cut, width_of
from ferrule.session.index import SessionEntry

MOST_ROWS = 12


class Item(msgspec.Struct, frozen=True):
    """One thing: what it is called, what it is, and what choosing it gives."""

    label: str
    value: str
    about: str = ""


class Picker(Panel):
    """Shows the items that hold what is typed; Enter takes one, Esc none."""

    def __init__(self, title: str, items: Sequence[Item], taken: Callable[[str], object]) -> None:
        super().__init__("")
        self._title = title
        self._items = items
        self._taken = taken
        self._chosen = 0
        self._filter = ""

    @property
    def _found(self) -> list[Item]:
        words = self._filter.lower().split()
        return [item for item in self._items if all(word in f"{item.label} {item.about}".lower() for word in words)]

    @property
    def is_typed(self) -> bool:
        """See `Panel`."""
        return True

    def compose_rows(self, width: int, height: int) -> Rows:
        """See `Panel`."""
        found = self._found
        most = max(min(MOST_ROWS, height - 1), 1)
        first = max(0, min(self._chosen - most // 2, len(found) - most))
        shown = [_item_row(item, at == self._chosen, width) for at, item in enumerate(found)][first : first + most]
        typed = self._filter or "type to search, Enter takes, Esc leaves"
        head = row((f"{self._title}  ", BOLD), (cut(typed, width - width_of(self._title) - 2), DIM))
        return Rows([head, *(shown or [row(("nothing fits", DIM))])])

    def on_choice_key(self, key: str, character: str | None) -> bool:
        """See `Panel`."""
        found = self._found
        if key in ("up", "down") and found:
            self._chosen = (self._chosen + (-1 if key == "up" else 1)) % len(found)
        elif key == "enter":
            if found:
                self._taken(found[self._chosen].value)
        elif key == "backspace":
            self._filter, self._chosen = self._filter[:-1], 0
        elif character is not None and character.isprintable():
            self._filter, self._chosen = self._filter + character, 0
        else:
            return False
        return True


def _item_row(item: Item, chosen: bool, width: int) -> Strip:
    name = cut(plain(item.label), width)
    about = cut(f"  {plain(item.about)}", width - width_of(name)) if item.about else ""
    return row((name, CHOSEN if chosen else PLAIN), (about, DIM))


def session_item(entry: SessionEntry) -> Item:
    """Return a stored session as an item: its name or first words, when it was used and how long it is."""
    when = datetime.fromtimestamp(entry.updated / 1e9).strftime("%Y-%m-%d %H:%M")
    turns = f"{entry.turns} turn{'' if entry.turns == 1 else 's'}"
    return Item(entry.name or entry.prompt or entry.id, entry.id, f"{when} · {turns} · {entry.cwd} · {entry.id[:8]}")
