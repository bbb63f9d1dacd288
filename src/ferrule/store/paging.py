"""Pages of a list whose entries have a `number`, which counts up, and an `id`, by which a client pages."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, Connection, Row, Select

from ferrule.store.errors import StoreRefusal
from ferrule.store.records import PAGE_ITEMS, Page, Paging

T = TypeVar("T")


def read_page(
    tx: Connection,
    rows: Select[Any],
    scope: ColumnElement[bool],
    which: Paging,
    record: Callable[[Row[Any]], T],
    most: int = PAGE_ITEMS,
) -> Page[T]:
    """Read a page of the rows in `scope`. Raises `StoreRefusal` for an id that is not there, and for a limit outside 1
    to `most`.

    Before an id stand those next to it, in the order asked for.
    """
    _check(which, most)
    number = rows.selected_columns.number
    rows = rows.where(scope)
    rising, backwards = which.order == "asc", which.before is not None and which.after is None
    if which.after is not None:
        at = _number_of(tx, rows, which.after, "after")
        rows = rows.where(number > at if rising else number < at)
    if which.before is not None:
        at = _number_of(tx, rows, which.before, "before")
        rows = rows.where(number < at if rising else number > at)
    upwards = rising is not backwards
    found = list(tx.execute(rows.order_by(number.asc() if upwards else number.desc()).limit(which.limit + 1)))
    shown = found[: which.limit][:: -1 if backwards else 1]
    return Page(
        data=tuple(map(record, shown)),
        has_more=len(found) > which.limit,
        first_id=shown[0].id if shown else None,
        last_id=shown[-1].id if shown else None,
    )


def page_of(entries: Sequence[T], which: Paging, id_of: Callable[[T], str]) -> Page[T]:
    """Return a page of entries that are all at hand, oldest first. Raises as `read_page` does."""
    _check(which, PAGE_ITEMS)
    entries = entries if which.order == "asc" else entries[::-1]
    ids = [id_of(entry) for entry in entries]
    start = 0 if which.after is None else _index_of(ids, which.after, "after") + 1
    end = len(ids) if which.before is None else _index_of(ids, which.before, "before")
    has_more = end - start > which.limit
    if which.before is not None and which.after is None:
        start = max(start, end - which.limit)
    else:
        end = min(end, start + which.limit)
    shown = slice(start, max(start, end))
    named = [*ids[shown], None]
    return Page(data=tuple(entries[shown]), has_more=has_more, first_id=named[0], last_id=named[-2:][0])


def _check(which: Paging, most: int) -> None:
    if not 1 <= which.limit <= most:
        raise StoreRefusal(f"limit must be 1 to {most}, not {which.limit}", "limit")


def _index_of(ids: Sequence[str], entry_id: str, param: str) -> int:
    if entry_id not in ids:
        raise _unknown(entry_id, param)
    return ids.index(entry_id)


def _unknown(entry_id: str, param: str) -> StoreRefusal:
    return StoreRefusal(f"there is no entry {entry_id!r} in this list", param)


def _number_of(tx: Connection, rows: Select[Any], entry_id: str, param: str) -> int:
    number = tx.scalar(rows.with_only_columns(rows.selected_columns.number).where(rows.selected_columns.id == entry_id))
    if number is None:
        raise _unknown(entry_id, param)
    return int(number)
