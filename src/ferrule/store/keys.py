"""The keys of clients. Only their hashes are kept."""

import hashlib
import hmac
import secrets
import time

from sqlalchemy import Connection, bindparam, delete, insert, select

from ferrule.store.errors import StoreRefusal
from ferrule.store.part import Part
from ferrule.store.prepared import Prepared
from ferrule.store.schema import keys

PREFIX = "fk-"
KEY_BYTES = 32
"""Random bytes of a key, 43 characters: nobody guesses it, so a plain hash of it is safe to keep."""

MAX_NAME = 64
"""Characters of a name, which stands in lists and messages."""

_BY_HASH = Prepared(select(keys.c.name, keys.c.hash).where(keys.c.hash == bindparam("asked")))
_ANY = Prepared(select(keys.c.name))


class Keys(Part):
    """Keys by name. The name is the owner of what is stored with the key: a new key of the same name sees it again."""

    async def add_key(self, name: str) -> str:
        """Make a key. It is returned this once. Raises `StoreRefusal` for a name that is taken or no name."""
        if not (name and len(name) <= MAX_NAME and name.isprintable() and " " not in name):
            raise StoreRefusal(f"a key's name is 1 to {MAX_NAME} characters without spaces, not {name!r}", "name")
        key = PREFIX + secrets.token_urlsafe(KEY_BYTES)
        await self._database.write(_add, name, key)
        return key

    async def owner_of(self, key: str) -> str | None:
        """Return whose key this is. How long it takes to look the hash up says nothing of the key, since nobody can
        choose a hash."""
        asked = _hash(key)
        found = self._database.look_up(_BY_HASH, {"asked": asked})
        return found[0] if found is not None and hmac.compare_digest(found[1], asked) else None

    async def keys(self) -> tuple[str, ...]:
        """Return the names of all keys, sorted."""
        return await self._database.read(_names)

    async def remove_key(self, name: str) -> bool:
        """Delete a key; False if there is none. What was stored with it stays."""
        return await self._database.write(_remove, name)

    async def has_keys(self) -> bool:
        """Return whether there is any key."""
        return self._database.look_up(_ANY, {}) is not None


def _hash(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


def _add(tx: Connection, name: str, key: str) -> None:
    if tx.scalar(select(keys.c.name).where(keys.c.name == name)) is not None:
        raise StoreRefusal(f"there is a key {name!r} already; remove it first, or take another name", "name")
    tx.execute(insert(keys), {"name": name, "hash": _hash(key), "created_at": int(time.time())})


def _names(tx: Connection) -> tuple[str, ...]:
    return tuple(tx.scalars(select(keys.c.name).order_by(keys.c.name)))


def _remove(tx: Connection, name: str) -> bool:
    return tx.execute(delete(keys).where(keys.c.name == name)).rowcount > 0
