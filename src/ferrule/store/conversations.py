"""Conversations: lists of public items, each entry with what the model saw of it."""

from collections.abc import Sequence

from sqlalchemy import Connection, bindparam, delete, insert, select, update
from sqlalchemy.dialects.sqlite import insert as insert_or

from ferrule.store import paging
from ferrule.store.part import Part
from ferrule.store.records import Conversation, Entry, Page, Paging, id_of
from ferrule.store.schema import conversation_entries, conversation_items, conversations

_NUMBER = select(conversations.c.number).where(
    conversations.c.owner == bindparam("for_owner"), conversations.c.id == bindparam("for_id")
)
_INSERT_ITEM = insert_or(conversation_items).on_conflict_do_nothing()


class Conversations(Part):
    """Conversations by id."""

    async def create_conversation(self, record: Conversation) -> None:
        """Store a new conversation."""
        await self._database.write(_create, record)

    async def conversation(self, owner: str, conversation_id: str) -> Conversation | None:
        """Return a conversation."""
        return await self._database.read(_conversation, owner, conversation_id)

    async def update_conversation(self, owner: str, conversation_id: str, metadata: bytes) -> Conversation | None:
        """Replace a conversation's metadata, and return it; None if there is none."""
        return await self._database.write(_update, owner, conversation_id, metadata)

    async def delete_conversation(self, owner: str, conversation_id: str) -> bool:
        """Delete a conversation with its items; False if there is none. Responses made in it stay."""
        return await self._database.write(_delete, owner, conversation_id)

    async def add_items(
        self, owner: str, conversation_id: str, items: Sequence[bytes], transcript: bytes | None = None
    ) -> bool:
        """Add items as one entry; False if there is no such conversation. Ids that are there already stay as they
        are."""
        return await self._database.write(append, owner, conversation_id, tuple(items), transcript)

    async def items(self, owner: str, conversation_id: str, paging: Paging) -> Page[bytes] | None:
        """Return a page of a conversation's items."""
        return await self._database.read(_items, owner, conversation_id, paging)

    async def conversation_item(self, owner: str, conversation_id: str, item_id: str) -> bytes | None:
        """Return an item of a conversation."""
        return await self._database.read(_item, owner, conversation_id, item_id)

    async def delete_item(self, owner: str, conversation_id: str, item_id: str) -> bool:
        """Delete an item, and the transcript of its entry, which tells it, too; False if there is none."""
        return await self._database.write(_delete_item, owner, conversation_id, item_id)

    async def conversation_entries(self, owner: str, conversation_id: str) -> tuple[Entry, ...] | None:
        """Return what was added to a conversation, in order."""
        return await self._database.read(_entries, owner, conversation_id)


def append(tx: Connection, owner: str, conversation_id: str, added: Sequence[bytes], transcript: bytes | None) -> bool:
    """Add an entry to a conversation, if it exists."""
    number = _number(tx, owner, conversation_id)
    if number is None:
        return False
    entry = {"conversation": number, "transcript": transcript}
    same = {"conversation": number, "entry": tx.execute(insert(conversation_entries), entry).lastrowid}
    if added:
        tx.execute(_INSERT_ITEM, [same | {"id": id_of(item), "json": item} for item in added])
    return True


def _number(tx: Connection, owner: str, conversation_id: str) -> int | None:
    return tx.scalar(_NUMBER, {"for_owner": owner, "for_id": conversation_id})


def _create(tx: Connection, record: Conversation) -> None:
    values = {"id": record.id, "owner": record.owner, "created_at": record.created_at, "metadata": record.metadata}
    tx.execute(insert(conversations), values)


def _conversation(tx: Connection, owner: str, conversation_id: str) -> Conversation | None:
    number = _number(tx, owner, conversation_id)
    row = tx.execute(select(conversations).where(conversations.c.number == number)).first()
    if row is None:
        return None
    return Conversation(id=row.id, owner=row.owner, created_at=row.created_at, metadata=row.metadata)


def _update(tx: Connection, owner: str, conversation_id: str, metadata: bytes) -> Conversation | None:
    number = _number(tx, owner, conversation_id)
    tx.execute(update(conversations).where(conversations.c.number == number).values(metadata=metadata))
    return _conversation(tx, owner, conversation_id)


def _delete(tx: Connection, owner: str, conversation_id: str) -> bool:
    number = _number(tx, owner, conversation_id)
    return tx.execute(delete(conversations).where(conversations.c.number == number)).rowcount > 0


def _items(tx: Connection, owner: str, conversation_id: str, which: Paging) -> Page[bytes] | None:
    number = _number(tx, owner, conversation_id)
    if number is None:
        return None
    of_this = conversation_items.c.conversation == number
    return paging.read_page(tx, select(conversation_items), of_this, which, lambda row: bytes(row.json))


def _item(tx: Connection, owner: str, conversation_id: str, item_id: str) -> bytes | None:
    return tx.scalar(
        select(conversation_items.c.json).where(
            conversation_items.c.conversation == _number(tx, owner, conversation_id), conversation_items.c.id == item_id
        )
    )


def _delete_item(tx: Connection, owner: str, conversation_id: str, item_id: str) -> bool:
    this = (conversation_items.c.conversation == _number(tx, owner, conversation_id)) & (
        conversation_items.c.id == item_id
    )
    entry = tx.scalar(select(conversation_items.c.entry).where(this))
    tx.execute(delete(conversation_items).where(this))
    tx.execute(update(conversation_entries).where(conversation_entries.c.number == entry).values(transcript=None))
    return entry is not None


def _entries(tx: Connection, owner: str, conversation_id: str) -> tuple[Entry, ...] | None:
    number = _number(tx, owner, conversation_id)
    if number is None:
        return None
    items: dict[int, list[bytes]] = {}
    of_this = select(conversation_items.c.entry, conversation_items.c.json).where(
        conversation_items.c.conversation == number
    )
    for entry, json in tx.execute(of_this.order_by(conversation_items.c.number)):
        items.setdefault(entry, []).append(json)
    rows = select(conversation_entries.c.number, conversation_entries.c.transcript).where(
        conversation_entries.c.conversation == number
    )
    in_order = tx.execute(rows.order_by(conversation_entries.c.number))
    return tuple(Entry(tuple(items.get(entry, ())), transcript) for entry, transcript in in_order)
