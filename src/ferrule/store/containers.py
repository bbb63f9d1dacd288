"""Containers: whose they are, and which conversation goes on in which. Their files and their life are elsewhere."""

from collections.abc import Collection
from typing import Any

from sqlalchemy import Connection, Row, delete, insert, select, update
from sqlalchemy.dialects.sqlite import insert as insert_or

from ferrule.store import paging
from ferrule.store.part import Part
from ferrule.store.records import ContainerRecord, Page, Paging
from ferrule.store.schema import container_files, containers

_FIELDS = [containers.c[name] for name in ContainerRecord.__struct_fields__]


class Containers(Part):
    """Containers by id."""

    async def add_container(self, record: ContainerRecord) -> None:
        """Store a new container."""
        await self._database.write(_add, record)

    async def container(self, owner: str, container_id: str) -> ContainerRecord | None:
        """Return a container."""
        return await self._database.read(_container, owner, container_id)

    async def container_of(self, owner: str, lane: str) -> ContainerRecord | None:
        """Return the newest container that was made for a conversation."""
        return await self._database.read(_container_of, owner, lane)

    async def containers(self, owner: str, paging: Paging, name: str | None = None) -> Page[ContainerRecord]:
        """Return a page of an owner's containers, all or those of a name."""
        return await self._database.read(_page, owner, paging, name)

    async def change_container(self, owner: str, container_id: str, details: bytes) -> bool:
        """Store other details; False if there is no such container."""
        return await self._database.write(_change, owner, container_id, details)

    async def delete_container(self, owner: str, container_id: str) -> bool:
        """Forget a container; False if there is none."""
        return await self._database.write(_delete, owner, container_id)

    async def expire_containers(self, before: int, kept: Collection[str]) -> int:
        """Forget the containers that were made before a time, but for those with these ids. Returns how many."""
        return await self._database.write(_expire, before, kept)

    async def note_upload(self, owner: str, container_id: str, path: str) -> bool:
        """Note that the client brought this file of a container; False if there is none."""
        return await self._database.write(_note_upload, owner, container_id, path)

    async def uploads_in(self, owner: str, container_id: str) -> frozenset[str]:
        """Return the paths of the files that the client brought."""
        return await self._database.read(_uploads_in, owner, container_id)


def _add(tx: Connection, record: ContainerRecord) -> None:
    tx.execute(insert(containers), {name: getattr(record, name) for name in record.__struct_fields__})


def _record(row: Row[Any]) -> ContainerRecord:
    return ContainerRecord(**{name: getattr(row, name) for name in ContainerRecord.__struct_fields__})


def _container(tx: Connection, owner: str, container_id: str) -> ContainerRecord | None:
    rows = select(*_FIELDS).where(containers.c.owner == owner, containers.c.id == container_id)
    row = tx.execute(rows).first()
    return None if row is None else _record(row)


def _container_of(tx: Connection, owner: str, lane: str) -> ContainerRecord | None:
    rows = select(*_FIELDS).where(containers.c.owner == owner, containers.c.lane == lane)
    row = tx.execute(rows.order_by(containers.c.number.desc()).limit(1)).first()
    return None if row is None else _record(row)


def _page(tx: Connection, owner: str, which: Paging, name: str | None) -> Page[ContainerRecord]:
    scope = containers.c.owner == owner
    if name is not None:
        scope &= containers.c.name == name
    return paging.read_page(tx, select(containers.c.number, *_FIELDS), scope, which, _record)


def _change(tx: Connection, owner: str, container_id: str, details: bytes) -> bool:
    of_this = (containers.c.owner == owner) & (containers.c.id == container_id)
    return tx.execute(update(containers).where(of_this).values(details=details)).rowcount > 0


def _delete(tx: Connection, owner: str, container_id: str) -> bool:
    gone = tx.execute(delete(containers).where(containers.c.owner == owner, containers.c.id == container_id))
    return gone.rowcount > 0


def _expire(tx: Connection, before: int, kept: Collection[str]) -> int:
    old = tx.execute(select(containers.c.number, containers.c.id).where(containers.c.created_at < before))
    over = [row.number for row in old if row.id not in kept]
    for number in over:
        tx.execute(delete(containers).where(containers.c.number == number))
    return len(over)


def _number(owner: str, container_id: str) -> Any:
    return select(containers.c.number).where(containers.c.owner == owner, containers.c.id == container_id)


def _note_upload(tx: Connection, owner: str, container_id: str, path: str) -> bool:
    number = tx.scalar(_number(owner, container_id))
    if number is not None:
        tx.execute(insert_or(container_files).on_conflict_do_nothing(), {"container": number, "path": path})
    return number is not None


def _uploads_in(tx: Connection, owner: str, container_id: str) -> frozenset[str]:
    rows = select(container_files.c.path).where(
        container_files.c.container == _number(owner, container_id).scalar_subquery()
    )
    return frozenset(tx.scalars(rows))
