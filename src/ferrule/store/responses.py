"""Responses, their public items and, of those that run in the background, their events."""

from collections.abc import Sequence

import msgspec
from sqlalchemy import (
    Boolean,
    Connection,
    bindparam,
    delete,
    insert,
    literal,
    literal_column,
    select,
    tuple_,
    update,
)
from sqlalchemy.sql.expression import CTE

from ferrule.store import conversations, paging
from ferrule.store.errors import StoreRefusal
from ferrule.store.part import Part
from ferrule.store.prepared import Prepared
from ferrule.store.records import MAX_CHAIN, Page, Paging, StoredResponse, id_of
from ferrule.store.schema import event_chunks, item_places, responses

EXPIRED_AT_ONCE = 200
"""Responses that `expire` deletes in one transaction: other changes wait for no more than these."""

_parents = responses.alias("parents")
_mine = (responses.c.owner == bindparam("for_owner")) & (responses.c.id == bindparam("for_id"))
_running = literal_column("responses.status in ('queued', 'in_progress')", Boolean)  # written as in the index
_parent = select(_parents.c.number).where(
    _parents.c.owner == bindparam("for_owner"), _parents.c.id == bindparam("for_parent")
)

_INSERT = Prepared(
    insert(responses)
    .values(
        {column.name: bindparam(column.name) for column in responses.c if column.name not in ("number", "parent")}
        | {"parent": _parent.scalar_subquery()}
    )
    .returning(responses.c.number, responses.c.parent)
)
_PLACE = Prepared(insert(item_places))
_UNPLACE = delete(item_places).where(
    *(column == bindparam(f"at_{column.name}") for column in (item_places.c.owner, item_places.c.id)),
    item_places.c.response == bindparam("at_response"),
)
_NUMBER = select(responses.c.number).where(_mine)
_RUNNING = Prepared(select(responses.c.number, responses.c.conversation, responses.c.input).where(_mine, _running))
_FINISH = Prepared(
    update(responses)
    .where(responses.c.number == bindparam("at"))
    .values({name: bindparam(f"new_{name}") for name in ("status", "body", "output", "transcript")})
)
_RECORDS = select(responses, _parents.c.id.label("parent_id")).outerjoin_from(
    responses, _parents, responses.c.parent == _parents.c.number
)
_ITEM = (
    select(item_places.c.position, responses.c.input, responses.c.output)
    .join(responses, responses.c.number == item_places.c.response)
    .where(item_places.c.owner == bindparam("for_owner"), item_places.c.id == bindparam("for_id"))
    .order_by(item_places.c.response.desc(), item_places.c.position.desc())
    .limit(1)
)

_EVENTS = Prepared(
    select(event_chunks.c.first, event_chunks.c.events)
    .join(responses, responses.c.number == event_chunks.c.response)
    .where(_mine, event_chunks.c.last > bindparam("after"))
    .order_by(event_chunks.c.first)
)

_pack = msgspec.msgpack.Encoder().encode
_unpack = msgspec.msgpack.Decoder(tuple[bytes, ...]).decode


class Responses(Part):
    """Responses by id."""

    async def create_response(self, record: StoredResponse) -> bool:
        """Store a new response. A parent that does not exist, or is somebody else's, is left out: then False."""
        return await self._database.write(_create, record)

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

    async def unfinished(self, most: int) -> tuple[StoredResponse, ...]:
        """Return what was running when the last process ended, of all owners: the oldest, so many at most."""
        return await self._database.read(_unfinished, most)

    async def expire(self, before: int) -> int:
        """Delete the responses that were created before this time; return how many.

        One that a newer response continues stays, and so does all that it continues itself: a chain is whole. One that
        still runs stays, too.
        """
        count = 0
        at: tuple[int, int] | None = (before, 0)
        while at is not None:
            deleted, at = await self._database.write(_expire, *at)
            count += deleted
        return count


def _create(tx: Connection, record: StoredResponse) -> bool:
    values = msgspec.structs.asdict(record) | {"input": _pack(record.input), "output": _pack(record.output)}
    del values["parent"]
    inserted = _INSERT.run(tx, values | {"for_owner": record.owner, "for_parent": record.parent}).fetchall()
    ((number, parent),) = inserted
    _place(tx, number, record.owner, record.input + record.output, 0)
    return record.parent is None or parent is not None


def _place(tx: Connection, response: int, owner: str, added: Sequence[bytes], first: int) -> None:
    same = {"response": response, "owner": owner}
    _PLACE.run_each(tx, [same | {"id": id_of(item), "position": at} for at, item in enumerate(added, first)])


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
    found = _RUNNING.run(tx, {"for_owner": owner, "for_id": response_id}).fetchone()
    if found is None:
        return False
    number, conversation, packed = found
    values = {"status": status, "body": body, "output": _pack(output), "transcript": transcript}
    _FINISH.run(tx, {f"new_{name}": value for name, value in values.items()} | {"at": number})
    given = _unpack(packed)
    _place(tx, number, owner, output, len(given))
    if to_conversation and conversation is not None:
        conversations.append(tx, owner, conversation, given + output, transcript)
    return True


def _response(tx: Connection, owner: str, response_id: str) -> StoredResponse | None:
    number = _number(tx, owner, response_id)
    return None if number is None else _records(tx, select(literal(number).label("number")).cte())[0]


def _number(tx: Connection, owner: str, response_id: str) -> int | None:
    number: int | None = tx.scalar(_NUMBER, {"for_owner": owner, "for_id": response_id})
    return number


def _records(tx: Connection, which: CTE) -> list[StoredResponse]:
    """Read the responses whose `number` is in `which`, oldest first."""
    rows = _RECORDS.join(which, responses.c.number == which.c.number).order_by(responses.c.number)
    return [
        StoredResponse(
            id=row.id,
            owner=row.owner,
            created_at=row.created_at,
            status=row.status,
            body=row.body,
            parent=row.parent_id,
            conversation=row.conversation,
            background=row.background,
            input=_unpack(row.input),
            output=_unpack(row.output),
            transcript=row.transcript,
        )
        for row in tx.execute(rows)
    ]


def _delete(tx: Connection, owner: str, response_id: str) -> bool:
    number = _number(tx, owner, response_id)
    return number is not None and _delete_numbers(tx, [number]) > 0


def _delete_numbers(tx: Connection, numbers: Sequence[int]) -> int:
    """Delete responses and the places of their items; their events go with them."""
    columns = (responses.c.number, responses.c.owner, responses.c.input, responses.c.output)
    places = [
        {"at_owner": owner, "at_id": id_of(item), "at_response": number}
        for number, owner, given, output in tx.execute(select(*columns).where(responses.c.number.in_(numbers)))
        for item in _unpack(given) + _unpack(output)
    ]
    if places:
        tx.execute(_UNPLACE, places)
    return tx.execute(delete(responses).where(responses.c.number.in_(numbers))).rowcount


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
    """Return the numbers of a response and all that it continues: by construction of the same owner, and each above its
    parent's, so that their order is that of the chain."""
    chain = select(literal(number).label("number"), literal(1).label("length")).cte("chain", recursive=True)
    return chain.union_all(
        select(responses.c.parent, chain.c.length + 1)
        .join(chain, responses.c.number == chain.c.number)
        .where(responses.c.parent.is_not(None), chain.c.length <= MAX_CHAIN)
    )


def _item(tx: Connection, owner: str, item_id: str) -> bytes | None:
    found = tx.execute(_ITEM, {"for_owner": owner, "for_id": item_id}).first()
    return None if found is None else (_unpack(found.input) + _unpack(found.output))[found.position]


def _input_items(tx: Connection, owner: str, response_id: str, which: Paging) -> Page[bytes] | None:
    record = _response(tx, owner, response_id)
    return None if record is None else paging.page_of(record.input, which, id_of)


def _append_events(tx: Connection, response_id: str, first: int, events: tuple[bytes, ...]) -> bool:
    number = tx.scalar(select(responses.c.number).where(responses.c.id == response_id))
    if number is None:
        return False
    if events:
        last = first + len(events) - 1
        tx.execute(insert(event_chunks), {"response": number, "first": first, "last": last, "events": _pack(events)})
    return True


def _events(tx: Connection, owner: str, response_id: str, after: int) -> tuple[tuple[int, bytes], ...]:
    chunks = _EVENTS.run(tx, {"for_owner": owner, "for_id": response_id, "after": after})
    numbered = (pair for first, packed in chunks for pair in enumerate(_unpack(packed), first))
    return tuple((sequence, event) for sequence, event in numbered if sequence > after)


def _unfinished(tx: Connection, most: int) -> tuple[StoredResponse, ...]:
    oldest = select(responses.c.number).where(_running).order_by(responses.c.number).limit(most)
    return tuple(_records(tx, oldest.cte()))


def _expire(tx: Connection, created_at: int, number: int) -> tuple[int, tuple[int, int] | None]:
    """Delete some of what is older than this place; return how many, and the place to go on from.

    The newest come first. So what continues a response was looked at before it: what is left of that keeps it, and a
    chain still begins with its root if this is interrupted.
    """
    columns = (responses.c.created_at, responses.c.number, _running.label("runs"))
    older = select(*columns).where(tuple_(*columns[:2]) < tuple_(literal(created_at), literal(number)))
    found = tx.execute(older.order_by(*(column.desc() for column in columns[:2])).limit(EXPIRED_AT_ONCE)).all()
    if not found:
        return 0, None
    continued = select(responses.c.parent, responses.c.number).where(
        responses.c.parent.in_([row.number for row in found])
    )
    children: dict[int, set[int]] = {}
    for parent, child in tx.execute(continued):
        children.setdefault(parent, set()).add(child)
    doomed: set[int] = set()
    for row in found:
        if not row.runs and children.get(row.number, set()) <= doomed:
            doomed.add(row.number)
    return _delete_numbers(tx, sorted(doomed)), (found[-1].created_at, found[-1].number)
