"""Vector stores, their files and batches: what is in them and how far it is. Their indexes lie elsewhere."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec
from sqlalchemy import ColumnElement, Connection, Row, Select, delete, func, insert, select, update
from sqlalchemy.dialects.sqlite import insert as insert_or

from ferrule.store import paging
from ferrule.store.errors import NoSuchFile
from ferrule.store.files import REMEMBERED_SECONDS as UPLOADS_REMEMBERED
from ferrule.store.files import is_kept
from ferrule.store.part import Part
from ferrule.store.records import (
    DAY_SECONDS,
    FileBatch,
    FileCounts,
    FileState,
    NewStoreFile,
    Page,
    Paging,
    StoreFile,
    VectorStore,
)
from ferrule.store.schema import file_batch_entries, file_batches, files, uploads, vector_store_files, vector_stores

T = TypeVar("T")

REMEMBERED_SECONDS = 30 * DAY_SECONDS
"""How long a store that has expired can still be asked for."""
MOST_PARAMETERS = 5_000
"""Of one statement; SQLite takes 32,766."""

_FIELDS = [field.name for field in vector_stores.c if field.name != "number"]
_FILE: Select[Any] = select(
    vector_store_files, vector_store_files.c.file.label("id"), vector_stores.c.id.label("store_id")
).join(vector_stores, vector_store_files.c.store == vector_stores.c.number)


class Unread(msgspec.Struct, frozen=True):
    """A file of a store that waits to be read, and whose it is."""

    number: int
    owner: str
    store: str
    file: str


class VectorStores(Part):
    """Vector stores by id."""

    async def create_vector_store(
        self, record: VectorStore, added: Sequence[NewStoreFile]
    ) -> tuple[VectorStore, list[Unread]]:
        """Store a new vector store with files, which are to be read. Raises `NoSuchFile`."""
        return await self._database.write(_create, record, added)

    async def vector_store(self, owner: str, store_id: str) -> VectorStore | None:
        """Return a vector store."""
        return await self._database.read(_store, owner, store_id)

    async def vector_stores(self, owner: str, paging: Paging) -> Page[VectorStore]:
        """Return a page of an owner's vector stores."""
        return await self._database.read(_stores, owner, paging)

    async def change_vector_store(self, owner: str, store_id: str, values: Mapping[str, object]) -> VectorStore | None:
        """Store other values of `name`, `metadata`, `expires_days`, `last_active_at`; None if there is no such store,
        or it has expired."""
        return await self._database.write(_change, owner, store_id, dict(values))

    async def delete_vector_store(self, owner: str, store_id: str) -> bool:
        """Forget a vector store with its files; False if there is none."""
        return await self._database.write(_delete, owner, store_id)

    async def add_store_files(self, owner: str, store_id: str, added: Sequence[NewStoreFile], now: int) -> list[Unread]:
        """Add files to a store, in the place of the same ones. Empty if there is no such store. Raises
        `NoSuchFile`."""
        return await self._database.write(_add_files, owner, store_id, added, now)

    async def add_file_batch(
        self, owner: str, batch: FileBatch, added: Sequence[NewStoreFile]
    ) -> tuple[FileBatch, list[Unread]] | None:
        """Add a batch of files to a store; None if there is no such store. Raises `NoSuchFile`."""
        return await self._database.write(_add_batch, owner, batch, added)

    async def store_file(self, owner: str, store_id: str, file_id: str) -> StoreFile | None:
        """Return a file of a store."""
        return await self._database.read(_file, owner, store_id, file_id)

    async def store_files(
        self, owner: str, store_id: str, paging: Paging, *, status: FileState | None = None, batch: str | None = None
    ) -> Page[StoreFile] | None:
        """Return a page of a store's files, or of a batch's; None if there is no such store or batch."""
        return await self._database.read(_files, owner, store_id, paging, status, batch)

    async def set_file_attributes(self, owner: str, store_id: str, file_id: str, attributes: bytes) -> bool:
        """Give a file of a store other attributes; False if there is none."""
        return await self._database.write(_set_attributes, owner, store_id, file_id, attributes)

    async def remove_store_file(self, owner: str, store_id: str, file_id: str) -> bool:
        """Take a file out of a store; False if there is none."""
        return await self._database.write(_remove_file, owner, store_id, file_id)

    async def file_batch(self, owner: str, store_id: str, batch_id: str) -> FileBatch | None:
        """Return a batch."""
        return await self._database.read(_batch, owner, store_id, batch_id)

    async def cancel_file_batch(self, owner: str, store_id: str, batch_id: str) -> FileBatch | None:
        """Cancel the files of a batch that are not read yet; None if there is no such batch."""
        return await self._database.write(_cancel, owner, store_id, batch_id)

    async def stores_with(self, owner: str, file_id: str) -> list[str]:
        """Return the stores that a file is in."""
        return await self._database.read(_stores_with, owner, file_id)

    async def filenames(self, store_id: str, file_ids: Collection[str]) -> dict[str, str]:
        """Return the names of those files that are in a store, and have not expired."""
        return await self._database.read(_filenames, store_id, list(file_ids))

    async def unread_files(self) -> list[Unread]:
        """Return the files of all owners that are not read yet, oldest first."""
        return await self._database.read(_unread)

    async def read_again(self, store_id: str, kept: Collection[str]) -> list[Unread]:
        """Let all files of a store that have been read, but for those that are kept, be read again. Returns them."""
        return await self._database.write(_read_again, store_id, kept)

    async def unread_file(self, number: int) -> tuple[StoreFile, str] | None:
        """Return a file that is not read yet and its name; None if it is not to be read any more."""
        return await self._database.read(_unread_file, number)

    async def end_store_file(
        self, number: int, *, usage_bytes: int = 0, error: tuple[str, str] | None = None
    ) -> bytes | None:
        """Note that a file was read, or the code and the sentence why not. Returns its attributes as they are now, None
        if nobody wants it any more."""
        return await self._database.write(_end_file, number, usage_bytes, error)

    async def has_expired(self, now: int) -> bool:
        """Return whether the time of a file, an upload or a vector store has come."""
        return await self._database.read(_has_expired, now)

    async def expire_vector_stores(self, now: int) -> list[str]:
        """Expire the stores that nobody has used for too long, and forget those that expired long ago. Returns the ids
        of those that have expired now."""
        return await self._database.write(_expire, now)

    async def all_store_files(self) -> dict[str, frozenset[str]]:
        """Return the files of each vector store, of all owners."""
        return await self._database.read(_everything)

    async def expiring_store_files(self, now: int) -> list[tuple[str, str]]:
        """Return stores and files whose file has expired."""
        return await self._database.read(_expiring, now)


def _of_owner(owner: str, store_id: str) -> ColumnElement[bool]:
    return (vector_stores.c.owner == owner) & (vector_stores.c.id == store_id)


def _number(tx: Connection, owner: str, store_id: str) -> int | None:
    """Return the number of a store that has not expired."""
    rows = select(vector_stores.c.number).where(_of_owner(owner, store_id), vector_stores.c.expired.is_(False))
    return tx.scalar(rows)


def _create(tx: Connection, record: VectorStore, added: Sequence[NewStoreFile]) -> tuple[VectorStore, list[Unread]]:
    tx.execute(insert(vector_stores), {name: getattr(record, name) for name in _FIELDS})
    unread = _add_files(tx, record.owner, record.id, added, record.created_at)
    made = _store(tx, record.owner, record.id)
    assert made is not None
    return made, unread


def _counted(tx: Connection, rows: Iterable[Row[Any]]) -> list[VectorStore]:
    """Return stores with what is in them."""
    rows = list(rows)
    own = vector_store_files.c
    sums = select(own.store, own.status, func.count(), func.sum(own.usage_bytes)).group_by(own.store, own.status)
    counts: dict[int, dict[str, int]] = {}
    used: dict[int, int] = {}
    for store, status, count, size in tx.execute(sums.where(own.store.in_([row.number for row in rows]))):
        counts.setdefault(store, {})[status] = count
        used[store] = used.get(store, 0) + size
    return [
        VectorStore(
            **{name: getattr(row, name) for name in _FIELDS},
            counts=FileCounts(**counts.get(row.number, {})),
            usage_bytes=used.get(row.number, 0),
        )
        for row in rows
    ]


def _store(tx: Connection, owner: str, store_id: str) -> VectorStore | None:
    found = _counted(tx, tx.execute(select(vector_stores).where(_of_owner(owner, store_id))))
    return found[0] if found else None


def _stores(tx: Connection, owner: str, which: Paging) -> Page[VectorStore]:
    page = paging.read_page(tx, select(vector_stores), vector_stores.c.owner == owner, which, lambda row: row)
    return Page(
        data=tuple(_counted(tx, page.data)), has_more=page.has_more, first_id=page.first_id, last_id=page.last_id
    )


def _change(tx: Connection, owner: str, store_id: str, values: dict[str, object]) -> VectorStore | None:
    number = _number(tx, owner, store_id)
    if number is None:
        return None
    if values:
        tx.execute(update(vector_stores).where(vector_stores.c.number == number).values(values))
    return _store(tx, owner, store_id)


def _delete(tx: Connection, owner: str, store_id: str) -> bool:
    return tx.execute(delete(vector_stores).where(_of_owner(owner, store_id))).rowcount > 0


def _add_files(tx: Connection, owner: str, store_id: str, added: Sequence[NewStoreFile], now: int) -> list[Unread]:
    number = _number(tx, owner, store_id)
    if number is None:
        return []
    added = list({one.file: one for one in added}.values())
    _check_known(tx, owner, added)
    tx.execute(update(vector_stores).where(vector_stores.c.number == number).values(last_active_at=now))
    unread: list[Unread] = []
    for some in _batched(added, MOST_PARAMETERS):
        own = (vector_store_files.c.store == number) & vector_store_files.c.file.in_([one.file for one in some])
        tx.execute(delete(vector_store_files).where(own))
        tx.execute(insert(vector_store_files), [_row(one, number, now) for one in some])
        rows = select(vector_store_files.c.number, vector_store_files.c.file).where(own)
        found = tx.execute(rows.order_by(vector_store_files.c.number))
        unread += (Unread(row.number, owner, store_id, row.file) for row in found)
    return unread


def _row(file: NewStoreFile, store: int, now: int) -> dict[str, object]:
    return {
        "store": store,
        "file": file.file,
        "created_at": now,
        "status": "in_progress",
        "usage_bytes": 0,
        "attributes": file.attributes,
        "max_tokens": file.max_tokens,
        "overlap_tokens": file.overlap_tokens,
    }


def _batched(added: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Yield files in groups of this size."""
    for start in range(0, len(added), size):
        yield added[start : start + size]


def _check_known(tx: Connection, owner: str, added: Sequence[NewStoreFile]) -> None:
    """Raise `StoreRefusal` for a file that does not exist."""
    known = set[str]()
    for some in _batched(added, MOST_PARAMETERS):
        named = files.c.id.in_([one.file for one in some])
        known.update(tx.scalars(select(files.c.id).where(files.c.owner == owner, named, is_kept())))
    for one in added:
        if one.file not in known:
            raise NoSuchFile(f"There is no file {one.file!r}.", one.param)


def _add_batch(
    tx: Connection, owner: str, batch: FileBatch, added: Sequence[NewStoreFile]
) -> tuple[FileBatch, list[Unread]] | None:
    store = _number(tx, owner, batch.store)
    if store is None:
        return None
    unread = _add_files(tx, owner, batch.store, added, batch.created_at)
    values = {"id": batch.id, "store": store, "created_at": batch.created_at, "cancelled": False}
    number = tx.execute(insert(file_batches).values(values).returning(file_batches.c.number)).scalar_one()
    entries = [{"batch": number, "file": one.file} for one in added]
    tx.execute(insert_or(file_batch_entries).on_conflict_do_nothing(), entries)
    made = _batch(tx, owner, batch.store, batch.id)
    assert made is not None
    return made, unread


def _record(row: Row[Any]) -> StoreFile:
    fields = {name: getattr(row, name) for name in StoreFile.__struct_fields__}
    return StoreFile(**fields | {"store": row.store_id})


def _file(tx: Connection, owner: str, store_id: str, file_id: str) -> StoreFile | None:
    row = tx.execute(_FILE.where(_of_owner(owner, store_id), vector_store_files.c.file == file_id)).first()
    return None if row is None else _record(row)


def _files(
    tx: Connection, owner: str, store_id: str, which: Paging, status: FileState | None, batch: str | None
) -> Page[StoreFile] | None:
    number = tx.scalar(select(vector_stores.c.number).where(_of_owner(owner, store_id)))
    if number is None:
        return None
    rows, scope = _FILE, vector_store_files.c.store == number
    if batch is not None:
        found = tx.scalar(
            select(file_batches.c.number).where(file_batches.c.id == batch, file_batches.c.store == number)
        )
        if found is None:
            return None
        of_batch = select(file_batch_entries.c.file).where(file_batch_entries.c.batch == found)
        scope &= vector_store_files.c.file.in_(of_batch)
    if status is not None:
        scope &= vector_store_files.c.status == status
    return paging.read_page(tx, rows, scope, which, _record)


def _of_file(tx: Connection, owner: str, store_id: str, file_id: str) -> ColumnElement[bool]:
    return (vector_store_files.c.store == _number(tx, owner, store_id)) & (vector_store_files.c.file == file_id)


def _set_attributes(tx: Connection, owner: str, store_id: str, file_id: str, attributes: bytes) -> bool:
    this = _of_file(tx, owner, store_id, file_id)
    return tx.execute(update(vector_store_files).where(this).values(attributes=attributes)).rowcount > 0


def _remove_file(tx: Connection, owner: str, store_id: str, file_id: str) -> bool:
    return tx.execute(delete(vector_store_files).where(_of_file(tx, owner, store_id, file_id))).rowcount > 0


def _batch_row(tx: Connection, owner: str, store_id: str, batch_id: str) -> Row[Any] | None:
    rows = select(file_batches).join(vector_stores, file_batches.c.store == vector_stores.c.number)
    return tx.execute(rows.where(_of_owner(owner, store_id), file_batches.c.id == batch_id)).first()


def _batch(tx: Connection, owner: str, store_id: str, batch_id: str) -> FileBatch | None:
    row = _batch_row(tx, owner, store_id, batch_id)
    if row is None:
        return None
    of_store = (vector_store_files.c.file == file_batch_entries.c.file) & (vector_store_files.c.store == row.store)
    joined = file_batch_entries.outerjoin(vector_store_files, of_store)
    status = func.coalesce(vector_store_files.c.status, "cancelled")  # it was taken out of the store
    counts = select(status, func.count()).select_from(joined).where(file_batch_entries.c.batch == row.number)
    found = {str(state): int(count) for state, count in tx.execute(counts.group_by(status))}
    return FileBatch(
        id=row.id, store=store_id, created_at=row.created_at, cancelled=row.cancelled, counts=FileCounts(**found)
    )


def _cancel(tx: Connection, owner: str, store_id: str, batch_id: str) -> FileBatch | None:
    row = _batch_row(tx, owner, store_id, batch_id)
    if row is None:
        return None
    of_batch = select(file_batch_entries.c.file).where(file_batch_entries.c.batch == row.number)
    own = vector_store_files.c
    waiting = (own.store == row.store) & (own.status == "in_progress") & own.file.in_(of_batch)
    if tx.execute(update(vector_store_files).where(waiting).values(status="cancelled")).rowcount:
        tx.execute(update(file_batches).where(file_batches.c.number == row.number).values(cancelled=True))
    return _batch(tx, owner, store_id, batch_id)


def _stores_with(tx: Connection, owner: str, file_id: str) -> list[str]:
    rows = select(vector_stores.c.id).join(vector_store_files, vector_store_files.c.store == vector_stores.c.number)
    return [*tx.scalars(rows.where(vector_stores.c.owner == owner, vector_store_files.c.file == file_id))]


def _filenames(tx: Connection, store_id: str, file_ids: list[str]) -> dict[str, str]:
    rows = (
        select(files.c.id, files.c.filename)
        .join(vector_store_files, vector_store_files.c.file == files.c.id)
        .join(vector_stores, vector_store_files.c.store == vector_stores.c.number)
        .where(vector_stores.c.id == store_id, is_kept())
        .where(vector_store_files.c.status.in_(("completed", "in_progress")))
    )
    parts = (file_ids[start : start + MOST_PARAMETERS] for start in range(0, len(file_ids), MOST_PARAMETERS))
    return {row.id: row.filename for some in parts for row in tx.execute(rows.where(files.c.id.in_(some)))}


def _unread(tx: Connection) -> list[Unread]:
    own = vector_store_files.c
    rows = (
        select(own.number, vector_stores.c.owner, vector_stores.c.id, own.file)
        .join(vector_stores, own.store == vector_stores.c.number)
        .where(own.status == "in_progress")
    )
    return [Unread(*row) for row in tx.execute(rows.order_by(own.number))]


def _read_again(tx: Connection, store_id: str, kept: Collection[str]) -> list[Unread]:
    own = vector_store_files.c
    rows = (
        select(own.number, vector_stores.c.owner, vector_stores.c.id, own.file)
        .join(vector_stores, own.store == vector_stores.c.number)
        .where(vector_stores.c.id == store_id, own.status == "completed")
    )
    lost = [Unread(*row) for row in tx.execute(rows.order_by(own.number)) if row.file not in kept]
    for some in _batched(lost, MOST_PARAMETERS):
        these = own.number.in_([one.number for one in some])
        tx.execute(update(vector_store_files).where(these).values(status="in_progress"))
    return lost


def _unread_file(tx: Connection, number: int) -> tuple[StoreFile, str] | None:
    rows = _FILE.add_columns(files.c.filename).outerjoin(files, files.c.id == vector_store_files.c.file)
    own = vector_store_files.c
    row = tx.execute(rows.where(own.number == number, own.status == "in_progress")).first()
    return None if row is None else (_record(row), row.filename or "")


def _end_file(tx: Connection, number: int, usage_bytes: int, error: tuple[str, str] | None) -> bytes | None:
    own = vector_store_files.c
    code, sentence = error or (None, None)
    values = {
        "status": "failed" if error else "completed",
        "usage_bytes": usage_bytes,
        "error_code": code,
        "error": sentence,
    }
    this = (own.number == number) & (own.status == "in_progress")
    return tx.execute(update(vector_store_files).where(this).values(values).returning(own.attributes)).scalar()


def _ends() -> ColumnElement[int]:
    return vector_stores.c.last_active_at + vector_stores.c.expires_days * DAY_SECONDS


def _is_over(now: int) -> ColumnElement[bool]:
    """Return the condition for vector stores whose time has come."""
    own = vector_stores.c
    return own.expires_days.is_not(None) & own.expired.is_(False) & (_ends() <= now)


def _is_old(now: int) -> ColumnElement[bool]:
    """Return the condition for vector stores that expired so long ago that nobody asks for them."""
    return vector_stores.c.expired.is_(True) & (_ends() <= now - REMEMBERED_SECONDS)


def _has_expired(tx: Connection, now: int) -> bool:
    late = (uploads.c.expires_at <= now) & (uploads.c.status == "pending")
    looks = (
        select(files.c.number).where(files.c.expires_at <= now),
        select(uploads.c.number).where(late | (uploads.c.expires_at < now - UPLOADS_REMEMBERED)),
        select(vector_stores.c.number).where(_is_over(now) | _is_old(now)),
    )
    return any(tx.execute(one.limit(1)).first() is not None for one in looks)


def _expire(tx: Connection, now: int) -> list[str]:
    own = vector_stores.c
    over = list(tx.execute(select(own.number, own.id).where(_is_over(now))))
    for row in over:
        tx.execute(delete(vector_store_files).where(vector_store_files.c.store == row.number))
        tx.execute(update(vector_stores).where(own.number == row.number).values(expired=True))
    tx.execute(delete(vector_stores).where(_is_old(now)))
    return [row.id for row in over]


def _everything(tx: Connection) -> dict[str, frozenset[str]]:
    rows = select(vector_stores.c.id, vector_store_files.c.file).outerjoin(
        vector_store_files, vector_store_files.c.store == vector_stores.c.number
    )
    found: dict[str, set[str]] = {}
    for store, file in tx.execute(rows.where(vector_stores.c.expired.is_(False))):
        found.setdefault(store, set()).update({file} - {None})
    return {store: frozenset(of_store) for store, of_store in found.items()}


def _expiring(tx: Connection, now: int) -> list[tuple[str, str]]:
    rows = (
        select(vector_stores.c.id, vector_store_files.c.file)
        .join(vector_store_files, vector_store_files.c.store == vector_stores.c.number)
        .join(files, files.c.id == vector_store_files.c.file)
    )
    return [(store, file) for store, file in tx.execute(rows.where(files.c.expires_at <= now))]
