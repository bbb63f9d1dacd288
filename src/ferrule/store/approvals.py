"""Answered requests for approval, and the keys that a server makes for itself."""

from os import urandom

from sqlalchemy import Connection, delete, insert, select

from ferrule.store.part import Part
from ferrule.store.schema import approvals, secrets

KEY_BYTES = 32


class Approvals(Part):
    """Approvals by id."""

    async def use_approvals(self, owner: str, ids: tuple[str, ...], must: frozenset[str], now: int) -> frozenset[str]:
        """Note that requests are answered. Returns those that were before; if one of `must` was, nothing is noted."""
        return await self._database.write(_use, owner, ids, must, now)

    async def expire_approvals(self, before: int) -> int:
        """Forget the requests that were answered before this time; return how many."""
        return await self._database.write(_expire, before)

    async def secret(self, name: str) -> bytes:
        """Return the key of this name, the same one ever after."""
        return await self._database.write(_secret, name)


def _use(tx: Connection, owner: str, ids: tuple[str, ...], must: frozenset[str], now: int) -> frozenset[str]:
    mine = (approvals.c.owner == owner) & approvals.c.id.in_(ids)
    used = frozenset(tx.scalars(select(approvals.c.id).where(mine)))
    new = [{"owner": owner, "id": one, "answered_at": now} for one in ids if one not in used]
    if new and not must & used:
        tx.execute(insert(approvals), new)
    return used


def _expire(tx: Connection, before: int) -> int:
    return tx.execute(delete(approvals).where(approvals.c.answered_at < before)).rowcount


def _secret(tx: Connection, name: str) -> bytes:
    value = tx.scalar(select(secrets.c.value).where(secrets.c.name == name))
    if value is None:
        value = urandom(KEY_BYTES)
        tx.execute(insert(secrets), {"name": name, "value": value})
    return bytes(value)
