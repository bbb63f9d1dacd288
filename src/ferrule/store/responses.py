"""Responses, their public items and, of those that run in the background, their events."""

from collections.abc import Sequence

import msgspec
from sqlalchemy import Connection, Row, Select, bindparam, delete, insert, literal, or_, select, text, update
from sqlalchemy.sql.expression import CTE

from ferrule.store import conversations, paging
from ferrule.store.errors import StoreRefusal
from ferrule.store.part import Part
from ferrule.store.records import MAX_CHAIN, UNFINISHED, Page, Paging, StoredResponse, id_of
from ferrule.store.schema import event_chunks, items, responses

EXPIRED_AT_ONCE = 200
"""Responses that `expire` deletes in one transaction: other changes wait for no more than these."""

_parents = responses.alias("parents")
_mine = (responses.c.owner == bindparam("for_owner")) & (responses.c.id == bindparam("for_id"))
_running = responses.c.status.in_(UNFINISHED)
_parent = select(_parents.c.number).where(
    _parents.c.owner == bindparam("for_owner"), _parents.c.id == bindparam("for_parent")
)

_INSERT = insert(responses).values(
    {name: bindparam(name) for name in ("id", "owner", "created_at", "status", "body")}
    | {name: bindparam(name) for name in ("conversation", "background", "transcript")}
    | {"parent": _parent.scalar_subquery()}
)
_INSERT_ITEM = insert(items)
_NUMBER = select(responses.c.number, responses.c.conversation).where(_mine)
_RUNNING = _NUMBER.where(_running)
_FINISH = (
    update(responses)
    .where(responses.c.number == bindparam("at"))
    .values(status=bindparam("new_status"), body=bindparam("new_body"), transcript=bindparam("new_transcript"))
)
_UPDATE = update(responses).where(_mine, _running).values(status=bindparam("new_status"), body=bindparam("new_body"))
_RECORDS = select(responses, _parents.c.id.label("parent_id")).outerjoin_from(
    responses, _parents, responses.c.parent == _parents.c.number
)
_ITEM = (
    select(items.c.json)
    .where(items.c.owner == bindparam("for_owner"), items.c.id == bindparam("for_id"))
    .order_by(items.c.number.desc())
    .limit(1)
)


class Responses(Part):
    """Responses by id."""

    async def create_response(self, record: StoredResponse) -> None:
        """Store a new response. A parent that does not exist, or is somebody else's, is left out."""
        await self._database.write(_create, record)

    async def finish_response(
        self,
        owner: str,
        response_id: str,
        *,
        status: str,
        body: bytes,
        output: Sequence[bytes],
        transcript: bytes,
        to_conversation: bool = True,
    ) -> bool:
        """Store how a response ended; False if it was deleted or has ended before.

        With `to_conversation`, its input and output become the last entry of its conversation, if it has one that still
        exists; items whose ids are there already stay as they are.
        """
        return await self._database.write(
            _finish, owner, response_id, status, body, tuple(output), transcript, to_conversation
        )

    async def update_response(self, owner: str, response_id: str, *, status: str, body: bytes) -> bool:
        """Store a new state of a running response; False if it was deleted or has ended before."""
        return await self._database.write(_update, owner, response_id, status, body)

    async def response(self, owner: str, response_id: str) -> StoredResponse | None:
        """Return a response."""
        return await self._database.read(_response, owner, response_id)

    async def delete_response(self, owner: str, response_id: str) -> bool:
        """Delete a response with its items and events; False if there is none. What continues it begins after it."""
        return await self._database.write(_delete, owner, response_id)

    async def chain(self, owner: str, response_id: str) -> tuple[StoredResponse, ...]:
        """Return a response and all that it continues, the first one first; nothing if there is none.

        Raises `StoreRefusal` if there are more than `MAX_CHAIN`.
        """
        return await self._database.read(_chain, owner, response_id)

    async def item(self, owner: str, item_id: str) -> bytes | None:
        """Return the newest public item with this id, from any input or output."""
        return await self._database.read(_item, owner, item_id)

    async def input_items(self, owner: str, response_id: str, paging: Paging) -> Page[bytes] | None:
        """Return a page of a response's input."""
        return await self._database.read(_input_items, owner, response_id, paging)

    async def append_events(self, response_id: str, first: int, events: Sequence[bytes]) -> bool:
        """Store events that are numbered from `first`; False if the response was deleted."""
        return await self._database.write(_append_events, response_id, first, tuple(events))

    async def events(self, owner: str, response_id: str, after: int = -1) -> tuple[tuple[int, bytes], ...]:
        """Return the events with numbers above `after`, in order."""
        return await self._database.read(_events, owner, response_id, after)

    async def unfinished(self) -> tuple[StoredResponse, ...]:
        """Return what was running when the last process ended, of all owners."""
        return await self._database.read(_unfinished)

    async def expire(self, before: int) -> int:
        """Delete the responses that were created before this time; return how many.

        One that a newer response continues stays, and so does all that it continues itself: a chain is whole. One that
        still runs stays, too.
        """
        count = 0
        while deleted := await self._database.write(_expire, before):
            count += deleted
        return count


def _create(tx: Connection, record: StoredResponse) -> None:
    values = msgspec.structs.asdict(record) | {"for_owner": record.owner, "for_parent": record.parent}
    for name in ("input", "output", "parent"):
        del values[name]
    number = tx.execute(_INSERT, values).lastrowid
    _add_items(tx, number, record.owner, record.input, output=False)
    _add_items(tx, number, record.owner, record.output, output=True)


def _add_items(tx: Connection, response: int, owner: str, added: Sequence[bytes], *, output: bool) -> None:
    if added:
        same = {"response": response, "owner": owner, "output": output}
        tx.execute(_INSERT_ITEM, [same | {"id": id_of(item), "json": item} for item in added])


def _finish(
    tx: Connection,
    owner: str,
    response_id: str,
    status: str,
    body: bytes,
    output: tuple[bytes, ...],
    transcript: bytes,
    to_conversation: bool,
) -> bool:
    found = tx.execute(_RUNNING, {"for_owner": owner, "for_id": response_id}).first()
    if found is None:
        return False
    tx.execute(_FINISH, {"at": found.number, "new_status": status, "new_body": body, "new_transcript": transcript})
    _add_items(tx, found.number, owner, output, output=True)
    if to_conversation and found.conversation is not None:
        of_response = select(items.c.json).where(items.c.response == found.number).order_by(items.c.number)
        everything = tx.scalars(of_response).all()
        conversations.append(tx, owner, found.conversation, everything, transcript)
    return True


def _update(tx: Connection, owner: str, response_id: str, status: str, body: bytes) -> bool:
    values = {"for_owner": owner, "for_id": response_id, "new_status": status, "new_body": body}
    return tx.execute(_UPDATE, values).rowcount > 0


def _response(tx: Connection, owner: str, response_id: str) -> StoredResponse | None:
    number = _number(tx, owner, response_id)
    return None if number is None else _records(tx, select(literal(number).label("number")).cte())[0]


def _number(tx: Connection, owner: str, response_id: str) -> int | None:
    number: int | None = tx.scalar(_NUMBER, {"for_owner": owner, "for_id": response_id})
    return number


def _records(tx: Connection, which: CTE) -> list[StoredResponse]:
    """Read the responses whose `number` is in `which`, oldest first: one query for them, one for their items."""
    rows = tx.execute(_RECORDS.join(which, responses.c.number == which.c.number).order_by(responses.c.number)).all()
    parts: dict[int, tuple[list[bytes], list[bytes]]] = {row.number: ([], []) for row in rows}
    of_these = select(items.c.response, items.c.output, items.c.json).join(which, items.c.response == which.c.number)
    for response, output, json in tx.execute(of_these.order_by(items.c.number)):
        parts[response][output].append(json)
    return [_record(row, *parts[row.number]) for row in rows]


def _record(row: Row[tuple[object, ...]], given: Sequence[bytes], output: Sequence[bytes]) -> StoredResponse:
    return StoredResponse(
        id=row.id,
        owner=row.owner,
        created_at=row.created_at,
        status=row.status,
        body=row.body,
        parent=row.parent_id,
        conversation=row.conversation,
        background=row.background,
        input=tuple(given),
        output=tuple(output),
        transcript=row.transcript,
    )


def _delete(tx: Connection, owner: str, response_id: str) -> bool:
    return tx.execute(delete(responses).where(_mine), {"for_owner": owner, "for_id": response_id}).rowcount > 0


def _chain(tx: Connection, owner: str, response_id: str) -> tuple[StoredResponse, ...]:
    number = _number(tx, owner, response_id)
    if number is None:
        return ()
    records = _records(tx, _links(number))
    if len(records) > MAX_CHAIN:
        raise StoreRefusal(
            f"{response_id} continues more than {MAX_CHAIN - 1} responses; compact it and start from what that returns",
            "previous_response_id",
        )
    return tuple(records)


def _links(number: int) -> CTE:
    """The numbers of a response and all that it continues: by construction of the same owner, and each above its
    parent's, so that their order is that of the chain."""
    chain = select(literal(number).label("number"), literal(1).label("length")).cte("chain", recursive=True)
    return chain.union_all(
        select(responses.c.parent, chain.c.length + 1)
        .join(chain, responses.c.number == chain.c.number)
        .where(responses.c.parent.is_not(None), chain.c.length <= MAX_CHAIN)
    )


def _item(tx: Connection, owner: str, item_id: str) -> bytes | None:
    return tx.scalar(_ITEM, {"for_owner": owner, "for_id": item_id})


def _input_items(tx: Connection, owner: str, response_id: str, which: Paging) -> Page[bytes] | None:
    number = _number(tx, owner, response_id)
    if number is None:
        return None
    of_this = (items.c.response == number) & ~items.c.output
    return paging.read_page(tx, select(items), of_this, which, lambda row: bytes(row.json))


def _append_events(tx: Connection, response_id: str, first: int, events: tuple[bytes, ...]) -> bool:
    number = tx.scalar(select(responses.c.number).where(responses.c.id == response_id))
    if number is None:
        return False
    if events:
        packed = msgspec.msgpack.encode(events)
        last = first + len(events) - 1
        tx.execute(insert(event_chunks), {"response": number, "first": first, "last": last, "events": packed})
    return True


def _events(tx: Connection, owner: str, response_id: str, after: int) -> tuple[tuple[int, bytes], ...]:
    number = _number(tx, owner, response_id)
    chunks = (
        select(event_chunks.c.first, event_chunks.c.events)
        .where(event_chunks.c.response == number, event_chunks.c.last > after)
        .order_by(event_chunks.c.first)
    )
    numbered = (
        pair
        for first, packed in tx.execute(chunks)
        for pair in enumerate(msgspec.msgpack.decode(packed, type=tuple[bytes, ...]), first)
    )
    return tuple((sequence, event) for sequence, event in numbered if sequence > after)


def _unfinished(tx: Connection) -> tuple[StoredResponse, ...]:
    written_out = text("status in ('queued', 'in_progress')")  # as in the index, which holds just these
    return tuple(_records(tx, select(responses.c.number).where(written_out).cte()))


def _expire(tx: Connection, before: int) -> int:
    """Delete some, the newest first: if it is interrupted, what is left of a chain still begins with its root."""
    old = select(responses.c.number).where(responses.c.created_at < before, ~_running)
    newest = old.where(responses.c.number.not_in(_needed(before))).order_by(responses.c.number.desc())
    doomed = tx.scalars(newest.limit(EXPIRED_AT_ONCE)).all()
    tx.execute(delete(responses).where(responses.c.number.in_(doomed)))
    return len(doomed)


def _needed(before: int) -> Select[tuple[int]]:
    """The old responses that a newer or a running one continues, directly or not."""
    children = responses.alias("children")
    stays = or_(children.c.created_at >= before, children.c.status.in_(UNFINISHED))
    needed = (
        select(responses.c.number, responses.c.parent)
        .join(children, children.c.parent == responses.c.number)
        .where(responses.c.created_at < before, stays)
        .cte("needed", recursive=True)
    )
    needed = needed.union(
        select(responses.c.number, responses.c.parent).join(needed, responses.c.number == needed.c.parent)
    )
    return select(needed.c.number)
